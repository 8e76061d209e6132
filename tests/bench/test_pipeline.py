"""The verdict on the pipeline's measurements finds too much growth, and different results of engines."""

from pathlib import Path
from typing import Any

import pytest

from bench import pipeline
from bench.pipeline import COMMANDS, START_UP_ROWS, Log, faults
from bench.spark_run import Run


def log(rows: int, **given: Any) -> Log:  # noqa: ANN401  (fields of a Run)
    """Return a log on which every command takes 10 s plus 1 s for each 10^5 records."""
    taken: dict[str, Any] = {
        "seconds": 10 + rows / 10**5,
        "jvm_bytes": 10**9,
        "python_bytes": 10**8,
        "spilled_bytes": 10 * rows,
    }
    taken |= {"core_seconds": 3.6e-6 * rows, "shuffled_bytes": 5 * rows}
    return Log(
        rows=rows,
        usage_bytes=10 * rows,
        log_bytes=20 * rows,
        lake_bytes=12 * rows,
        runs=dict.fromkeys(COMMANDS, Run(**(taken | given))),
    )


SMALL = [log(START_UP_ROWS), log(10**6)]
ENGINES = {"Spark": {"found": {"p1": [3, 2, 1]}}, "DuckDB": {"found": {"p1": [3, 2, 1]}}}


def test_proportional_growth_is_accepted() -> None:
    assert faults([*SMALL, log(10**7), log(10**8)], ENGINES) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (log(10**7, seconds=125), "capacity: 1.15 times as long for each of 10,000,000 records"),
        (log(10**7, jvm_bytes=4 * 2**30), "capacity on 10,000,000 records: the JVM had 4.29 GB; 3.22 GB is the most"),
        (log(10**7, python_bytes=2 * 2**30), "capacity on 10,000,000 records: Python had 2.15 GB"),
        (log(10**7, spilled_bytes=17 * 10**8), "capacity on 10,000,000 records: Spark spilled 1.70 GB; 0.80 GB"),
    ],
)
def test_faster_growth_is_a_fault(more: Log, said: str) -> None:
    found = faults([*SMALL, more], {})

    assert len(found) == len(COMMANDS)
    assert any(fault.startswith(said) for fault in found)


def test_ingest_may_spill_in_proportion_to_the_log_that_it_reads() -> None:
    found = faults([*SMALL, log(10**7, spilled_bytes=9 * 10**8)], {})

    assert len(found) == len(COMMANDS) - 1
    assert not any(fault.startswith("ingest") for fault in found)


def test_run_with_different_results_of_engines_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    others = ENGINES | {"pandas": {"found": {"p1": [3, 2, 2]}}}
    taken = {name: one | {"start_s": 1.0, "query_s": 1.0} for name, one in others.items()}
    monkeypatch.setattr(pipeline, "measured", lambda rows, _: log(rows))
    monkeypatch.setattr(pipeline, "aggregated", lambda _: taken)
    monkeypatch.setattr(pipeline, "version", lambda _: "1")
    monkeypatch.setattr(pipeline, "PAGE", tmp_path / "PIPELINE.md")
    monkeypatch.setattr("sys.argv", ["bench.pipeline", "--rows", "1e7"])

    assert pipeline.main() == 1

    assert capsys.readouterr().err == "Spark, DuckDB, pandas: the results differ\n"
    assert "The results differ." in (tmp_path / "PIPELINE.md").read_text(encoding="utf-8")


def test_a_large_day_is_planned_from_the_dearest_of_two_logs() -> None:
    dear = log(10**8, core_seconds=7.2e-6 * 10**8)

    text = pipeline.page([*SMALL, log(10**7), dear], {})

    # 7.2 µs for each of 10^10 records are 20 core hours, and 2 executors of 4 cores do 32 in 4 hours.
    assert "| ingest | 3.60 µs and 7.20 µs | 20 | 2 | 50 GB |" in text
    assert "So a day takes 200 GB and 120 GB." in text
