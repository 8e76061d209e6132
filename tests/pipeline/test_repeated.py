"""A command that runs twice gives the same results, even with results in the directory of its log."""

import re
from pathlib import Path

import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.support import record, write_log

pytestmark = pytest.mark.pipeline


def contents(out: Path) -> dict[str, bytes]:
    """Return the contents of all files by path, without the random part of Spark's file names."""
    paths = [path for path in out.rglob("*") if path.is_file() and path.suffix != ".crc"]
    return {
        re.sub(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "", str(path.relative_to(out))): path.read_bytes()
        for path in paths
    }


@pytest.mark.usefixtures("spark")
def test_a_second_run_writes_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usage = tmp_path / "usage"
    log = [record(at_s=at, amount=at * 10_007 % 50_021) for at in range(90)]
    write_log(usage / "a.jsonl", log)
    (usage / "b.jsonl").write_text("bad\n", encoding="utf-8")
    (usage / "c.parquet").write_bytes(b"no parquet at all")
    runs = []

    for _ in range(2):
        assert main(["capacity", "--usage", str(usage), "--out", str(usage / "plan")]) == 0
        runs.append(contents(usage / "plan"))

    first, second = runs
    assert first.keys() == second.keys()
    assert [name for name, content in first.items() if second[name] != content] == []
    assert {"report.html", "quotas.yaml"} < first.keys()
    assert any(name.startswith("quarantine/part-") for name in first)
    assert f"{usage}/plan has results of a command and was not read" in capsys.readouterr().err
