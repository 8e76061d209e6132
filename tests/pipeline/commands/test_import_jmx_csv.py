"""The command, from files of JmxTool to records."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from kafka_quota_proxy.pipeline.commands import import_jmx_csv

START_MS = 1_788_739_200_000
MBEAN = "kafka.server:type=Produce,user=alice,client-id=etl"


def output(*rates: float, every_s: float = 10, throttle_time: str = "NaN") -> str:
    """Return what JmxTool prints with ``--report-format csv``."""
    return "".join(
        f'time,"{START_MS + round(at * every_s * 1_000)}"\n'
        f'{MBEAN}:byte-rate,"{rate}"\n{MBEAN}:throttle-time,"{throttle_time}"\n'
        for at, rate in enumerate(rates)
    )


def imported(tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    out = tmp_path / "usage"
    assert main(["import", "jmx-csv", *words, "--out", str(out)]) == 0
    rows: list[dict[str, Any]] = pq.read_table(out).to_pylist()
    return rows


def test_each_file_is_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first := tmp_path / "east.csv").write_text(output(1_000.0, 2_000.0, throttle_time="110"))
    (second := tmp_path / "west.csv.gz").write_bytes(gzip.compress(output(500.0, 0.0).encode()))

    records = imported(tmp_path, str(first), str(second), "--broker", f"{second}=1")

    found = [(one["proxy"], one["broker"], one["start_ms"] - START_MS, one["amount"]) for one in records]
    assert found == [("east.csv", 2, -10_000, 10_000), ("east.csv", 2, 0, 20_000), ("west.csv.gz", 1, -10_000, 5_000)]
    # Readings are 10 s apart, and Kafka's windows are 11 s long.
    assert [(one["throttle_time_ms"], one["resolution_ms"]) for one in records] == [(100, 11_000)] * 2 + [(0, 11_000)]
    assert "broker 2 is east.csv (a number in the order of names" in capsys.readouterr().err


def test_a_large_file_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path := tmp_path / "broker.csv").write_text(output(*[1_000.0] * 50))
    whole = imported(tmp_path, str(path))

    monkeypatch.setattr(import_jmx_csv, "_SAMPLES_AT_ONCE", 2)
    in_batches = imported(tmp_path, str(path))

    assert in_batches == whole
    assert len(whole) == 50


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ('time,"1788739200000"\njava.lang:type=Threading:ThreadCount,"5"\n', 1, "has no client metrics of Kafka"),
        (output(5.0), 1, "has only one reading"),
        (output(0.0, 0.0), 1, "none of the clients sent or fetched anything"),
        (output(1.0, 2.0) + "at java.lang.Thread.run\n", 2, "broker.csv:7: is no line of JmxTool"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(
    text: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "broker.csv").write_text(text)

    assert main(["import", "jmx-csv", str(path), "--out", str(tmp_path / "usage")]) == status

    assert said in capsys.readouterr().err
    assert not (tmp_path / "usage").exists()


def test_a_broker_of_another_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "broker.csv").write_text(output(1.0, 2.0))

    assert main(["import", "jmx-csv", str(path), "--broker", "borker.csv=1", "--out", str(tmp_path / "usage")]) == 2

    assert "--broker borker.csv: is none of the files" in capsys.readouterr().err


def test_two_files_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / name / "broker.csv" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(output(1.0, 2.0))

    assert main(["import", "jmx-csv", *map(str, paths), "--out", str(tmp_path / "usage")]) == 2

    assert "broker.csv: two files have this name" in capsys.readouterr().err
