"""Tests two sessions under events in any order: bytes in any pieces, responses, time and new rules.

At each step, bytes are forwarded in order and unchanged but for some fields, and each request is charged once.
"""

from struct import pack_into, unpack_from

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_quota_proxy.config.model import Enforcement, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.protocol import fetch
from kafka_quota_proxy.protocol.header import read_request_head
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.client_account import Policy
from tests.support.frames import (
    FETCH,
    PRODUCE,
    fetch_request,
    fetch_response,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.rules_in_force import update
from tests.support.wire import Wire

MAX_FRAME_BYTES = 104_857_600
CLIENT_IDS = st.sampled_from(["etl", "web", ""])
LIMITS = st.sampled_from([None, 0.5, 700.0, 5_000.0, 1e12])
RULES = st.builds(
    lambda client_id, produce, consume, enforcement: QuotaRule(
        client_id=client_id, producer_byte_rate=produce, consumer_byte_rate=consume, enforcement=enforcement
    ),
    st.sampled_from(["etl", "web"]),
    LIMITS,
    LIMITS,
    st.sampled_from([None, *Enforcement]),
)
CONFIGS = st.builds(
    lambda rules, shaping, wait_ms: ProxyConfig(
        listeners=(),
        quotas=tuple({one.client_id: one for one in rules}.values()),
        shaping=shaping,
        max_throttle_time_ms=wait_ms,
    ),
    st.lists(RULES, max_size=2),
    st.sampled_from(Shaping),
    st.sampled_from([25_000, 300]),
)
# How a stream is cut: mostly into few pieces, sometimes at every byte.
CUTS = st.lists(st.integers(1, 60), max_size=3) | st.just([1] * 30)
WHICH = st.integers(0, 1)
# Enough time to pay all debts: 60 kB at half a byte a second take 33 hours.
_LONG_MS = 1_000_000_000


class Peer:
    """One client and its broker, with the bytes that each has sent and received."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.session = Session(wire.listening, owner=self)
        self.sent = bytearray()
        self.asked = bytearray()  # received by the broker
        self.answered = bytearray()  # sent by the broker
        self.told = bytearray()  # received by the client
        self.client_queue = bytearray()  # sent while the proxy does not read
        self.broker_queue = bytearray()
        self.next_id = 1
        self.answered_ids: set[int] = set()  # correlation ids that the broker has answered
        self.fetch_ids: set[int] = set()
        self.taken = 0  # bytes of ``asked`` that the broker has read as requests
        self.unanswered: list[tuple[int, int, int]] = []  # correlation id, API key and version of each

    def take_turn(self) -> None:
        self.session.resume(now_ms=self.wire.now_ms)
        self.pump()

    def pump(self) -> None:
        """Deliver what the session has written, until there is nothing more to read or write."""
        while True:
            self.asked += b"".join(self.session.state.to_broker)
            self.told += b"".join(self.session.state.to_client)
            self.session.state.to_broker.clear()
            self.session.state.to_client.clear()
            if self.client_queue and self.session.state.blocked_by is None:
                data, self.client_queue = bytes(self.client_queue), bytearray()
                self.session.receive_from_client(data, now_ms=self.wire.now_ms)
            elif self.broker_queue and not self.session.state.delayed_until_ms:
                data, self.broker_queue = bytes(self.broker_queue), bytearray()
                self.session.receive_from_broker(data, now_ms=self.wire.now_ms)
            else:
                break
        self._take_requests()

    def send(self, data: bytes, cuts: list[int]) -> None:
        self.sent += data
        for piece in _cut(data, cuts):
            self.client_queue += piece
            self.pump()

    def answer(self, data: bytes, cuts: list[int]) -> None:
        self.answered += data
        for piece in _cut(data, cuts):
            self.broker_queue += piece
            self.pump()

    def wake(self) -> None:
        if 0 < self.session.wake_at_ms <= self.wire.now_ms:
            self.session.handle_timer(now_ms=self.wire.now_ms)
        self.pump()

    def empty_ids(self) -> set[int]:
        """Return the correlation ids of the fetches that the proxy has answered without records."""
        found, at = set(), 0
        while at + 8 <= len(self.told):
            size_bytes, correlation_id = unpack_from(">ii", self.told, at)
            if correlation_id not in self.answered_ids:
                found.add(correlation_id)
            at += 4 + size_bytes
        return found

    def _take_requests(self) -> None:
        while self.taken + 4 <= len(self.asked):
            end = self.taken + 4 + unpack_from(">i", self.asked, self.taken)[0]
            if end > len(self.asked):
                break
            head = read_request_head(bytes(self.asked), self.taken, MAX_FRAME_BYTES)
            assert head is not None
            if head.api_key != PRODUCE or _acks(self.asked, head.body, head.api_version):
                self.unanswered.append((head.correlation_id, head.api_key, head.api_version))
            self.taken = end


def _acks(data: bytearray, body: int, version: int) -> int:
    acks: int = unpack_from(">h", data, body + (0 if version < 3 else 2 if version < 9 else 1))[0]
    return acks


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    pieces, start = [], 0
    for size in cuts:
        pieces.append(data[start : start + size])
        start += size
    return [piece for piece in (*pieces, data[start:]) if piece]


def _without_limits(stream: bytes) -> bytes:
    """Return the requests with both size limits of each Fetch set to 0, because the proxy may lower them."""
    out = bytearray(stream)
    offset = 0
    while offset < len(out):
        head = read_request_head(stream, offset, MAX_FRAME_BYTES)
        if head is None:
            break
        if head.api_key == FETCH:
            limits = fetch.read_limits(stream, head.body, head.api_version)
            if limits is None:
                return bytes(out[: head.body])
            if limits.max_bytes_offset >= 0:
                pack_into(">ii", out, limits.min_bytes_offset, 0, 0)
        offset += 4 + head.size_bytes
    return bytes(out)


def _without(stream: bytes, ids: set[int], *, id_at: int) -> bytes:
    """Return a stream without the frames with these correlation ids, which are ``id_at`` bytes after the size."""
    out, at = b"", 0
    while at < len(stream):
        is_whole = at + 4 + id_at + 4 <= len(stream)
        end = at + 4 + unpack_from(">i", stream, at)[0] if at + 4 <= len(stream) else len(stream)
        if not is_whole or unpack_from(">i", stream, at + 4 + id_at)[0] not in ids:
            out += stream[at:end]
        at = end
    return out


class Sessions(RuleBasedStateMachine):
    """Drives two connections that share their buckets."""

    @initialize(config=CONFIGS, enforcement=st.sampled_from(Enforcement))
    def begin(self, config: ProxyConfig, enforcement: Enforcement) -> None:
        self.wire = Wire(*config.quotas, enforcement=enforcement, shaping=config.shaping)
        update(self.wire.listening.quotas, config)
        self.peers = [Peer(self.wire), Peer(self.wire)]
        self.fetched_bytes = 0
        self.has_followers = False  # fetches of followers are charged to no client

    @rule(
        which=WHICH,
        version=st.sampled_from([0, 2, 3, 8, 9, 13]),
        acks=st.sampled_from([0, 1, -1]),
        size_bytes=st.sampled_from([60, 61, 400, 4_000, 60_000]),
        client_id=CLIENT_IDS,
        times=st.integers(1, 4),
        cuts=CUTS,
    )
    def produce(
        self, which: int, version: int, acks: int, size_bytes: int, client_id: str, times: int, cuts: list[int]
    ) -> None:
        peer = self.peers[which]
        frames = b""
        for _ in range(times):
            frames += produce_request(
                peer.next_id, version=version, client_id=client_id, acks=acks, size_bytes=size_bytes
            )
            peer.next_id += 1
        peer.send(frames, cuts)
        self._settle()

    @rule(
        which=WHICH,
        version=st.sampled_from([0, 2, 3, 11, 12, 15, 18]),
        client_id=CLIENT_IDS,
        max_bytes=st.sampled_from([0, 5_000, 2**31 - 1]),
        replica_id=st.sampled_from([-1, 1]),
        times=st.integers(1, 3),
        cuts=CUTS,
    )
    def fetch(
        self,
        which: int,
        version: int,
        client_id: str,
        max_bytes: int,
        replica_id: int,
        times: int,
        cuts: list[int],
    ) -> None:
        peer = self.peers[which]
        frames = b""
        for _ in range(times):
            peer.fetch_ids.add(peer.next_id)
            frames += fetch_request(
                peer.next_id, version=version, client_id=client_id, max_bytes=max_bytes, replica_id=replica_id
            )
            peer.next_id += 1
        peer.send(frames, cuts)
        self._settle()

    @rule(which=WHICH, client_id=CLIENT_IDS, cuts=CUTS)
    def ask_something_else(self, which: int, client_id: str, cuts: list[int]) -> None:
        peer = self.peers[which]
        peer.send(other_request(peer.next_id, client_id=client_id), cuts)
        peer.next_id += 1
        self._settle()

    @rule(
        which=WHICH,
        size_bytes=st.sampled_from([30, 900, 9_000, 70_000]),
        throttle_time_ms=st.sampled_from([0, 0, 5, 60_000]),
        times=st.integers(1, 5),
        cuts=CUTS,
    )
    def answer(self, which: int, size_bytes: int, throttle_time_ms: int, times: int, cuts: list[int]) -> None:
        peer = self.peers[which]
        frames = b""
        for _ in range(min(times, len(peer.unanswered))):
            number, api_key, version = peer.unanswered.pop(0)
            peer.answered_ids.add(number)
            if api_key == PRODUCE:
                frames += produce_response(number, version=version, throttle_time_ms=throttle_time_ms)
            elif api_key == FETCH:
                frames += fetch_response(
                    number, version=version, size_bytes=size_bytes, throttle_time_ms=throttle_time_ms
                )
                self.fetched_bytes += fetch.charged_bytes(size_bytes, version)
            else:
                frames += other_response(number)
        peer.answer(frames, cuts)
        self._settle()

    def _settle(self) -> None:
        turns = self.wire.listening.quotas.lines
        while turns.woken:
            turns.woken.pop(0).take_turn()

    @rule(wait_ms=st.sampled_from([1, 40, 999, 1_000, 12_000, 90_000]))
    def wait(self, wait_ms: int) -> None:
        end_ms = self.wire.now_ms + wait_ms
        while True:
            due = [peer.session.wake_at_ms for peer in self.peers if peer.session.wake_at_ms > self.wire.now_ms]
            if not due or min(due) > end_ms:
                break
            self.wire.now_ms = min(due)
            for peer in self.peers:
                peer.wake()
            self._settle()
        self.wire.now_ms = end_ms

    @rule(config=CONFIGS, enforcement=st.sampled_from(Enforcement), is_inter_broker=st.booleans())
    def reload(self, config: ProxyConfig, enforcement: Enforcement, is_inter_broker: bool) -> None:
        self.has_followers |= is_inter_broker
        self.wire.listening.policy = Policy(MAX_FRAME_BYTES, enforcement, is_inter_broker, "sub")
        update(self.wire.listening.quotas, config)
        self._settle()

    @invariant()
    def what_reaches_the_broker_is_what_its_client_sent(self) -> None:
        for peer in self.peers:
            empty_ids = peer.empty_ids()
            assert empty_ids <= peer.fetch_ids
            asked, sent = bytes(peer.asked), _without(bytes(peer.sent), empty_ids, id_at=4)
            assert len(asked) <= len(sent)
            # If the stream is cut in the head of a Fetch, its two limits are compared too.
            assert _without_limits(sent)[: len(asked)].startswith(_without_limits(asked)[: len(asked)])

    @invariant()
    def what_reaches_the_client_is_what_its_broker_sent(self) -> None:
        for peer in self.peers:
            told = _without(bytes(peer.told), peer.empty_ids(), id_at=0)
            assert len(told) <= len(peer.answered)
            differing = [n for n, (one, other) in enumerate(zip(told, peer.answered, strict=False)) if one != other]
            # The proxy wrote a throttle time, which is never smaller than the broker's.
            for start in _fields(bytes(peer.answered), differing):
                assert told[start : start + 4] >= peer.answered[start : start + 4]

    @invariant()
    def no_more_is_reserved_than_is_at_the_broker(self) -> None:
        quotas = self.wire.listening.quotas
        for bucket in (*quotas.produce, *quotas.fetch):
            assert bucket.reserved.amount >= 0

    def teardown(self) -> None:
        """Answer all requests and let time pass. Then everything must have arrived and be charged once."""
        if not hasattr(self, "peers"):
            return
        for _ in range(400):
            if all(len(peer.asked) == _due_bytes(peer) for peer in self.peers) and not any(
                peer.unanswered for peer in self.peers
            ):
                break
            for which in (0, 1):
                self.answer(which, 900, 0, 5, [])
            self.wait(_LONG_MS)
        self.wait(_LONG_MS)
        for peer in self.peers:
            assert len(peer.asked) == _due_bytes(peer)
            assert len(_without(bytes(peer.told), peer.empty_ids(), id_at=0)) == len(peer.answered)
            assert peer.session.is_idle
        quotas = self.wire.listening.quotas
        assert sum(bucket.reserved.amount for bucket in (*quotas.produce, *quotas.fetch)) == 0
        lines = [bucket.line for bucket in (*quotas.produce, *quotas.fetch) if bucket.line is not None]
        for line in lines:
            line.sweep(now_ms=self.wire.now_ms)  # a connection that does not come back loses its place
        assert not any(lines)
        assert sum(bucket.usage.amount for bucket in quotas.produce) == sum(map(_produced_bytes, self.peers))
        charged_bytes = sum(bucket.usage.amount for bucket in quotas.fetch)
        assert charged_bytes == self.fetched_bytes or (self.has_followers and charged_bytes < self.fetched_bytes)


def _due_bytes(peer: Peer) -> int:
    return len(_without(bytes(peer.sent), peer.empty_ids(), id_at=4))


def _produced_bytes(peer: Peer) -> int:
    total = offset = 0
    data = bytes(peer.sent)
    while offset < len(data):
        size_bytes, api_key = unpack_from(">ih", data, offset)
        total += size_bytes if api_key == PRODUCE else 0
        offset += 4 + size_bytes
    return total


def _fields(answers: bytes, differing: list[int]) -> list[int]:
    """Return the offsets of the throttle times that contain all offsets in ``differing``."""
    fields, offset, index = [], 0, 0
    while index < len(differing):
        end = offset + 4 + unpack_from(">i", answers, offset)[0]
        here = []
        while index < len(differing) and differing[index] < end:
            here.append(differing[index])
            index += 1
        if here:
            # The field is after the correlation id or one byte of tags, or at the end, with or without one byte of tags
            # after it.
            field = [one for one in (offset + 8, offset + 9, end - 4, end - 5) if one <= here[0] and here[-1] < one + 4]
            assert field, (here, offset, end)
            fields.append(field[0])
        offset = end
    return fields


TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
