"""Tests that a consumer at its limit whose bytes are mostly pieces of batches is found."""

from types import SimpleNamespace

import pytest

from tests.simulation.brokers.log import Batch, Log
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import BROKER, StandIn
from tests.simulation.checks.usable import Usable
from tests.simulation.clients.consumer import Consumer
from tests.simulation.violation import Violation
from tests.simulation.wire import records
from tests.simulation.wire.fetch import FetchedPartition, FetchedTopic, response

RATE = 10_000
RULES = [{"client-id": "etl", "consumer_byte_rate": RATE}]
SIZE = 4_000
KEY = "t", 0


def a_world(batches: int = 1_000) -> StandIn:
    world = StandIn(Settings())
    log = Log()
    for offset in range(batches):
        log.append(Batch(records.Batch("x", SIZE), offset=offset, leader_epoch=0))
    partition = SimpleNamespace(topic_name="t", index=0, log=log, high_watermark=log.end_offset)
    world.cluster.partitions = {KEY: partition}
    reader = object.__new__(Consumer)
    reader.leaders, reader.positions = {KEY: BROKER}, {}
    world.scenario.actors["consumer-1"] = reader
    world.watch(Usable).rules_changed(RULES)
    return world


def fetch(world: StandIn, whole: int, piece: int, *, throttle_ms: int = 100, took_ms: float = 1.0) -> None:
    exchange = world.send(1, api_version=11, client="consumer-1")
    world.forward(exchange)
    world.wait(took_ms)
    data = records.write_batch(records.Batch("x", SIZE))
    partition = FetchedPartition(0, data * whole + data[:piece])
    frame = response(exchange.correlation_id, 11, [FetchedTopic("t", [partition])])
    world.give(exchange, world.answer(exchange, frame=frame), throttle_ms=throttle_ms)


def test_pieces_of_batches_are_found() -> None:
    world = a_world()
    for _ in range(33):
        fetch(world, 1, 2_000)
    with pytest.raises(Violation, match=r"consumer-1 can use 120,000 of 18\d,\d{3} B in 30 or more responses"):
        fetch(world, 1, 2_000)


@pytest.mark.parametrize(("whole", "piece"), [(1, 0), (10, 2_000), (4, 11)])
def test_whole_batches_pass(whole: int, piece: int) -> None:
    world = a_world()
    for _ in range(100):
        fetch(world, whole, piece)


def test_first_responses_may_end_anywhere() -> None:
    world = a_world()
    for number in range(100):
        fetch(world, 1, 2_000 if number < 4 else 0)


def test_reader_that_is_not_at_its_limit_may_throw_pieces_away() -> None:
    world = a_world()
    for _ in range(100):
        fetch(world, 1, 2_000, throttle_ms=0)


def test_reader_that_is_hardly_behind_gets_what_there_is() -> None:
    world = a_world(batches=10)
    for _ in range(100):
        fetch(world, 1, 2_000)


def test_slow_broker_may_be_worth_pieces() -> None:
    world = a_world()
    for _ in range(100):
        fetch(world, 1, 2_000, took_ms=200.0)


def test_second_reader_of_a_bucket_begins_anew() -> None:
    world = a_world()
    for number in range(100):
        if number % 20 == 0:
            world.exchange(1, api_version=11, connection=2)
        fetch(world, 1, 2_000)


def test_new_rules_and_a_new_process_begin_anew() -> None:
    world = a_world()
    (check,) = world.ledger.checks
    for number in range(100):
        if number % 20 == 0:
            check.rules_changed(RULES)
        if number % 20 == 10:
            check.proxy_started(2)
        fetch(world, 1, 2_000)
