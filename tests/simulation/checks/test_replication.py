"""Tests that followers which get too much, too little or something else are found, and others are not."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks.check import Check
from tests.simulation.checks.follower_fetches import FollowerFetches
from tests.simulation.checks.replication_rates import ReplicationRates
from tests.simulation.checks.replication_room import ReplicationRoom
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import ETL, StandIn
from tests.simulation.ledger import Exchange
from tests.simulation.violation import Violation
from tests.simulation.wire import fetch, records

LIMITED: Mapping[str, Any] = {"leader.replication.throttled.rate": 10_000}
TOPIC = "orders"
VERSION = 11
KEYS = ((TOPIC, 0), (TOPIC, 1))
BATCH = records.write_batch(records.Batch("old-1", 4_000))


def a_world(kind: type[Check], section: Mapping[str, Any] | None = LIMITED) -> StandIn:
    world = StandIn(Settings(replication=section))
    world.watch(kind)
    world.wait(1)
    return world


def frame_of(world: StandIn, offsets: Mapping[tuple[str, int], int], number: int, *, epoch: int = -1) -> bytes:
    parts = [fetch.FetchPartition(index, offset, leader_epoch=0) for (_, index), offset in offsets.items()]
    return fetch.request(
        number,
        VERSION,
        "broker-2",
        [fetch.FetchTopic(TOPIC, parts)],
        max_wait_ms=500,
        replica_id=2,
        session_epoch=epoch,
    )


def send(world: StandIn, *, epoch: int = -1) -> Exchange:
    """Send a fetch of two partitions from offset 0."""
    offsets = dict.fromkeys(KEYS, 0)
    number = world.ledger.next_id()
    exchange = Exchange(
        number, frame_of(world, offsets, number, epoch=epoch), api_key=fetch.API_KEY, api_version=VERSION,
        client="follower-2-of-1", connection=1, entity=ETL, broker=1, is_inter_broker=True, detail=offsets,
    )  # fmt: skip
    return world.ledger.sent(exchange)


def answer(exchange: Exchange, watermarks: tuple[int, int], data: tuple[bytes, bytes]) -> bytes:
    parts = [fetch.FetchedPartition(index, data[index], 0, watermarks[index]) for index in range(2)]
    topics = [fetch.FetchedTopic(TOPIC, parts)]
    return fetch.response(exchange.correlation_id, VERSION, topics)


def pass_on(
    world: StandIn, watermarks: tuple[int, int], data: tuple[bytes, bytes], passed: tuple[bytes, bytes] | None = None
) -> None:
    """Let a fetch go to the leader and come back, perhaps with other records than the leader's."""
    exchange = send(world)
    world.forward(exchange)
    world.wait(1)
    world.answer(exchange, frame=answer(exchange, watermarks, data))
    world.wait(1)
    world.give(exchange, answer(exchange, watermarks, passed or data))


def leave_out(world: StandIn, watermarks: tuple[int, int], *, wait_ms: float = 100) -> None:
    """Let the proxy answer a fetch itself."""
    exchange = send(world)
    world.wait(wait_ms)
    world.give(exchange, answer(exchange, watermarks, (b"", b"")))


def test_records_that_lag_wait_until_the_rate_has_room_again() -> None:
    world = a_world(ReplicationRates)
    pass_on(world, (9, 9), (BATCH, BATCH))
    world.wait(550)  # what was saved up is 2,500 B
    pass_on(world, (9, 9), (BATCH, BATCH))


def test_records_that_come_while_the_rate_owes_something_are_found() -> None:
    world = a_world(ReplicationRates)
    pass_on(world, (9, 9), (BATCH, BATCH))
    world.wait(500)
    with pytest.raises(Violation, match="owed"):
        pass_on(world, (9, 9), (BATCH, b""))


@pytest.mark.parametrize("section", [None, {**LIMITED, "throttled.replicas": {"clicks": "*"}}])
def test_records_without_a_limit_and_those_in_sync_have_no_rate(section: Mapping[str, Any] | None) -> None:
    world = a_world(ReplicationRates, section)
    for _ in range(5):
        pass_on(world, (9, 9), (BATCH, BATCH))
    world = a_world(ReplicationRates)
    for _ in range(5):
        pass_on(world, (0, 0), (BATCH, BATCH))


def test_what_lags_may_be_left_out_and_cut_after_a_batch() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH + BATCH), (b"", BATCH))
    leave_out(world, (9, 9))


def test_what_is_in_sync_is_not_left_out() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 0), (BATCH, b""))
    with pytest.raises(Violation, match="in sync or not throttled"):
        leave_out(world, (9, 0))


def test_what_is_not_listed_is_not_cut() -> None:
    world = a_world(FollowerFetches, {**LIMITED, "throttled.replicas": {TOPIC: "0:1"}})
    pass_on(world, (9, 9), (BATCH, BATCH), (b"", BATCH))
    with pytest.raises(Violation, match="in sync or not throttled"):
        pass_on(world, (9, 9), (BATCH, BATCH), (b"", b""))


def test_a_batch_that_is_cut_is_found() -> None:
    world = a_world(FollowerFetches)
    with pytest.raises(Violation, match="not whole batches"):
        pass_on(world, (9, 9), (BATCH, BATCH), (BATCH[:-1], BATCH))


def test_a_session_while_something_lags_is_found() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    exchange = send(world, epoch=0)
    with pytest.raises(Violation, match="session"):
        world.forward(exchange)


@pytest.mark.parametrize("is_told", [False, True])
def test_in_a_session_with_the_proxy_what_was_left_out_has_no_entry(is_told: bool) -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    exchange = send(world, epoch=1)
    world.wait(100)
    empty = fetch.response(exchange.correlation_id, VERSION, [])
    if is_told:
        with pytest.raises(Violation, match="left out of a session"):
            world.give(exchange, answer(exchange, (9, 9), (b"", b"")))
    else:
        world.give(exchange, empty)


def test_bytes_into_which_no_batch_fits_are_asked_for_once() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    for most_bytes, is_found in ((2_000, False), (4_000, False), (4_000, True)):
        exchange = send(world)
        parts = [fetch.FetchPartition(index, 0, most_bytes, leader_epoch=0) for index in range(2)]
        frame = fetch.request(
            exchange.correlation_id,
            VERSION,
            "broker-2",
            [fetch.FetchTopic(TOPIC, parts)],
            max_wait_ms=500,
            replica_id=2,
        )
        if is_found:
            with pytest.raises(Violation, match="no batch has fitted"):
                world.forward(exchange, frame)
            break
        world.forward(exchange, frame)
        world.answer(exchange, frame=answer(exchange, (9, 9), (b"", b"")))
        world.give(exchange, answer(exchange, (9, 9), (b"", b"")))


def test_what_lags_is_left_out_until_all_is_paid_and_not_longer() -> None:
    world = a_world(ReplicationRoom)
    pass_on(world, (9, 9), (BATCH, BATCH))
    leave_out(world, (9, 9), wait_ms=500)
    leave_out(world, (9, 9), wait_ms=500)
    with pytest.raises(Violation, match="there is room since"):
        leave_out(world, (9, 9), wait_ms=1_500)


@pytest.mark.parametrize("has_come", [False, True])
def test_what_was_set_aside_for_a_follower_that_hung_up_is_free_again(has_come: bool) -> None:
    world = a_world(ReplicationRoom)
    pass_on(world, (9, 9), (BATCH, BATCH))
    gone = send(world)
    gone.connection = 2
    world.forward(gone)
    frame = world.answer(gone, frame=answer(gone, (9, 9), (BATCH * 9, b"")))
    received_bytes = len(frame) if has_come else 0
    gone.broker_end = SimpleNamespace(is_open=False, received_bytes=received_bytes)  # type: ignore[assignment]
    gone.response_at = 0
    world.ledger.disconnected("follower-2-of-1", 2, by_client=True)
    leave_out(world, (9, 9), wait_ms=2_500)
    if has_come:
        leave_out(world, (9, 9), wait_ms=1_500)
        return
    with pytest.raises(Violation, match="there is room since"):
        leave_out(world, (9, 9), wait_ms=1_500)


def test_what_another_follower_has_at_the_leader_may_be_set_aside() -> None:
    world = a_world(ReplicationRoom)
    pass_on(world, (9, 9), (BATCH, BATCH))
    other = send(world)
    other.connection = 2
    world.forward(other)
    leave_out(world, (9, 9), wait_ms=5_000)


def test_a_fetch_that_is_held_for_too_long_is_found() -> None:
    world = a_world(FollowerFetches)
    pass_on(world, (9, 9), (BATCH, BATCH))
    end = SimpleNamespace(is_open=True, is_on_the_way=False)
    end.peer = end
    (check,) = world.ledger.checks
    assert isinstance(check, FollowerFetches)
    exchange = send(world)
    link = check._links[1]
    assert link.forwarded is not None
    exchange.client_end = link.forwarded.broker_end = end  # type: ignore[assignment] # it stands in for the network
    for _ in range(3):
        world.wait(501)
    with pytest.raises(Violation, match="neither forwarded nor answered"):
        world.wait(1_000)
