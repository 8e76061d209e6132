"""Quotas out to a file and back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.load import load_bytes
from config.model import DEFAULT, QuotaRule
from pipeline.errors import InputError
from pipeline.quotas_file import as_file, read_quotas

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: not name.startswith("<")
)


@given(user=names | st.none() | st.just(DEFAULT), client_id=names, rate=st.integers(1_000, 2**50))
def test_what_is_written_is_what_a_proxy_reads(user: str | None, client_id: str, rate: int) -> None:
    rule = QuotaRule(user=user, client_id=client_id, producer_byte_rate=float(rate))

    loaded = load_bytes(as_file([(rule, "why")], head=["one", ""]).encode(), file="quotas.yaml")

    (read,) = loaded.config.quotas
    assert (read.user, read.client_id, read.producer_byte_rate) == (user, client_id, float(rate))
    assert loaded.warnings == ()


def test_no_quotas_are_a_file_too() -> None:
    assert load_bytes(as_file([], head=[]).encode(), file="quotas.yaml").config.quotas == ()


def test_quotas_alone_are_enough_and_faults_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "proposed.yaml"
    path.write_text("quotas:\n  - {user: alice, producer_byte_rate: 5MB}", encoding="utf-8")
    assert [rule.producer_byte_rate for rule in read_quotas(str(path)).quotas] == [5e6]

    path.write_text("quotas:\n  - {user: alice, producer_byte_rat: 5MB}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"proposed\.yaml:2: quotas\[0\]"):
        read_quotas(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        read_quotas(str(tmp_path / "none.yaml"))
