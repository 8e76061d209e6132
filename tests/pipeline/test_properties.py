"""Properties of the commands on random usage logs.

A suggested limit is at least the percentile in the report. Results do not depend on files, formats and order of
records.
"""

import csv
import gzip
import random
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.support import frame, lines, record

NAMES: Final = (("alice", "etl"), ("alice", ""), ("", "reports"), ("ü,\"'", "a b"), ("bob", "<other>"), ("", ""))
PERCENTILES: Final = (90.0, 95.0, 99.0, 99.9)
SEEDS: Final = range(1, 8)

pytestmark = pytest.mark.pipeline  # each seed takes a minute

Record = dict[str, Any]


def chance_log(chance: random.Random) -> list[Record]:
    """Return a random log of 10 to 60 minutes, with steady and bursty buckets, gaps and short intervals."""
    log: list[Record] = []
    for user, client_id in NAMES:
        for broker in chance.sample((1, 2, None), chance.randint(1, 2)):
            kind = chance.choice(("produce", "fetch"))
            log += bucket_log(chance, user=user, client_id=client_id, broker=broker, kind=kind)
    return log


def bucket_log(chance: random.Random, **names: Any) -> Iterator[Record]:  # noqa: ANN401  (names of any column)
    base, bursts, gaps = chance.choice((900, 40_000, 3_000_000)), chance.choice((0, 0.01, 0.2)), chance.choice((0, 0.5))
    at_s = chance.randrange(100)
    for _ in range(chance.randint(10, 120)):
        interval_ms = chance.choice((1_000, 1_000, 1_000, 200, 57))
        rate = base * chance.lognormvariate(0, 0.5) * (8 if chance.random() < bursts else 1)
        yield record(
            at_s=at_s, interval_ms=interval_ms, amount=int(rate * interval_ms / 1_000), requests=chance.randint(1, 40),
            connections=chance.choice((None, 1, 5)), throttled_requests=chance.choice((0, 0, 1)),
            proxy=f"p{names['broker']}", **names,
        )  # fmt: skip
        at_s += 1 if chance.random() >= gaps else chance.randint(2, 60)


def write_in_order(directory: Path, log: list[Record]) -> None:
    directory.mkdir()
    (directory / "usage.jsonl").write_text(lines(log), encoding="utf-8")


def write_in_disorder(spark: SparkSession, directory: Path, log: list[Record], chance: random.Random) -> None:
    """Write the records at random into files of all formats, some of them twice."""
    (directory / "deep").mkdir(parents=True)
    parts: list[list[Record]] = [[] for _ in range(5)]
    for one in chance.sample(log, len(log)):
        chance.choice(parts).append(one)
    for number, part in enumerate(parts[:3]):
        (directory / f"{number}.jsonl").write_text(lines(part), encoding="utf-8")
    (directory / "deep" / "3.json.gz").write_bytes(gzip.compress(lines(parts[3]).encode()))
    frame(spark, parts[4]).repartition(3).write.parquet(str(directory / "deep" / "4"))
    (directory / "again.jsonl").write_text(lines(parts[0][:50]), encoding="utf-8")


def oracle(log: list[Record], percentile: float) -> dict[tuple[str, str, str], int]:
    """Return the percentile of each entity's rates on its busiest broker, computed in plain Python."""
    rates: dict[tuple[Any, ...], list[int]] = {}
    for one in log:
        bucket = (one["kind"], one["user"], one["client_id"], one["proxy"], one["broker"])
        rates.setdefault(bucket, []).append(one["amount"] * 1_000 // max(100, one["interval_ms"]))
    found: dict[tuple[str, str, str], int] = {}
    for bucket, values in rates.items():
        at = ceil(len(values) * percentile / 100 - 1e-9) - 1
        entity = bucket[:3]
        found[entity] = max(found.get(entity, 0), sorted(values)[at])
    return found


def table(out: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a table that was written as CSV."""
    (path,) = (out / name).glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def results(out: Path) -> dict[str, str]:
    """Return the text files that a command wrote, without the tables about its input files."""
    kept = [path for path in sorted(out.rglob("*")) if path.suffix in (".csv", ".yaml", ".txt") and path.is_file()]
    return {str(path.relative_to(out).parent / path.suffix): path.read_text(encoding="utf-8") for path in kept}


@pytest.mark.parametrize("seed", SEEDS)
def test_limits_throttle_as_forecast_for_any_log(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  (the same run again)
    log, percentile = chance_log(chance), chance.choice(PERCENTILES)
    write_in_order(tmp_path / "order", log)
    write_in_disorder(spark, tmp_path / "disorder", log, chance)
    found, divided = {}, {"order": ("128m", "1"), "disorder": ("30k", "7")}

    for name, (block, partitions) in divided.items():
        usage, plan, forecast = (str(tmp_path / part) for part in (name, f"{name}-plan", f"{name}-forecast"))
        settings = {"spark.sql.files.maxPartitionBytes": block, "spark.sql.shuffle.partitions": partitions}
        before = {key: str(spark.conf.get(key)) for key in settings}
        try:
            for key, value in settings.items():
                spark.conf.set(key, value)
            assert main(["capacity", "--usage", usage, "--out", plan, "--percentile", f"{percentile:g}"]) == 0
            assert main(["whatif", "--usage", usage, "--quotas", f"{plan}/quotas.yaml", "--out", forecast]) == 0
        finally:
            for key, value in before.items():
                spark.conf.set(key, value)
        found[name] = results(Path(plan)) | results(Path(forecast))

    truth = oracle(log, percentile)
    suggested = table(tmp_path / "order-plan", "suggestions")
    assert {(row["kind"], row["user"], row["client_id"]) for row in suggested} == set(truth)
    limits = 0
    for row in suggested:
        true = truth[row["kind"], row["user"], row["client_id"]]
        assert true <= int(row["percentile"]) <= 1.011 * true + 1
        if row["limit"]:
            limits += 1
            assert int(row["limit"]) >= int(row["percentile"])
    assert limits > 3
    outcome = table(tmp_path / "order-forecast", "entities")
    assert len(outcome) >= limits
    for row in outcome:
        assert float(row["throttled_share"]) <= 1 - percentile / 100 + 1e-12
    assert found["order"] == found["disorder"]
