"""Tests requests that a full queue refuses."""

from __future__ import annotations

from struct import pack

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import FrameTooLarge
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit
from kafka_quota_proxy.proxy.fair_queue.cost import RequestCount
from tests.support.controller import create
from tests.support.frames import (
    fetch_request,
    framed,
    other_request,
    other_response,
    request_header,
)
from tests.support.queued_clients import (
    Crowd,
    answered,
    full,
    idempotent_produce,
    refused,
    whole_fetch,
    whole_produce,
)
from tests.support.wire import Wire


def test_produce_into_a_full_queue_is_refused() -> None:
    _, last = refused()

    assert last.muted_for_ms == 500
    last.wait(100)
    assert last.client(whole_produce(2)) == b""  # this client ignores its throttle time
    assert last.session.state.blocked_by is not None
    assert last.to_client() == b""
    last.wait(400)
    assert answered(last.to_client()) == [(2, 19, 500)]
    assert last.to_broker() == b""


def test_refused_request_is_counted_and_charged_to_its_user() -> None:
    crowd = Crowd(clients=50, capacity=40, is_backoff_enabled=True)
    crowd.line.cost = RequestCount()
    full(crowd)

    crowd.wires[-1].client(whole_fetch(1))

    assert crowd.stats.refused == {(0, ApiKey.FETCH): 1}
    assert [(user.identity.partition("@")[0], user.raw) for user in crowd.scheduler.top(9)] == [("etl", 1)]


def test_produces_behind_a_refused_one_are_refused_even_if_there_is_room() -> None:
    crowd, last = refused()
    crowd.dispatcher.update(FairCallQueue(), FixedLimit(2_000), last.now_ms * 1_000)

    assert last.client(whole_produce(2) + whole_produce(3)) == b""
    last.wait(49)
    assert last.client(whole_produce(4)) == b""
    assert answered(last.to_client()) == [(2, 19, 500), (3, 19, 500), (4, 19, 451)]
    assert last.muted_for_ms == 451  # the throttle time of the first refusal still holds
    assert crowd.stats.refused == {(0, ApiKey.PRODUCE): 4}
    last.wait(451)
    assert last.client(whole_produce(5)) == whole_produce(5)


def test_late_rest_of_a_produce_behind_a_refused_one_queues() -> None:
    crowd, last = refused()
    large = whole_produce(2, size_bytes=900_000)
    crowd.dispatcher.update(FairCallQueue(), FixedLimit(2_000), last.now_ms * 1_000)

    last.client(large[:500_000])
    last.wait(50)
    assert last.client(large[500_000:]) == b""
    assert last.session.state.blocked_by is not None
    assert last.session.held_bytes == len(large)
    last.wait(450)
    assert last.to_broker() == large
    assert last.to_client() == b""


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(whole_produce(2, acks=0), id="awaits no answer"),
        pytest.param(whole_produce(2, size_bytes=1_100_000), id="is too long"),
        pytest.param(other_request(2), id="is no Produce"),
        pytest.param(fetch_request(2), id="is a Fetch"),
    ],
)
def test_unrefusable_request_behind_a_refused_produce_waits(request_: bytes) -> None:
    crowd, last = refused()
    crowd.dispatcher.update(FairCallQueue(), FixedLimit(2_000), last.now_ms * 1_000)

    assert last.client(request_ + whole_produce(3)) == b""
    assert last.session.state.blocked_by is not None
    assert last.to_client() == b""
    last.wait(499)
    assert last.to_broker() == b""
    last.wait(1)
    assert last.to_broker().startswith(request_)


@pytest.mark.parametrize("cut", [4, 10, -1])
def test_refusal_never_overtakes_or_splits_a_response(cut: int) -> None:
    crowd, _ = refused()
    first = crowd.wires[0]
    assert first.client(whole_produce(1)) == b""  # sent ahead, while the queue is full

    answer = other_response(0)
    told = first.broker(answer[:cut]) + first.broker(answer[cut:])

    assert told.startswith(answer)
    assert answered(told[len(answer) :]) in ([], [(1, 19, 500)])


def test_request_without_a_refusal_waits() -> None:
    """Clients of CreateTopics before v6 do not know the error."""
    crowd, last = refused()
    crowd.wait(600)
    before = crowd.stats.refused.copy()

    assert last.client(create(("one", 1), version=5)) == b""

    assert last.to_client() == b""
    assert last.session.account.muted_until_ms <= last.now_ms
    assert crowd.stats.refused == before
    assert len(crowd.dispatcher.queue) == len(crowd.wires) - 1  # the client is in the queue


def test_fetch_with_a_replica_id_waits_instead_of_being_refused() -> None:
    crowd, last = refused()
    crowd.wait(600)
    before = crowd.stats.refused.copy()
    header = request_header(ApiKey.FETCH, 4, 2, "etl", is_flexible=False)

    last.client(framed(header + pack(">iiiibi", 5, 500, 1, 1_000, 0, 0)))

    assert crowd.stats.refused == before
    assert last.to_client() == b""
    assert last.session.account.muted_until_ms <= last.now_ms
    assert len(crowd.dispatcher.queue) == len(crowd.wires) - 1


def test_refusal_after_release_mutes_no_client() -> None:
    crowd, last = refused()
    last.session.release(now_ms=last.now_ms)
    last.client(whole_produce(2))
    assert answered(last.to_client()) == [(2, 19, 500)]

    last.client(other_request(3))

    assert len(crowd.dispatcher.queue) == len(crowd.wires) - 1  # the client is in the queue


def refused_idempotent() -> tuple[Crowd, Wire]:
    """Return a crowd with room again, and a client. The first batch of its idempotent producer was refused."""
    crowd = Crowd(clients=50, capacity=40, is_backoff_enabled=True)
    full(crowd)
    last = crowd.wires[-1]
    assert last.client(idempotent_produce(1, 0)) == b""
    assert answered(last.to_client()) == [(1, 19, 500)]
    crowd.dispatcher.update(FairCallQueue(backoff_enable=True), FixedLimit(2_000), last.now_ms * 1_000)
    return crowd, last


@pytest.mark.parametrize("after_ms", [0, 49, 50, 499, 500, 20_000])
def test_later_batch_does_not_overtake_a_refused_one(after_ms: int) -> None:
    _, last = refused_idempotent()
    last.wait(after_ms)

    # The client has sent the second batch before it sees the refusal of the first.
    assert last.client(idempotent_produce(2, 1)) == b""
    last.wait(500)
    assert last.to_broker() == b""
    assert [(one, error) for one, error, _ in answered(last.to_client())] == [(2, 19)]

    again = idempotent_produce(3, 0), idempotent_produce(4, 1)
    assert last.client(*again) == b"".join(again)
    assert last.client(idempotent_produce(5, 2)) == idempotent_produce(5, 2)
    assert last.session._turn.refused is None


def test_late_batch_is_refused_once_complete() -> None:
    _, last = refused_idempotent()
    large = idempotent_produce(2, 1, more_bytes=900_000)

    last.wait(500)
    assert last.client(large[:20], large[20:500_000]) == b""
    assert last.session.state.blocked_by is None
    assert last.client(large[500_000:]) == b""

    assert [one for one, *_ in answered(last.to_client())] == [2]


def test_late_batch_that_is_too_long_to_be_refused_closes_the_connection() -> None:
    _, last = refused_idempotent()
    last.wait(500)

    with pytest.raises(FrameTooLarge):
        last.client(idempotent_produce(2, 1, more_bytes=1_100_000)[:100_000])


def test_late_batch_behind_a_pending_request_is_refused_after_the_response() -> None:
    _, last = refused_idempotent()
    last.wait(500)
    assert last.client(other_request(2)) == other_request(2)

    assert last.client(idempotent_produce(3, 1)) == b""
    assert last.to_client() == b""
    told = last.broker(other_response(2))

    assert told.startswith(other_response(2))
    assert [one for one, *_ in answered(told[len(other_response(2)) :])] == [3]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(idempotent_produce(2, 0), id="the refused batch"),
        pytest.param(idempotent_produce(2, 5, partition=1), id="another partition"),
        pytest.param(idempotent_produce(2, 5, producer_id=8), id="another producer"),
        pytest.param(idempotent_produce(2, 5, epoch=1), id="a new epoch"),
        pytest.param(whole_produce(2), id="a producer that is not idempotent"),
        pytest.param(whole_produce(2, acks=0), id="acks=0"),
        pytest.param(other_request(2), id="another API"),
    ],
)
def test_request_that_overtakes_no_refused_batch_passes_after_the_mute(request_: bytes) -> None:
    _, last = refused_idempotent()
    last.wait(500)

    assert last.client(request_) == request_


def test_refused_batch_that_never_comes_again_is_forgotten() -> None:
    """The client may have sent it on another connection."""
    _, last = refused_idempotent()
    last.wait(59_999)
    assert last.client(idempotent_produce(2, 1)) == b""
    last.wait(1)

    assert last.client(idempotent_produce(3, 2)) == idempotent_produce(3, 2)
