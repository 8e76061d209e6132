"""Tests that what a client is told to wait is compared with what it owes, and kept; and who notices nothing of it."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.brokers.log import Batch, Log
from tests.simulation.checks.quiet_clients import QuietClients
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import BROKER, FakeEnd, StandIn, found
from tests.simulation.checks.throttle_amounts import ThrottleAmounts
from tests.simulation.checks.throttle_times import ThrottleTimes
from tests.simulation.checks.usable import Usable
from tests.simulation.clients.consumer import Consumer
from tests.simulation.ledger import Exchange
from tests.simulation.wire import administration, records, transfer
from tests.simulation.wire.transfer import FetchedPartition, FetchedTopic

RATE = 10_000
RULES = [{"client-id": "etl", "producer_byte_rate": RATE, "consumer_byte_rate": RATE}]

# -- how long --

BYTES = 50_000  # of each request, worth 5 s
# One of the five seconds is free: an idle client has saved up one, and two windows are one long at least.
PACED: Mapping[str, Any] = {"shaping": "paced"}
SAMPLED: Mapping[str, Any] = {"window_num": 2}


def produce(world: StandIn, throttle_ms: int, connection: int = 1) -> None:
    world.exchange(size=BYTES + 4, throttle_ms=throttle_ms, connection=connection)


@pytest.mark.parametrize(
    ("settings", "throttle_ms", "text"),
    [
        (PACED, 4_000, None),
        (PACED, 3_990, "owes 3999 ms or more"),
        (PACED, 4_010, "owes 4000 ms at most"),
        (SAMPLED, 4_000, None),
        (SAMPLED, 3_990, "owes 3999 ms or more"),
        (SAMPLED, 4_010, "owes 4001 ms at most"),
        ({**PACED, "max_throttle_ms": 500}, 500, None),
    ],
)
def test_less_or_more_than_the_bucket_owes_is_found(
    settings: Mapping[str, Any], throttle_ms: int, text: str | None
) -> None:
    world = StandIn(ThrottleAmounts, RULES, **settings)
    with found(text) if text else nullcontext():
        produce(world, throttle_ms)


def test_the_debt_of_all_connections_counts() -> None:
    world = StandIn(ThrottleAmounts, RULES, **PACED)
    produce(world, 4_000)
    with found("owes 8998 ms or more"):
        produce(world, 4_000, connection=2)


def test_windows_whose_charges_are_not_certain_have_wide_bounds() -> None:
    world = StandIn(ThrottleAmounts, RULES, **SAMPLED)
    world.forward(world.send(connection=2))
    produce(world, 3_000)
    with found("owes 6998 ms or more"):
        produce(world, 4, connection=3)


# -- whether it is kept, and has a reason --

RULE: Mapping[str, object] = {"client-id": "etl", "producer_byte_rate": "10KiB"}


def timed(rule: Mapping[str, object] = RULE) -> StandIn:
    return StandIn(ThrottleTimes, [rule], max_throttle_ms=3_000)


def told(world: StandIn, throttle_ms: int, *, by_broker_ms: int = 0) -> Exchange:
    """Send a Produce, and answer that the client should wait."""
    exchange = world.send()
    world.forward(exchange)
    world.answer(exchange, frame=transfer.produce.response(exchange.correlation_id, 7, [], throttle_ms=by_broker_ms))
    told = transfer.produce.response(exchange.correlation_id, 7, [], throttle_ms=throttle_ms)
    world.give(exchange, told, throttle_ms=throttle_ms)
    return exchange


@pytest.mark.parametrize(("waits_ms", "is_kept"), [(999, True), (900, False)])
def test_a_wait_that_is_not_kept_is_found(waits_ms: float, is_kept: bool) -> None:
    world = timed()
    told(world, 1_000)
    world.exchange(connection=2)
    world.wait(waits_ms)
    with nullcontext() if is_kept else found("ms too early"):
        told(world, 0)


def test_a_request_that_passes_behind_the_response_is_found() -> None:
    world = timed()
    first, second = world.send(), world.send()
    world.forward(first)
    frame = world.answer(first)[:-4] + (500).to_bytes(4)
    world.ledger.passed(first.correlation_id, len(frame))
    world.forward(second)
    with found("ms too early"):
        world.ledger.received(first, frame, throttle_ms=500)


def test_a_bound_of_before_holds_for_requests_of_before_however_often_rules_change() -> None:
    world = timed()
    with found("3000 ms is the most"):
        told(world, 3_001)
    world = timed()
    world.settings = Settings(max_throttle_ms=500)
    for _ in range(3):
        world.rules_changed([RULE])
    told(world, 3_000)
    world.wait(3_000)
    with found("500 ms is the most"):
        told(world, 501)


@pytest.mark.parametrize(
    ("rule", "throttle_ms", "by_broker_ms", "text"),
    [
        (RULE, -1, 0, "to wait for -1 ms"),
        ({**RULE, "enforcement": "observe"}, 10, 0, "has no limit"),
        ({"client-id": "web", "producer_byte_rate": 1}, 10, 0, "has no limit"),
        ({}, 4_000, 5_000, "the broker has said 5000 ms"),
    ],
)
def test_a_wait_without_a_reason_is_found(
    rule: Mapping[str, object], throttle_ms: int, by_broker_ms: int, text: str
) -> None:
    world = timed(rule)
    told(world, by_broker_ms, by_broker_ms=by_broker_ms)
    world.wait(6_000)
    with found(text):
        told(world, throttle_ms, by_broker_ms=by_broker_ms)


@pytest.mark.parametrize(("error_code", "goes_on"), [(89, True), (0, False)])
def test_only_a_change_of_quotas_that_came_too_soon_mutes_nobody(error_code: int, goes_on: bool) -> None:
    world = timed({"client-id": "etl", "request_rate": 2})
    change = world.send(49, api_version=0)
    results = [administration.AlteredEntity(entity=(), error_code=error_code)]
    frame = administration.alter_client_quotas.response(change.correlation_id, 0, results, throttle_ms=900)
    world.give(change, frame, throttle_ms=900)
    next_one = world.send()
    with nullcontext() if goes_on else found("too early"):
        world.forward(next_one)


@pytest.mark.parametrize("held_ms", [0, 1_000])
def test_a_request_that_overtakes_a_held_response_is_found(held_ms: float) -> None:
    world = timed()
    first, end = world.send(), FakeEnd(received_bytes=1_000)
    end.peer.written_bytes = 60
    world.begin(first, end=end)
    frame = world.answer(first)
    world.begin(world.send(3), end=end)
    world.wait(held_ms)
    with found(r"while the response to .* is held back") if held_ms else nullcontext():
        world.give(first, frame)


# -- who is below the quota --

LITTLE, MUCH = 1_000, 60_000  # half of the ten seconds in the shortest window, or of the one in a burst, and more
BOTH = pytest.mark.parametrize("shaping", ["paced", "sampled"])


def quiet(shaping: str = "sampled") -> StandIn:
    world = StandIn(QuietClients, RULES, shaping=shaping)
    world.wait(10_000)
    for connection in range(5):
        world.exchange(18, connection=connection)  # so that the broker is dialled
    return world


def ask(world: StandIn, connection: int = 1) -> Exchange:
    return world.send(1, api_version=11, connection=connection)


def fetch(world: StandIn, size: int, *, throttle_ms: int = 0, of_broker_ms: int = 0, connection: int = 1) -> None:
    exchange = ask(world, connection)
    world.forward(exchange)
    topics = [FetchedTopic("t", [FetchedPartition(0, bytes(size))])]
    frame = transfer.fetch.response(exchange.correlation_id, 11, topics, throttle_ms=of_broker_ms)
    world.give(exchange, world.answer(exchange, frame=frame), throttle_ms=throttle_ms)


@BOTH
def test_throttle_time_is_found(shaping: str) -> None:
    world = quiet(shaping)
    fetch(world, LITTLE, throttle_ms=700, of_broker_ms=700)
    with found(r"is told to wait for 1 ms, and its bucket .* is far from its limit"):
        fetch(world, LITTLE, throttle_ms=1)


def test_fetch_that_the_proxy_answers_is_found() -> None:
    world = quiet()
    exchange = ask(world)
    with found("is answered by the proxy"):
        world.give(exchange, bytes(60))


@BOTH
@pytest.mark.parametrize("look", [lambda world, fetched: world.forward(fetched), lambda world, _: world.wait(0)])
def test_fetch_that_waits_longer_than_a_broker_takes_is_found(
    shaping: str, look: Callable[[StandIn, Exchange], None]
) -> None:
    world = quiet(shaping)
    fetched = ask(world)
    world.clock.advance(world.clock.now_ns + 30_000_000)
    with found(r"waits for 30\.0 ms, and 25\.0 ms is the most"):
        look(world, fetched)


@BOTH
def test_fetch_may_wait_for_as_long_as_the_broker_has_taken(shaping: str) -> None:
    world = quiet(shaping)
    slow, waiting = ask(world, 2), ask(world, 3)
    world.begin(slow)
    world.ledger.forwarded(slow)
    world.forward(waiting)
    world.wait(300)
    world.ledger.at_broker(1, slow.request, slow.correlation_id)
    world.give(slow, world.answer(slow))
    waiting = ask(world)
    world.wait(300)
    world.forward(waiting)
    waiting = ask(world, 4)
    with found("is the most"):
        world.wait(320)


@BOTH
def test_bucket_near_its_limit_is_not_quiet_until_all_is_paid_and_forgotten(shaping: str) -> None:
    world = quiet(shaping)
    for connection in (1, 2):
        fetch(world, MUCH if connection == 1 else LITTLE, throttle_ms=1_000, connection=connection)
        world.wait(15_000)
    with found():
        fetch(world, LITTLE, throttle_ms=1, connection=2)


def test_new_process_and_changed_rules_make_no_client_wait() -> None:
    world = quiet()
    fetch(world, MUCH)
    world.ledger.proxy_started(2)
    world.rules_changed(RULES)
    world.rules_changed([{"client-id": "etl", "consumer_byte_rate": RATE * 2}])
    world.wait(2_000)
    with found():
        fetch(world, LITTLE, throttle_ms=1)


# -- who can use the bytes --

SIZE, KEY = 4_000, ("t", 0)


def test_a_consumer_at_its_limit_whose_bytes_are_mostly_pieces_of_batches_is_found() -> None:
    world, log = StandIn(Usable, RULES), Log()
    for offset in range(1_000):
        log.append(Batch(records.Batch("x", SIZE), offset=offset, leader_epoch=0))
    partition = SimpleNamespace(topic_name="t", index=0, log=log, high_watermark=log.end_offset)
    world.cluster.partitions = {KEY: partition}
    reader = object.__new__(Consumer)
    reader.leaders, reader.positions = {KEY: BROKER}, {}
    world.scenario.actors["consumer-1"] = reader
    data = records.write_batch(records.Batch("x", SIZE))

    def read(number: int, whole: int, piece: int) -> None:
        for _ in range(number):
            exchange = world.send(1, api_version=11, client="consumer-1")
            world.forward(exchange)
            world.wait(1)
            topics = [FetchedTopic("t", [FetchedPartition(0, data * whole + data[:piece])])]
            frame = world.answer(exchange, frame=transfer.fetch.response(exchange.correlation_id, 11, topics))
            world.give(exchange, frame, throttle_ms=100)

    read(100, 10, 2_000)
    world.exchange(1, api_version=11, connection=2)  # of another reader: it begins anew
    read(33, 1, 2_000)
    with found(r"consumer-1 can use 120,000 of 18\d,\d{3} B in 30 or more responses"):
        read(1, 1, 2_000)
