"""Compares the request time that a broker charges with the proxy's estimate, for the same requests.

``python -m bench.request_time [--part costs|replicated|rates] [--rounds 5] [--seconds 1] [--only NAME,NAME]`` starts a
broker (or three), and prints the tables of ``bench/REQUEST_TIME.md``. Only ``rates`` uses a proxy.

The broker has a metric of each client-id's request-time rate. Each load has its own client-id in each round, and there
are more windows than a run has seconds, so the rate times the windows is a sum.
"""

import argparse
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import mean, median
from typing import Final

from bench.request_loads import Load, Seen, Sender
from kafka_quota_proxy.proxy.fair_queue.request_kind import may_wait
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.broker_quotas import DEFAULT, BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import (
    FETCH,
    FETCH_VERSION,
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    RawClient,
    fetch_body,
    produce_body,
    record_batch,
    string,
)
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.request_rates import (
    LOADS,
    PERCENT,
    SUM_WINDOWS,
    broker_ns,
    limited_alike,
    measured_scale,
)
from tests.end_to_end.support.tools import jmx

_LIST_OFFSETS: Final = 2
_OFFSET_COMMIT: Final = 8
_FIND_COORDINATOR: Final = 10
_JOIN_GROUP: Final = 11
_HEARTBEAT: Final = 12
_SYNC_GROUP: Final = 14
_API_VERSIONS: Final = 18
_MIB: Final = 1_048_576
_OUT_OF_REACH: Final = 100_000.0
_WARM: Final = "warm"
_WARM_UP_S: Final = 2.0
_MANY_TOPICS: Final = 200


def _array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def _produce(name: str, topic: str, size_bytes: int, *, acks: int = 1) -> Load:
    return Load(
        name=name,
        api_key=PRODUCE,
        api_version=PRODUCE_VERSION,
        body=produce_body(topic, record_batch([bytes(size_bytes)]), acks=acks),
        may_wait=may_wait(PRODUCE, acks=acks),
    )


def _fetch(name: str, topic: str, *, max_wait_ms: int = 500) -> Load:
    body = fetch_body(topic, offset=0, max_bytes=2 * _MIB, max_wait_ms=max_wait_ms)
    return _other(name, FETCH, FETCH_VERSION, body)


def _other(name: str, api_key: int, api_version: int, body: bytes) -> Load:
    return Load(name=name, api_key=api_key, api_version=api_version, body=body, may_wait=may_wait(api_key))


def _metadata(name: str, topics: Sequence[str]) -> Load:
    return _other(name, METADATA, 5, _array([string(topic) for topic in topics]) + b"\0")


def _join_body(group: str, member_id: str) -> bytes:
    protocols = _array([string("range") + struct.pack(">i", 4) + b"meta"])
    return string(group) + struct.pack(">ii", 30_000, 60_000) + string(member_id) + string("consumer") + protocols


def _group_body(group: str, generation: int, member_id: str) -> bytes:
    return string(group) + struct.pack(">i", generation) + string(member_id)


def _join(client: RawClient, group: str) -> tuple[int, str]:
    """Join a group as its only member, and return generation and member id."""
    find = string(group) + b"\0"
    while struct.unpack_from(">h", client.ask(_FIND_COORDINATOR, 1, find).body, 4)[0]:
        time.sleep(0.1)
    while struct.unpack_from(">h", (joined := client.ask(_JOIN_GROUP, 3, _join_body(group, "")).body), 4)[0]:
        time.sleep(0.1)
    (generation,) = struct.unpack_from(">i", joined, 6)
    at = 10
    for _ in range(2):  # skips the protocol's name and the leader
        at += 2 + struct.unpack_from(">h", joined, at)[0]
    member_id = joined[at + 2 : at + 2 + struct.unpack_from(">h", joined, at)[0]].decode()
    assignment = _array([string(member_id) + struct.pack(">i", 4) + b"part"])
    client.ask(_SYNC_GROUP, 1, _group_body(group, generation, member_id) + assignment)
    return generation, member_id


def _loads(kafka: Kafka, client: RawClient) -> list[Load]:
    """Create topics and groups, and return the loads that use them."""
    small, middle, big, sink, empty = (create_topic(kafka) for _ in range(5))
    client.produce(small, record_batch([bytes(100)]))
    client.produce(middle, record_batch([bytes(65_000)]))
    client.produce(big, record_batch([bytes(1_000_000)]))
    many = create_topic(kafka, partitions=_MANY_TOPICS)
    generation, member_id = _join(client, "beating")
    _, joining_id = _join(client, "joining")
    partition = [string(small) + _array([struct.pack(">iq", 0, -1)])]
    commit = string("committing") + struct.pack(">i", -1) + string("") + struct.pack(">q", -1)
    commit += _array([string(small) + _array([struct.pack(">iq", 0, 1) + string("")])])
    one = [
        _other("ApiVersions", _API_VERSIONS, 0, b""),
        _produce("Produce 100 B", sink, 100),
        _produce("Produce 16 kB", sink, 16_000),
        _produce("Produce 1 MB", sink, 1_000_000),
        _fetch("Fetch 100 B", small),
        _fetch("Fetch 65 kB", middle),
        _fetch("Fetch 1 MB", big),
        _metadata("Metadata", [small]),
        _metadata(f"Metadata of {_MANY_TOPICS} partitions", [many]),
        _other("ListOffsets", _LIST_OFFSETS, 3, struct.pack(">ib", -1, 0) + _array(partition)),
        _other("FindCoordinator", _FIND_COORDINATOR, 1, string("beating") + b"\0"),
        _other("Heartbeat", _HEARTBEAT, 1, _group_body("beating", generation, member_id)),
        _other("OffsetCommit", _OFFSET_COMMIT, 3, commit),
        _other("JoinGroup", _JOIN_GROUP, 3, _join_body("joining", joining_id)),
        _fetch("Fetch that waits 20 ms", empty, max_wait_ms=20),
        _fetch("Fetch that waits 100 ms", empty, max_wait_ms=100),
    ]
    named = {load.name: load for load in one}

    def more(name: str, how: str, *, connections: int = 1, depth: int = 1, pause_ms: float = 0) -> Load:
        load = named[name]
        return replace(load, name=f"{name}, {how}", connections=connections, depth=depth, pause_ms=pause_ms)

    return [
        *one,
        more("Produce 16 kB", "each 2 ms", pause_ms=2),
        more("Fetch 65 kB", "each 2 ms", pause_ms=2),
        more("Metadata", "each 2 ms", pause_ms=2),
        more("Metadata", "each 20 ms", pause_ms=20),
        more("Produce 100 B", "4 connections", connections=4),
        more("Produce 100 B", "16 connections", connections=16),
        more("Produce 16 kB", "8 connections", connections=8),
        more("Fetch 65 kB", "4 connections", connections=4),
        more("Fetch 1 MB", "4 connections", connections=4),
        more("Metadata", "4 connections", connections=4),
        more("Metadata", "16 connections", connections=16),
        more("Produce 16 kB", "5 sent ahead", depth=5),
        more("Metadata", "5 sent ahead", depth=5),
    ]


@contextmanager
def _measured(kafka: Kafka) -> Iterator[RawClient]:
    """Set quotas that are too high to throttle, so that the broker measures the request time of all clients."""
    with BrokerQuotas(kafka) as quotas:
        quotas.replace({Entity(None, DEFAULT): {"request_percentage": _OUT_OF_REACH}})
        client = RawClient(kafka.broker.listeners[DIRECT].port)
        yield client
        client.close()


def _table(kafka: Kafka, loads: Sequence[Load], *, rounds: int, seconds: float) -> None:
    """Send all loads in turn, round by round, and print a table row for each."""
    sender = Sender(kafka.broker.listeners[DIRECT].port)
    seen: dict[tuple[int, int], Seen] = {}
    for load in loads:
        sender.send(load, _WARM, seconds=_WARM_UP_S)
    for number in range(rounds):
        for index, load in enumerate(loads):
            sender.send(load, _WARM, seconds=0.1)
            seen[index, number] = sender.send(load, f"load-{index}-{number}", seconds=seconds)
    charged_ns = broker_ns(kafka)
    print("| load | requests | from outside, µs | broker, µs | charged, µs | charged / broker |")
    print("|---|--:|--:|--:|--:|--:|")
    for index, load in enumerate(loads):
        taken = [seen[index, number] for number in range(rounds)]
        count = sum(len(one.elapsed_ns) for one in taken)
        outside = median(mean(one.elapsed_ns) for one in taken) / 1_000
        kafkas = [charged_ns[f"load-{index}-{n}"] / len(one.elapsed_ns) / 1_000 for n, one in enumerate(taken)]
        ours = [mean(one.charged_ns) / 1_000 for one in taken]
        ratios = sorted(our / their for our, their in zip(ours, kafkas, strict=True))
        cells = f"{outside:,.0f} | {median(kafkas):,.1f} | {median(ours):,.1f}"
        print(f"| {load.name} | {count:,} | {cells} | {median(ratios):.2f} [{ratios[0]:.2f}–{ratios[-1]:.2f}] |")


def costs(*, rounds: int, seconds: float, only: Sequence[str]) -> None:
    """Measure the loads that need one broker."""
    with Kafka(KAFKA_4, jmx=True, config={"quota.window.num": SUM_WINDOWS}) as kafka, _measured(kafka) as client:
        loads = [load for load in _loads(kafka, client) if not only or load.name in only]
        _table(kafka, loads, rounds=rounds, seconds=seconds)
        _print_exempt(kafka, client)


def _print_exempt(kafka: Kafka, client: RawClient) -> None:
    """Send requests with acks=0, and print what the broker charges for them."""
    topic = create_topic(kafka)
    sender = RawClient(kafka.broker.listeners[DIRECT].port, client_id="unanswered")
    body = produce_body(topic, record_batch([bytes(100)]), acks=0)
    for _ in range(100):
        sender.send(PRODUCE, PRODUCE_VERSION, body)
    time.sleep(1)
    charged_us = broker_ns(kafka).get("unanswered", 0) / 1_000
    sender.close()
    exempt = jmx(kafka, "kafka.server:type=Request", "exempt-request-time")
    print(f"\n100 Produce requests with acks=0: {charged_us:.1f} µs charged; exempt-request-time {exempt}")


def replicated(*, rounds: int, seconds: float, only: Sequence[str]) -> None:
    """Measure the loads that wait for followers. The leader of three brokers charges for them."""
    config = {"quota.window.num": SUM_WINDOWS}
    with Kafka(KAFKA_4, nodes=3, jmx=True, config=config) as kafka, _measured(kafka):
        topic = create_topic(kafka, replicas=[1, 2, 3])
        every = [
            _produce("Produce 100 B, acks=1", topic, 100),
            _produce("Produce 100 B, acks=all", topic, 100, acks=-1),
            _produce("Produce 16 kB, acks=all", topic, 16_000, acks=-1),
            _produce("Produce 1 MB, acks=all", topic, 1_000_000, acks=-1),
        ]
        loads = [load for load in every if not only or load.name in only]
        _table(kafka, loads, rounds=rounds, seconds=seconds)


def rates(*, rounds: int, seconds: float, only: Sequence[str]) -> None:
    """Compare the requests per second of one client under the same quota at a broker and a calibrated proxy."""
    scale = measured_scale()
    print(f"request_time_scale: {scale:.2f}\n")
    with limited_alike(scale) as ask:
        print(f"| load, {PERCENT} % | broker's quota, requests/s | ours, requests/s | ours / broker's |")
        print("|---|--:|--:|--:|")
        for load in LOADS:
            if not only or load in only:
                print(f"| {load} | {ask(load, rounds, seconds, PERCENT)} |", flush=True)


_PARTS: Final = {"costs": costs, "replicated": replicated, "rates": rates}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.request_time", description=__doc__)
    parser.add_argument("--part", choices=_PARTS, help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="how often each load is sent")
    parser.add_argument("--seconds", type=float, default=1, help="how long each time; rates: twenty times that")
    parser.add_argument("--only", help="names of loads, with commas")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else []
    for part in [options.part] if options.part else _PARTS:
        seconds = options.seconds * (20 if part == "rates" else 1)
        print(f"\n### {part}\n", flush=True)
        _PARTS[part](rounds=options.rounds, seconds=seconds, only=only)


if __name__ == "__main__":
    main()
