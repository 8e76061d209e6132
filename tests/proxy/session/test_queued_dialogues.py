"""Tests that each client of a broker with few slots gets whole responses in the order of its requests."""

from __future__ import annotations

from collections import deque
from struct import unpack_from

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.fair_call_queue import CallQueueImpl, FairCallQueue
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher
from tests.support.controller import create
from tests.support.frames import fetch_response, other_request, other_response, produce_response
from tests.support.queued_clients import Crowd, whole_fetch, whole_produce
from tests.support.wire import Wire

KINDS = ["produce", "produce without an answer", "fetch", "metadata", "heartbeat", "join", "create"]
# One client is busier than the others, so that it often sends requests ahead.
WHICH = st.sampled_from([0, 0, 0, 1, 2, 3])
STEP = st.one_of(
    st.tuples(st.just("send"), WHICH, st.sampled_from(["produce", "metadata"]), st.just(1_000)),
    st.tuples(st.just("send"), WHICH, st.sampled_from(KINDS), st.integers(1, 40)),
    st.tuples(st.just("answer"), WHICH, st.integers(1, 150), st.just(0)),
    st.tuples(st.just("wait"), st.just(0), st.sampled_from([0, 1, 19, 21, 60, 600, 1_100]), st.just(0)),
)


class Side:
    """A client, and the broker's end of its connection."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.last_id = 0
        self.awaited: list[int] = []
        self.outbox: deque[bytes] = deque()
        self.at_broker = b""
        self.asked: deque[bytes] = deque()  # whole requests that the broker has
        self.answering = b""  # the rest of the current response
        self.seen = b""

    def send(self, kind: str, cut: int) -> None:
        self.last_id += 1
        frame = frame_of(kind, self.last_id)
        if kind != "produce without an answer":
            self.awaited.append(self.last_id)
        self.outbox += [frame[:cut], frame[cut:]] if cut < len(frame) else [frame]
        self.flow()

    def flow(self) -> None:
        """Send what the client has still to send, as far as the session reads it."""
        while self.outbox and not self.wire.session.state.is_blocked:
            self.take(self.wire.client(self.outbox.popleft()))
        self.take(b"")

    def take(self, to_broker: bytes) -> None:
        self.at_broker += to_broker + self.wire.to_broker()
        while len(self.at_broker) >= 4 and len(self.at_broker) >= 4 + unpack_from(">i", self.at_broker)[0]:
            end = 4 + unpack_from(">i", self.at_broker)[0]
            self.asked.append(self.at_broker[:end])
            self.at_broker = self.at_broker[end:]
        self.seen += self.wire.to_client()

    def answer(self, size_bytes: int) -> None:
        """Let the broker send at most ``size_bytes`` of its next response."""
        while not self.answering and self.asked:
            self.answering = answer_to(self.asked.popleft())
        if self.answering and not self.wire.session.state.delayed_until_ms:
            piece, self.answering = self.answering[:size_bytes], self.answering[size_bytes:]
            self.seen += self.wire.broker(piece)
            self.take(b"")
            self.flow()

    def check(self) -> None:
        """Check that the client got whole responses in order, and perhaps the start of one more."""
        found = ids_of(self.seen)
        assert found == self.awaited[: len(found)]

    @property
    def is_done(self) -> bool:
        return not (self.outbox or self.asked or self.answering or self.at_broker) and self.wire.session.is_idle


def frame_of(kind: str, correlation_id: int) -> bytes:
    match kind:
        case "produce":
            return whole_produce(correlation_id)
        case "produce without an answer":
            return whole_produce(correlation_id, acks=0)
        case "fetch":
            return whole_fetch(correlation_id)
        case "create":
            made = create(("one", 1))
            return made[:8] + correlation_id.to_bytes(4) + made[12:]
        case _:
            keys = {"metadata": ApiKey.METADATA, "heartbeat": ApiKey.HEARTBEAT, "join": ApiKey.JOIN_GROUP}
            return other_request(correlation_id, api_key=keys[kind], version=3)


def answer_to(request: bytes) -> bytes:
    api_key, _, correlation_id = unpack_from(">hhi", request, 4)
    if api_key == ApiKey.PRODUCE:
        acks = unpack_from(">h", request, 4 + 8 + 2 + 3 + 2)[0]
        return produce_response(correlation_id) if acks else b""
    return fetch_response(correlation_id) if api_key == ApiKey.FETCH else other_response(correlation_id)


def crowd_of(*, slots: int, refuses: bool) -> Crowd:
    """Return four clients of a broker, with one place in its queue."""
    crowd = Crowd(slots=slots, clients=4)
    settings = FairCallQueue(callqueue_impl=CallQueueImpl.FIFO, capacity=1, backoff_enable=refuses)
    crowd.line.dispatcher = crowd.dispatcher = Dispatcher(settings, FixedLimit(slots))
    return crowd


def wake(crowd: Crowd, sides: list[Side]) -> None:
    for wire in crowd.granted():
        wire.session.state.now_ns = wire.now_ms * 1_000_000
        wire.session.resume(now_ms=wire.now_ms)
    for side in sides:
        side.flow()


def end(crowd: Crowd, sides: list[Side]) -> None:
    for _ in range(100):
        if all(side.is_done for side in sides):
            return
        for side in sides:
            side.answer(1_000)
        crowd.wait(600)
        wake(crowd, sides)
    raise AssertionError("somebody waits for ever")


@settings(max_examples=300, deadline=None)
@given(slots=st.integers(1, 2), refuses=st.booleans(), steps=st.lists(STEP, min_size=5, max_size=60))
def test_each_request_is_answered_once_in_order_and_frees_its_slot(
    slots: int, refuses: bool, steps: list[tuple[str, int, str | int, int]]
) -> None:
    crowd = crowd_of(slots=slots, refuses=refuses)
    sides = [Side(wire) for wire in crowd.wires]

    for what, which, value, cut in steps:
        if what == "send":
            sides[which].send(str(value), cut)
        elif what == "answer":
            sides[which].answer(int(value))
        else:
            crowd.wait(int(value))
            wake(crowd, sides)
        for side in sides:
            side.check()
    end(crowd, sides)

    for side in sides:
        assert ids_of(side.seen) == side.awaited
        assert side.wire.listening.service.served == 0
    assert (crowd.dispatcher.in_flight, crowd.dispatcher.control_in_flight) == (0, 0)
    assert not crowd.timeouts
    assert len(crowd.dispatcher.queue) == crowd.dispatcher.control_waiting == 0


def ids_of(data: bytes) -> list[int]:
    """Return the correlation id of each response that has begun."""
    found = []
    while len(data) >= 8:
        size_bytes, correlation_id = unpack_from(">ii", data)
        assert size_bytes >= 4
        found.append(correlation_id)
        data = data[4 + size_bytes :]
    return found
