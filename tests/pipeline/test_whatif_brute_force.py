"""The command ``whatif`` equals a second implementation that has only lists and Kafka's own steps."""

import csv
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.brute_force import passed
from tests.pipeline.literal_replay import Demand, beside, covered_ms, parts
from tests.pipeline.support import record, write_log

pytestmark = pytest.mark.kafka

# Rules. The expected bucket and limit of each kind, user and client-id below were found by hand.
RULES = """
  - {user: alice, client-id: etl, producer_byte_rate: 20000, consumer_byte_rate: 30000}
  - {user: alice, producer_byte_rate: 25000}
  - {client-id: <default>, producer_byte_rate: 15000, consumer_byte_rate: 9000, shaping: paced}
"""
BUCKETS_OF: dict[tuple[str, str, str], tuple[str, str, float] | None] = {
    ("produce", "alice", "etl"): ("alice", "etl", 20_000.0),
    ("produce", "alice", "x"): ("alice", "", 25_000.0),
    ("produce", "alice", "y"): ("alice", "", 25_000.0),
    ("produce", "bob", "z"): ("", "z", 15_000.0),
    ("fetch", "alice", "etl"): ("alice", "etl", 30_000.0),
    ("fetch", "bob", "z"): ("", "z", 9_000.0),
    ("fetch", "carol", "z"): ("", "z", 9_000.0),
    ("request", "alice", "etl"): None,
}
Place = tuple[str, int, str, str, str]


def made_up_log() -> list[dict[str, Any]]:
    """Return ten minutes of two proxies. One proxy does not know the node id of its broker."""
    seeded = random.Random(5)  # noqa: S311  (the same log in each run)
    log = []
    for proxy, broker in (("p1", 1), ("p2", None)):
        for kind, user, client_id in BUCKETS_OF:
            mean, connections, at_ms = seeded.randint(4_000, 20_000), seeded.randint(1, 4), seeded.randint(0, 9_000)
            while at_ms < 600_000:
                interval_ms = 1_000 + seeded.choice((0, 0, 0, -1, 1))
                amount = seeded.randint(0, 2 * mean) + seeded.choice((0,) * 15 + (300_000,))
                names = {"proxy": proxy, "broker": broker, "kind": kind, "user": user, "client_id": client_id}
                numbers = {"amount": amount, "requests": seeded.randint(0, 45), "connections": connections}
                log.append(record(at_s=at_ms / 1_000, interval_ms=interval_ms, **names, **numbers))
                at_ms += interval_ms + seeded.choice((0,) * 12 + (1_000, 45_000))
    seeded.shuffle(log)
    return log


def by_brute_force(log: list[dict[str, Any]]) -> dict[Place, dict[str, float]]:
    """Return the forecast for each bucket, by ``brute_force``."""
    of_client: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for one in sorted(log, key=lambda one: (one["start_ms"], one["user"], one["client_id"])):
        of_client[one["proxy"], one["broker"] or -1, one["kind"], one["user"], one["client_id"]].append(one)
    of_bucket: dict[Place, list[tuple[dict[str, Any], Demand]]] = defaultdict(list)
    limits: dict[Place, float] = {}
    for (proxy, broker, kind, user, client_id), ones in of_client.items():
        bucket = BUCKETS_OF[kind, user, client_id]
        if bucket is not None:
            place = (proxy, broker, kind, *bucket[:2])
            limits[place] = bucket[2]
            columns = ("start_ms", "interval_ms", "amount", "requests")
            of_bucket[place] += zip(
                ones, beside([Demand(*(one[name] for name in columns)) for one in ones]), strict=True
            )
    return {
        place: sent(ones, limits[place], is_paced=not place[3], is_fetch=place[2] == "fetch")
        for place, ones in of_bucket.items()
    }


def sent(
    ones: list[tuple[dict[str, Any], Demand]], limit: float, *, is_paced: bool, is_fetch: bool
) -> dict[str, float]:
    """Return the forecast for the records of one bucket."""
    ones = sorted(ones, key=lambda one: (one[1].start_ms, one[0]["user"], one[0]["client_id"]))
    comes = [(at_ms, order, amount) for order, (_, demand) in enumerate(ones) for at_ms, amount in parts(demand)]
    found: dict[str, float] = defaultdict(int)
    busy = [(demand.start_ms, demand.start_ms + demand.interval_ms) for _, demand in ones]
    in_order = [(at_ms, amount) for at_ms, _, amount in sorted(comes, key=lambda part: part[:2])]
    for one in passed(in_order, limit, is_paced=is_paced, is_fetch=is_fetch):
        found["amount"] += one.amount
        if one.out_ms > one.came_ms:
            found["delayed_amount"] += one.amount
            found["longest_delay_ms"] = max(found["longest_delay_ms"], one.out_ms - one.came_ms)
        found["sent_ms"] = max(found["sent_ms"], one.out_ms)
        found["throttled_requests"] += one.wait_ms > 0
        found["throttle_time_ms"] += one.wait_ms
        busy.append((one.out_ms, one.out_ms + one.wait_ms))
    found["throttled_share"] = found["throttle_time_ms"] / covered_ms(busy)
    from_ms = min(demand.start_ms for _, demand in ones)
    until_ms = max(demand.start_ms + demand.interval_ms for _, demand in ones)
    ended_ms = max(until_ms, found.pop("sent_ms"))
    found["late_ms"] = ended_ms - until_ms
    found["achieved_rate"] = found["amount"] * 1_000 / (ended_ms - from_ms)
    return found


@pytest.mark.usefixtures("spark")
def test_the_command_equals_brute_force(tmp_path: Path) -> None:
    log = made_up_log()
    for number in range(3):
        write_log(tmp_path / "usage" / f"usage-{number}.jsonl", log[number::3])
    listener = '{name: clients, bind: "127.0.0.1:9092", upstream: "127.0.0.1:19092"}'
    (tmp_path / "quotas.yaml").write_text(f"listeners: [{listener}]\nquotas:{RULES}")
    out = tmp_path / "forecast"

    words = ["--usage", str(tmp_path / "usage"), "--quotas", str(tmp_path / "quotas.yaml"), "--out", str(out)]
    assert main(["whatif", *words]) == 0

    (path,) = (out / "entities").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    expected = by_brute_force(log)
    places = [
        (row["proxy"], int(row["broker"]), row["kind"], row["bucket_user"], row["bucket_client_id"]) for row in found
    ]
    assert sorted(places) == sorted(expected)
    for row, place in zip(found, places, strict=True):
        assert {name: float(row[name]) for name in expected[place]} == expected[place]
    assert all(one["throttle_time_ms"] > 0 for one in expected.values())
