"""The limits that ``capacity`` finds, and the files that it writes about them."""

import csv
from pathlib import Path
from typing import Any

import pytest

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.pipeline.__main__ import main, parser
from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.commands.capacity import quotas_text
from tests.pipeline.support import record, write_log

WORDS = ["capacity", "--usage", "usage", "--out", "plan"]


@pytest.mark.parametrize(
    ("words", "shaping"), [([], Shaping.SAMPLED), (["--shaping", "paced"], Shaping.PACED)], ids=["default", "paced"]
)
def test_limits_keep_the_shaping_of_the_replay(words: list[str], shaping: Shaping) -> None:
    args = parser("capacity").parse_args([*WORDS, *words])
    suggested = [Suggestion("produce", "alice", "etl", 1_000, 5_000, 100, 2_000, "", "delay")]

    config = load_bytes(quotas_text(suggested, args).encode(), file="quotas.yaml").config
    assert config.shaping is shaping
    assert [rule.limits.get("producer_byte_rate") for rule in config.quotas] == [2_000.0]
    assert quotas_text(suggested, args, ["Broker 1 is full."]).count("# Broker 1 is full.\n") == 1
    assert "producer_byte_rate: 2000}  # produce: delay\n" in quotas_text(suggested, args)


def busy(client_id: str, *, broker: int = 1, burst: int = 10_000) -> list[dict[str, Any]]:
    """Return 40 minutes of a client with 10 kB/s, and with another rate for 20 seconds."""
    return [
        record(at_s=at, client_id=client_id, broker=broker, amount=burst if 600 <= at < 620 else 10_000, requests=5)
        for at in range(2_400)
    ]


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_limits_bound_delays_and_full_brokers_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # With 15 kB/s, the burst would be throttled for less than 5 % of the time, and delayed for more than 30 s.
    log = [*busy("even"), *busy("burst", burst=40_000), *busy("one", broker=2), *busy("two", broker=2)]
    usage, plan = write_log(tmp_path / "usage.jsonl", log), tmp_path / "plan"
    brokers = tmp_path / "capacities.csv"
    brokers.write_text("broker,produce,fetch\n2,16kB,1MB\n", encoding="utf-8")
    words = ["--usage", usage, "--out", plan, "--capacities", brokers, "--percentile", "95"]

    assert main(["capacity", *map(str, words)]) == 0

    warning, said, _ = capsys.readouterr().out.splitlines()
    (path,) = (plan / "suggestions").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        found = {row["client_id"]: row for row in csv.DictReader(file)}
    assert {name: (row["limit"], row["decided_by"]) for name, row in found.items() if name != "burst"} == {
        "even": ("12000", "percentile"),
        "one": ("12000", "percentile"),
        "two": ("12000", "percentile"),
    }
    assert found["burst"]["decided_by"] == "delay"
    assert 0 < int(found["burst"]["longest_delay_ms"]) <= 30_000
    assert warning == "Broker 2 (produce) cannot bear what its clients need: 20 kB/s, 1.25 times its capacity."
    assert said == f"4 limits for 4 entities (3 by percentile, 1 by delay): {plan}/quotas.yaml"
    assert f"# {warning}\n" in (plan / "quotas.yaml").read_text(encoding="utf-8")
    assert warning in (plan / "report.html").read_text(encoding="utf-8")
