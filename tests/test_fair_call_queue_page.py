"""The table in docs/reference/fair-call-queue.md has each key of the program, with its true default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.fair_call_queue_options import FAIR_CALL_QUEUE, THRESHOLDS
from kafka_quota_proxy.config.load import load_bytes

_PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "fair-call-queue.md"
_ROW: Final = re.compile(r"^\| `([^`]+)`(?: \+)? \| *(?:`([^`]*)`) *\|", re.MULTILINE)
_LISTENER: Final = "listeners: [{name: clients, bind: 127.0.0.1:9192, upstream: broker1:9092}]\n"


class Row(NamedTuple):
    """A row of the table."""

    key: str
    default: str


def rows() -> list[Row]:
    section = _PAGE.read_text(encoding="utf-8").split("## All keys")[1].split("\n## ")[0]
    return [Row(found[1], found[2]) for found in _ROW.finditer(section)]


def loaded(**keys: str) -> FairCallQueue:
    section = "".join(f"  {key}: {value}\n" for key, value in keys.items()) or "  {}\n"
    (listener,) = load_bytes(f"{_LISTENER}fair_call_queue:\n{section}".encode(), file="proxy.yaml").config.listeners
    assert listener.fair_call_queue is not None
    return listener.fair_call_queue


def test_table_has_each_key_once() -> None:
    assert sorted(row.key for row in rows()) == sorted(FAIR_CALL_QUEUE.keys)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.key)
def test_documented_default_equals_the_default(row: Row) -> None:
    if row.key == THRESHOLDS:
        shares = ", ".join(f"{100 * share:g}" for share in FairCallQueue().thresholds)
        assert row.default == f"[{shares}]"
        return

    assert loaded(**{row.key: row.default}) == loaded()
