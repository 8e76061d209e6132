"""A bill of real traffic: the counts of clients, metrics, log and bill are equal."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import run
from tests.end_to_end.support.proxy import Proxy

Record = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
_SIZE_FIELD: Final = 4
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
MONTH_MS: Final = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp() * 1_000)
DAYS: Final = 30
# The day of the month, from 0, on which the owner of `etl` changes.
CHANGE: Final = 15
# One hour has no log, in another the clock stepped back, and one day's file exists twice.
MISSING_HOUR: Final = 7 * 24 + 5
STEPPED_HOUR: Final = 20 * 24 + 13
COPIED_DAY: Final = 11

OWNERS: Final = """user,client_id,owner,from,until
,etl,first owner,,2026-09-16
,etl,second owner,2026-09-16,
,reports,analysts,,
"""


def exchange(proxy: Proxy, topic: str, client_id: str, *, count: int) -> Counter[tuple[str, str]]:
    """Produce and fetch, and return the charged bytes of each kind."""
    batch = batch_of(16 * KIB)
    with raw_client(proxy.port(), client_id=client_id) as producer:
        for _ in range(count):
            assert producer.produce(topic, batch).error_code == 0
    with raw_client(proxy.port(), client_id=client_id) as consumer:
        for offset in range(count):
            assert consumer.fetch(topic, offset=offset, max_bytes=64 * KIB, max_wait_ms=50).error_code == 0
    return Counter(
        {
            (client_id, "produce"): producer.sent_bytes - _SIZE_FIELD * count,
            (client_id, "fetch"): consumer.received_bytes - _SIZE_FIELD * count,
        }
    )


def sums(records: Iterable[Record]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for one in records:
        if one["kind"] in ("produce", "fetch"):
            found[one["client_id"], one["kind"]] += one["amount"]
    return found


def moved(records: Iterable[Record], by_ms: int) -> list[Record]:
    return [{**one, "start_ms": one["start_ms"] + by_ms} for one in records]


def step_ms_of(records: list[Record]) -> int:
    """Return a shift of about half an interval, such that shifted records are no duplicates."""
    starts = {one["start_ms"] for one in records}
    first = min(records, key=lambda one: one["start_ms"])
    steps = range(first["interval_ms"] // 2, first["interval_ms"])
    return next(by_ms for by_ms in steps if starts.isdisjoint(start_ms + by_ms for start_ms in starts))


def write_month(directory: Path, records: list[Record]) -> int:
    """Repeat the log in each hour of a month, with one file a day. Return the number of repetitions."""
    directory.mkdir()
    first_ms = min(one["start_ms"] for one in records)
    copies = 0
    for day in range(DAYS):
        found: list[Record] = []
        for hour in range(day * 24, day * 24 + 24):
            if hour == MISSING_HOUR:
                continue
            by_ms = MONTH_MS + hour * HOUR_MS + 60_000 - first_ms
            found += moved(records, by_ms)
            copies += 1
            if hour == STEPPED_HOUR:
                found += moved(records, by_ms + step_ms_of(records))
                copies += 1
        text = "".join(json.dumps(one) + "\n" for one in found)
        (directory / f"usage-p1-{MONTH_MS + day * DAY_MS}.jsonl").write_text(text)
        if day == COPIED_DAY:
            (directory / f"copy-of-usage-p1-{MONTH_MS + day * DAY_MS}.jsonl").write_text(text)
    return copies


@pytest.mark.pipeline
def test_month_is_billed_to_the_byte_and_oddities_are_reported(kafka_4: Kafka, tmp_path: Path) -> None:
    usage, month, out, owners = (tmp_path / name for name in ("usage", "month", "bill", "owners.csv"))
    owners.write_text(OWNERS)
    passed: Counter[tuple[str, str]] = Counter()
    settings = {"usage_log": {"directory": str(usage), "interval": "200ms", "proxy": "p1"}}
    with Proxy(settings, kafka_4) as proxy:
        topic = create_topic(kafka_4)
        for client_id, count in (("etl", 7), ("reports", 3), ("etl", 2), ("unknown", 1)):
            passed += exchange(proxy, topic, client_id, count=count)
        metrics = proxy.metrics()
        assert proxy.stop() == 0
    records = [json.loads(line) for path in usage.glob("*.jsonl") for line in path.read_text().splitlines()]
    counted = {key: metrics.total("kafka_quota_proxy_bytes_total", client_id=key[0], kind=key[1]) for key in passed}
    copies = write_month(month, records)

    printed = run(
        [
            sys.executable, "-m", "kafka_quota_proxy.pipeline", "chargeback", "--usage", month, "--owners", owners,
            "--month", "2026-09", "--price", "0.05", "--out", out, "--master", "local[2]",
            "--conf", "spark.sql.shuffle.partitions=2",
        ],
        cwd=ROOT,
    )  # fmt: skip

    assert passed == counted == sums(records)
    assert copies == DAYS * 24
    hours = {"first owner": CHANGE * 24 - 1, "second owner": (DAYS - CHANGE) * 24 + 1}
    expected = {(owner, kind): passed["etl", kind] * hours[owner] for owner in hours for kind in ("produce", "fetch")}
    for owner, client_id in (("analysts", "reports"), ("(nobody)", "unknown")):
        expected |= {(owner, kind): passed[client_id, kind] * copies for kind in ("produce", "fetch")}
    assert bill(out) == expected
    total = sum(passed.values()) * copies
    notes = (out / "notes.txt").read_text().splitlines()
    of_one_day = len(records) * 24
    assert notes == [
        f"{of_one_day:,} records came more than once and were counted once",
        "p1 logged nothing from 2026-09-08 05:00:00 to 2026-09-08 06:00:00 UTC",
        *(note for note in notes if note.startswith("the clock of p1 stepped back on 2026-09-21: 2026-09-21 13:01:00")),
        "etl: first owner until 2026-09-16, then second owner",
        f"billed {total:,} bytes, of {total:,} in the log",
    ]
    assert len(notes) == 5
    assert [line.removeprefix("note: ") for line in printed.splitlines() if line.startswith("note: ")] == notes


def bill(out: Path) -> dict[tuple[str, str], int]:
    (path,) = (out / "bill").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["owner"], row["kind"]): int(row["bytes"]) for row in csv.DictReader(file)}
