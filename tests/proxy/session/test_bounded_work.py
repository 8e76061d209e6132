"""No connection keeps the event loop or the table of buckets to itself, whatever its client sends."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.proxy.session.handlers.handler import Handler
from kafka_quota_proxy.proxy.session.handlers.produce import ProduceHandler
from tests.support.attack_world import Client, World
from tests.support.builds import interpreted_only
from tests.support.frames import fetch_request, produce_request


def _smallest(client_id: str, *, acks: int = 0) -> bytes:
    return produce_request(client_id=client_id, version=3, acks=acks, size_bytes=18 + len(client_id))


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the Produce requests that are decided on: the list has one number, or none before the first."""
    counts: list[int] = [0]

    def counting(method: Callable[..., object]) -> Callable[..., object]:
        def count(self: Handler, *args: object) -> object:
            counts[0] += 1
            return method(self, *args)

        return count

    monkeypatch.setattr(ProduceHandler, "repeat", counting(ProduceHandler.repeat))
    return counts


@interpreted_only
@pytest.mark.parametrize("names", [["a"], ["a", "b"], [f"name-{number}" for number in range(9_000)]])
def test_one_read_is_little_work(names: list[str], handled: list[int]) -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=1e6))
    client = Client(world)
    requests = [_smallest(names[number % len(names)]) for number in range(9_000)]
    most = []
    client.send(b"".join(requests))
    while len(client.passed) < len(requests):
        most.append(handled[0])
        handled[0] = 0
        world.run(0.001)

    assert max(most) <= 1_500
    assert len(most) <= 100


@interpreted_only
def test_one_relayed_read_is_little_work(handled: list[int]) -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=1e6))
    client, names = Client(world), ("a", "b")
    # A relay hands a read over by its first bytes, up to 448 at a time, as long as they are forwarded.
    piece = b"".join(produce_request(client_id=names[at % 2], version=3, acks=0, size_bytes=24) for at in range(16))
    for _ in range(512):
        client.send(piece)

    assert len(piece) == 448
    assert handled[0] <= 300

    world.now_ms += 5  # the first pieces have taken so long
    client.send(piece)
    assert handled[0] <= 300
    world.run(0.001)
    assert 300 < handled[0] <= 600


@interpreted_only
def test_little_is_gathered_while_the_broker_is_dialled(handled: list[int]) -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=1e6))
    client = Client(world)
    client.session.await_broker()
    client.send(b"".join(_smallest("ab"[number % 2]) for number in range(8_000)))
    world.run(5)
    assert handled[0] <= 300
    assert len(client.passed) <= 256

    client.connect()
    world.run(5)
    assert len(client.passed) == 8_000
    table = world.context.quotas.produce
    assert [bucket.holders for bucket in table] in ([1, 0], [0, 1])


def test_connection_holds_a_handful_of_buckets() -> None:
    world = World(QuotaRule(client_id="<default>", producer_byte_rate=1e6), max_buckets=1_000)
    world.answer_ms = 100_000
    greedy = [Client(world) for _ in range(5)]
    for number, client in enumerate(greedy):
        client.send(fetch_request(client_id=f"fetch-{number}"))
        for name in range(255):
            client.send(_smallest(f"{number}-{name}", acks=1))
    world.run(1)

    table = world.context.quotas.produce
    assert sum(bucket.holders > 0 for bucket in table) <= 5 * 10
    newcomers = [Client(world) for _ in range(20)]
    for number, client in enumerate(newcomers):
        client.send(_smallest(f"honest-{number}", acks=1))
    assert table.overflows == 0

    world.answer_ms = 1
    world.run(100_000)
    assert all(len(client.passed) == 256 for client in greedy)


def test_a_read_takes_a_hundredth_of_a_second() -> None:
    world = World(QuotaRule(client_id="etl", producer_byte_rate=1e6))
    reads = []
    for _ in range(20):  # the shortest of them, for others use the machine, too
        client = Client(world)
        client.session.await_broker()
        data = b"".join(_smallest("ab"[number % 2]) for number in range(9_000))
        begin = time.perf_counter()
        client.send(data)
        reads.append(time.perf_counter() - begin)

    assert min(reads) < 0.01
