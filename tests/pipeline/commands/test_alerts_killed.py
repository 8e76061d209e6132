"""A job that writes alerts to files is killed once. tests/end_to_end/test_alerts.py is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.test_alerts import (
    AT_ONCE_S,
    BASE_MS,
    BUCKETS,
    FILLED,
    LATE_S,
    LIMIT,
    WINDOW_S,
    FileReader,
    Job,
    Record,
    as_texts,
    expected,
    patiently,
    to_files,
)
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED, record

pytestmark = pytest.mark.pipeline


def used(seconds: range) -> list[Record]:
    """Return a record for each second and bucket. The windows are over, near and far below the limit."""
    return [
        record(
            start_ms=BASE_MS + second * 1_000,
            limit=LIMIT,
            amount=int(LIMIT * FILLED[(second // WINDOW_S + number) % len(FILLED)]),
            **bucket,
        )
        for second in seconds
        for number, bucket in enumerate(BUCKETS)
    ]


def test_after_a_kill_within_a_batch_each_alert_is_delivered_once(tmp_path: Path) -> None:
    send, reader = to_files(tmp_path / "usage"), FileReader(tmp_path / "alerts")
    settings = ("spark.sql.shuffle.partitions=1", "spark.sql.codegen.wholeStage=false", f"{JAVA_OPTIONS}={SHORT_LIVED}")
    small = [word for setting in settings for word in ("--conf", setting)]
    job = Job(tmp_path, "--usage", str(tmp_path / "usage"), "--out", str(tmp_path / "alerts"), *small)
    # A batch uses the watermark of the previous batch, so the second batch delivers the windows that the first one
    # closes.
    first, rest = used(range(60 + LATE_S)), used(range(60 + LATE_S, 140 + LATE_S))
    closing = record(start_ms=BASE_MS + 1_000_000, limit=LIMIT, amount=0, **BUCKETS[0])

    send(first)
    killed = job.start()
    patiently(lambda: job.numbers("offsets") == 1 or not killed.is_running, "plans a batch", poll_s=AT_ONCE_S)
    assert killed.is_running, killed.log_tail()
    killed.kill()
    assert (job.numbers("commits"), job.numbers("offsets")) == (0, 1)
    send([*rest, *first[:30], closing])
    resumed = job.start("--once")
    patiently(lambda: not resumed.is_running, "takes all that is there")

    assert resumed.exit_status == 0, resumed.log_tail()
    reader.read()
    assert as_texts(reader.seen) == as_texts(expected([*first, *rest]))
    assert {one["level"] for one in reader.seen} == {"over", "near"}
