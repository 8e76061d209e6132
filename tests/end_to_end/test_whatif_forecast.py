"""``whatif`` forecasts what limits do to five clients of a real Kafka.

The same schedule runs without limits, which gives the log for the forecast, and then with the limits.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import run, scratch
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.scheduled import (
    RECORD_BYTES,
    Aiokafka,
    Due,
    Java,
    Librdkafka,
    LibrdkafkaConsumer,
    Load,
    Passed,
    every,
    run_all,
    topics_of,
)

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(900)]

SECONDS: Final = 100
# At this time two clients wait, so less was sent than was due.
CUT_S: Final = 47
HOUR_MS: Final = 3_600_000
ROOT: Final = Path(__file__).parents[2]
# A forecast may differ from the result by this part.
TOLERANCE: Final = 0.1
# Bytes per second that mute each client for a fifth to a third of the time. The limits differ by shape, because windows
# let larger bursts pass than tokens.
LIMITS: Final[dict[str, dict[str, int]]] = {
    "sampled": {"steady": 400_000, "on-off": 340_000, "ramp": 400_000, "many": 300_000, "reader": 450_000},
    "paced": {"steady": 500_000, "on-off": 460_000, "ramp": 380_000, "many": 480_000, "reader": 800_000},
}

Record = dict[str, Any]


def loads(kafka: Kafka) -> list[Load]:
    """Five clients, each with its own library and pattern: 0.2 to 0.3 MB/s on average, and up to 6 MB at once."""
    seeded = random.Random(7)  # noqa: S311  (the same load again)
    few: dict[str, str | int] = {"linger.ms": 20, "acks": 1, "batch.size": 32_000}
    some = few | {"batch.size": 100_000}
    java = few | {"batch.size": 65_536, "enable.idempotence": "false"}
    bursts = [
        Due(second + seeded.random(), seeded.randint(50, 150)) for second in range(SECONDS) if seeded.random() < 0.15
    ]
    return [
        # 150 kB/s, and every 33 s 3 MB more.
        Load(
            "steady",
            "produce",
            Librdkafka(settings=few),
            sorted([*every(0.1, SECONDS, lambda _: 15), *(Due(at + 5.03, 300) for at in range(0, SECONDS - 5, 33))]),
        ),
        # 600 kB/s for 8 s of 20, in large batches.
        Load(
            "on-off",
            "produce",
            Aiokafka(batch_bytes=256_000),
            every(0.1, SECONDS, lambda at_s: 60 if at_s % 20 < 8 else 0),
        ),
        # From 100 to 500 kB/s.
        Load(
            "ramp",
            "produce",
            Java(kafka=kafka, settings=java),
            every(0.1, SECONDS, lambda at_s: 10 + 40 * at_s / SECONDS),
        ),
        # 50 kB/s, and now and then up to 1.5 MB, over four connections.
        Load(
            "many",
            "produce",
            Librdkafka(settings=some, connections=4),
            sorted([*every(0.2, SECONDS, lambda _: 5), *bursts]),
        ),
        # A consumer that reads 4 MB every 15 s.
        Load(
            "reader",
            "fetch",
            LibrdkafkaConsumer(fetch_bytes=205_000),
            [Due(at + 1.0, 400) for at in range(0, SECONDS - 1, 15)],
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the loads. ``cut_ms`` is the time ``CUT_S`` after its start."""

    records: list[Record]
    passed: Mapping[str, Passed]
    cut_ms: int

    def of(self, load: Load) -> list[Record]:
        return [one for one in self.records if (one["client_id"], one["kind"]) == (load.client_id, load.kind)]

    def bytes_by_cut(self, load: Load) -> int:
        # Intervals and loads begin with a second of the clock, within a millisecond.
        return sum(one["amount"] for one in self.of(load) if one["start_ms"] + one["interval_ms"] / 2 < self.cut_ms)


class Bed:
    """A Kafka, the loads, and the run without limits."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        self.kafka = kafka
        self.directory = directory
        self.loads = loads(kafka)
        self._topics = topics_of(kafka, self.loads)
        self.observed = self.run("observed", {"enforcement": "observe"})

    def run(self, name: str, settings: Mapping[str, object]) -> Run:
        usage = self.directory / name
        usage.mkdir()
        log = {"directory": str(usage), "interval": "1s", "proxy": "p1"}
        with Proxy({**settings, "usage_log": log}, self.kafka) as proxy:
            start, passed = run_all(self.loads, proxy.address(), self._topics)
            assert proxy.stop() == 0
        lines = [line for path in usage.glob("usage-p1-*.jsonl") for line in path.read_text().splitlines()]
        return Run(records=[json.loads(line) for line in lines], passed=passed, cut_ms=start.wall_ms + CUT_S * 1_000)


@pytest.fixture(scope="module")
def bed(kafka_4: Kafka) -> Iterator[Bed]:
    with scratch("whatif") as directory:
        yield Bed(kafka_4, directory)


@pytest.mark.parametrize("shaping", LIMITS)
def test_forecast_throttle_times_and_bytes_are_within_a_tenth(bed: Bed, shaping: str) -> None:
    limit = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}
    rules = [{"client-id": load.client_id, limit[load.kind]: LIMITS[shaping][load.client_id]} for load in bed.loads]
    forecasts = forecast(bed, {"quotas": rules, "shaping": shaping}, shaping)

    happened = bed.run(shaping, {"quotas": rules, "shaping": shaping, "enforcement": "respond"})

    found = {load.client_id: Compared.of(load, forecasts[load.client_id], bed.observed, happened) for load in bed.loads}
    sys.stdout.write(table(shaping, found))
    assert not {client_id: one for client_id, one in found.items() if not one.is_right()}
    for load in bed.loads:
        # Otherwise the forecast would prove nothing.
        assert 0.05 <= found[load.client_id].throttle_s[1] / SECONDS <= 0.5


def forecast(bed: Bed, quotas: Mapping[str, object], name: str) -> dict[str, dict[str, float]]:
    """Return the forecast of ``whatif`` for each client. ``bytes`` are those until ``CUT_S``.

    ``whatif`` adds up whole hours, so the log is shifted such that ``CUT_S`` is the end of an hour.
    """
    usage, file, out = (bed.directory / f"{name}-{what}" for what in ("usage", "quotas.yaml", "forecast"))
    usage.mkdir()
    moved_ms = -bed.observed.cut_ms % HOUR_MS
    moved = ({**one, "start_ms": one["start_ms"] + moved_ms} for one in bed.observed.records)
    (usage / "usage.jsonl").write_text("".join(json.dumps(one) + "\n" for one in moved))
    listener = {"name": "clients", "bind": "127.0.0.1:9092", "upstream": "127.0.0.1:19092"}
    file.write_text(yaml.safe_dump({"listeners": [listener], **quotas}))
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "kafka_quota_proxy.pipeline",
        "whatif",
        "--usage",
        usage,
        "--quotas",
        file,
    ]
    run([*command, "--out", out, "--conf", "spark.sql.shuffle.partitions=4"], timeout_s=300, cwd=ROOT)
    hour_ms = bed.observed.cut_ms + moved_ms
    found: dict[str, dict[str, float]] = {}
    for row in rows(out / "entities"):
        numbers = {name: float(row[name]) for name in ("throttle_time_ms", "achieved_rate")}
        found[row["bucket_client_id"]] = {**numbers, "bytes": 0.0}
    for row in (row for day in sorted((out / "hours").glob("day=*")) for row in rows(day)):
        if int(row["hour_ms"]) < hour_ms:
            found[row["bucket_client_id"]]["bytes"] += float(row["amount"])
    return found


def rows(directory: Path) -> list[dict[str, str]]:
    (path,) = directory.glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Pairs of forecast and result. ``bytes`` and ``due`` are the bytes sent, and due, until ``CUT_S``."""

    throttle_s: tuple[float, float]
    bytes: tuple[float, float]
    acknowledged: tuple[float, float]  # the bytes at the client, without protocol overhead
    rate: tuple[float, float]  # until the last byte
    due: int

    @classmethod
    def of(cls, load: Load, forecasts: Mapping[str, float], observed: Run, happened: Run) -> Compared:
        its = happened.of(load)
        passed = sum(at_s <= CUT_S for at_s in happened.passed[load.client_id])
        lasted_ms = max(one["start_ms"] + one["interval_ms"] for one in its) - min(one["start_ms"] for one in its)
        return cls(
            throttle_s=(forecasts["throttle_time_ms"] / 1_000, sum(one["throttle_time_ms"] for one in its) / 1_000),
            bytes=(forecasts["bytes"], happened.bytes_by_cut(load)),
            acknowledged=(forecasts["bytes"], RECORD_BYTES * passed),
            rate=(forecasts["achieved_rate"], sum(one["amount"] for one in its) * 1_000 / lasted_ms),
            due=observed.bytes_by_cut(load),
        )

    def is_right(self) -> bool:
        pairs = (self.throttle_s, self.bytes, self.acknowledged, self.rate)
        return all(abs(predicted - measured) <= TOLERANCE * measured for predicted, measured in pairs)


def table(shaping: str, found: Mapping[str, Compared]) -> str:
    """Return a table of forecast and measured throttle times."""
    columns = ("client", "throttled, s", f"MB in {CUT_S} s", "asked for", "acknowledged, MB", "kB/s")
    head = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"

    def cell(pair: tuple[float, float], unit: float) -> str:
        predicted, measured = pair
        return (
            f"{predicted / unit:.1f} / {measured / unit:.1f} = {predicted / measured if measured else float('nan'):.3f}"
        )

    lines = (
        f"| {name} | {cell(one.throttle_s, 1)} | {cell(one.bytes, 1e6)} | {one.due / 1e6:.1f} "
        f"| {cell(one.acknowledged, 1e6)} | {cell(one.rate, 1e3)} |\n"
        for name, one in found.items()
    )
    return f"\n{shaping}: forecast / happened\n\n{head}{''.join(lines)}"
