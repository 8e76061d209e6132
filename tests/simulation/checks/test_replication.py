"""Tests that followers which get too much, too little or something else are found, and others are not."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from tests.simulation.checks.check import Check
from tests.simulation.checks.follower_fetches import FollowerFetches
from tests.simulation.checks.replication_rates import ReplicationRates
from tests.simulation.checks.replication_room import ReplicationRoom
from tests.simulation.checks.support import StandIn, found
from tests.simulation.ledger import Exchange
from tests.simulation.wire import records, transfer

LIMITED: Mapping[str, Any] = {"leader.replication.throttled.rate": 10_000}
TOPIC = "orders"
VERSION = 11
BATCH = records.write_batch(records.Batch("old-1", 4_000))
Pair = tuple[bytes, bytes]
NOTHING: Pair = (b"", b"")


def a_world(kind: type[Check], section: Mapping[str, Any] | None = LIMITED) -> StandIn:
    world = StandIn(kind, replication=section)
    world.wait(1)
    return world


def asked(most_bytes: int = 1_048_576, epoch: int = -1) -> bytes:
    """Return the body of a fetch of two partitions from offset 0."""
    topics = [
        transfer.FetchTopic(TOPIC, [transfer.FetchPartition(index, 0, most_bytes, leader_epoch=0) for index in (0, 1)])
    ]
    frame = transfer.fetch.request(1, VERSION, "etl", topics, replica_id=2, session_epoch=epoch)
    return frame[4 + 8 + 2 + len("etl") :]


def send(world: StandIn, *, epoch: int = -1, connection: int = 1) -> Exchange:
    offsets = dict.fromkeys(((TOPIC, 0), (TOPIC, 1)), 0)
    return world.send(
        transfer.fetch.key, api_version=VERSION, body=asked(epoch=epoch), client="follower-2-of-1",
        connection=connection, is_inter_broker=True, detail=offsets,
    )  # fmt: skip


def answer(exchange: Exchange, watermarks: tuple[int, int], data: Pair = NOTHING) -> bytes:
    parts = [transfer.FetchedPartition(index, data[index], 0, watermarks[index]) for index in range(2)]
    return transfer.fetch.response(exchange.correlation_id, VERSION, [transfer.FetchedTopic(TOPIC, parts)])


def pass_on(world: StandIn, watermarks: tuple[int, int], data: Pair, passed: Pair | None = None) -> None:
    """Let a fetch go to the leader and come back, perhaps with other records than the leader's."""
    exchange = send(world)
    world.forward(exchange)
    world.wait(1)
    world.answer(exchange, frame=answer(exchange, watermarks, data))
    world.wait(1)
    world.give(exchange, answer(exchange, watermarks, passed or data))


def leave_out(world: StandIn, watermarks: tuple[int, int] = (9, 9), *, wait_ms: float = 100) -> None:
    """Let the proxy answer a fetch itself."""
    exchange = send(world)
    world.wait(wait_ms)
    world.give(exchange, answer(exchange, watermarks))


LISTED = {**LIMITED, "throttled.replicas": {TOPIC: "0:1"}}


@pytest.mark.parametrize(
    ("section", "high_watermark", "waits_ms", "is_fine"),
    [
        (LIMITED, 9, 550, True),  # what was saved up is 2,500 B
        (LIMITED, 9, 500, False),
        (LIMITED, 0, 0, True),  # it is in sync
        ({**LIMITED, "throttled.replicas": {"clicks": "*"}}, 9, 0, True),
    ],
)
def test_records_that_come_while_the_rate_owes_something_are_found(
    section: Mapping[str, Any], high_watermark: int, waits_ms: float, is_fine: bool
) -> None:
    world = a_world(ReplicationRates, section)
    pass_on(world, (high_watermark, high_watermark), (BATCH, BATCH))
    world.wait(waits_ms)
    with nullcontext() if is_fine else found("owed"):
        pass_on(world, (high_watermark, high_watermark), (BATCH, BATCH))


@pytest.mark.parametrize(
    ("section", "watermarks", "data", "passed", "text"),
    [
        (LIMITED, (9, 9), (BATCH, BATCH + BATCH), (b"", BATCH), None),
        (LIMITED, (9, 9), (BATCH, BATCH), (BATCH[:-1], BATCH), "not whole batches"),
        (LISTED, (9, 9), (BATCH, BATCH), (b"", BATCH), None),
        (LISTED, (9, 9), (BATCH, BATCH), NOTHING, "in sync or not throttled"),
        (LIMITED, (9, 0), (BATCH, BATCH), NOTHING, "in sync or not throttled"),
        (None, (9, 9), (BATCH, BATCH), (b"", BATCH), "nothing is throttled in it"),
    ],
)
def test_only_what_lags_may_be_cut_and_after_a_batch(
    section: Mapping[str, Any] | None, watermarks: tuple[int, int], data: Pair, passed: Pair, text: str | None
) -> None:
    world = a_world(FollowerFetches, section)
    with found(text) if text else nullcontext():
        pass_on(world, watermarks, data, passed)


def test_only_what_lags_is_left_out() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 0), (BATCH, b""))
    with found("in sync or not throttled"):
        leave_out(world, (9, 0))
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    leave_out(world)


def test_a_session_while_something_lags_is_found() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    exchange = send(world, epoch=0)
    with found("session"):
        world.forward(exchange)


@pytest.mark.parametrize("is_told", [False, True])
def test_in_a_session_with_the_proxy_what_was_left_out_has_no_entry(is_told: bool) -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    exchange = send(world, epoch=1)
    with found("left out of a session") if is_told else nullcontext():
        world.give(
            exchange,
            answer(exchange, (9, 9)) if is_told else transfer.fetch.response(exchange.correlation_id, VERSION, []),
        )


def test_bytes_into_which_no_batch_fits_are_asked_for_once() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    for most_bytes, is_found in ((2_000, False), (4_000, False), (4_000, True)):
        exchange = send(world)
        frame = exchange.request.replace(asked(), asked(most_bytes))
        with found("no batch has fitted") if is_found else nullcontext():
            world.forward(exchange, frame)
        world.give(exchange, world.answer(exchange, frame=answer(exchange, (9, 9))))


def test_a_fetch_that_is_held_for_too_long_is_found() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    send(world)
    world.wait(1_500)
    with found("neither forwarded nor answered"):
        world.wait(1_000)


def test_what_lags_is_left_out_until_all_is_paid_and_not_longer() -> None:
    world = a_world(ReplicationRoom)
    pass_on(world, (9, 9), (BATCH, BATCH))
    leave_out(world, wait_ms=500)
    leave_out(world, wait_ms=500)
    with found("there is room since"):
        leave_out(world, wait_ms=1_500)


@pytest.mark.parametrize("becomes", ["it has come", "it has not come", "it is at the leader"])
def test_what_was_set_aside_for_another_fetch_is_free_again_once_it_has_gone(becomes: str) -> None:
    world = a_world(ReplicationRoom)
    pass_on(world, (9, 9), (BATCH, BATCH))
    other = send(world, connection=2)
    world.forward(other)
    if becomes != "it is at the leader":
        frame = world.answer(other, frame=answer(other, (9, 9), (BATCH * 9, b"")))
        end: Any = other.broker_end
        end.is_open, other.response_at = False, 0
        end.received_bytes = len(frame) if becomes == "it has come" else 0
        world.ledger.disconnected("follower-2-of-1", 2, by_client=True)
    leave_out(world, wait_ms=2_500)
    with found("there is room since") if becomes == "it has not come" else nullcontext():
        leave_out(world, wait_ms=1_500)
