"""Spark and pandas compute the same aggregate, so that their times can be compared."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.pipeline import aggregated
from tests.pipeline.support import record


@pytest.mark.pipeline
def test_spark_and_pandas_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(1)
    log = [
        record(at_s=at, kind=kind, broker=broker, amount=int(chance.lognormal(12, 1)), interval_ms=interval_ms)
        for at in range(300)
        for kind, broker, interval_ms in (("produce", 1, 1_000), ("fetch", 1, 1_000), ("fetch", 2, 50))
    ]
    (tmp_path / "days").mkdir()
    pd.DataFrame(log).to_parquet(tmp_path / "days" / "a.parquet")
    monkeypatch.setattr("bench.pipeline.ENGINES", ("Spark", "pandas"))

    spark, pandas = (one["found"] for one in aggregated(tmp_path).values())

    assert len(spark) == 3
    assert spark == pandas
