"""The command ``alerts`` on files of the usage log."""

import json
from pathlib import Path

import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.support import START_MS, record, write_log

pytestmark = pytest.mark.kafka


@pytest.mark.usefixtures("spark")
def test_alerts_are_printed_and_written_in_order_each_record_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def used(at_s: float, amount: int, user: str = "alice") -> dict[str, object]:
        # 100 bytes a second allow 1,000 bytes in a window of ten seconds.
        return record(at_s=at_s, limit=100.0, amount=amount, user=user)

    log = [used(12, 1_001), used(3, 900), used(0, 1, "bob"), used(60, 1_001)]
    write_log(tmp_path / "usage" / "1.jsonl", log)
    write_log(tmp_path / "usage" / "2.jsonl", log[:2])
    (tmp_path / "usage" / "bad.jsonl").write_text("bad\n", encoding="utf-8")
    span = ["--until", "2026-09-07T00:01"]

    words = ["--usage", str(tmp_path / "usage"), "--out", str(tmp_path / "out"), "--window", "10s"]
    status = main(["alerts", *words, *span])

    said = capsys.readouterr()
    printed = [json.loads(line) for line in said.out.splitlines()]
    assert status == 0
    assert [((one["start_ms"] - START_MS) // 1_000, one["user"], one["level"], one["amount"]) for one in printed] == [
        (0, "alice", "near", 900),
        (10, "alice", "over", 1_001),
    ]
    assert "1 bad lines were ignored" in said.err
    assert "2 records came more than once" in said.err
    (written,) = (tmp_path / "out" / "alerts").glob("*.json")
    assert [json.loads(line)["amount"] for line in written.read_text(encoding="utf-8").splitlines()] == [900, 1_001]
