"""Tests followers behind a session: fetches among other requests, in pieces and at the end, and Kafka's cases."""

from collections.abc import Mapping
from struct import pack

import pytest

from kafka_quota_proxy.config.model import Enforcement, KafkaSettings, QuotaRule, Replication
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.throttled_replicas import parse
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import FrameTooLarge, HeadTooLong, UnexpectedResponse
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.client_account import Policy
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import MAX_REPLICA_FETCH_BYTES
from tests.support.frames import (
    other_request,
    other_response,
)
from tests.support.logins import (
    authenticate_request,
    authenticate_response,
    handshake_request,
    handshake_response,
)
from tests.support.move import view
from tests.support.replica_frames import (
    Entry,
    Part,
    Place,
    Request,
    Response,
    batches,
    read_request,
    read_response,
    uvarint,
    write_request,
    write_response,
)
from tests.support.replicas import SESSION_NOT_FOUND, Follower, Leader, Log
from tests.support.wire import START_MS, UPSTREAM, Wire

VERSIONS = (3, 11, 17)
P0, P1, BUSY = ("moving", 0), ("moving", 1), ("busy", 0)
MiB = 1024 * 1024
A_TIGHT_RULE = QuotaRule(client_id="broker-9-fetcher-0", consumer_byte_rate=500.0)


def listed(rate: float) -> Replication:
    return Replication(leader_rate=rate, leader_replicas={"moving": parse("*")}, follower_replicas={})


class Front(Wire):
    """A session through which other brokers fetch from broker 1, the leader."""

    def __init__(self, replication: Replication | None, version: int = 17, **more: object) -> None:
        self.throttle = Throttle(replication, KafkaSettings())
        self.throttle.see(view({"moving", "busy"}), now_ms=START_MS)
        self.throttled = self.throttle.leader(UPSTREAM, 1)
        rules = more.pop("rules", ())
        super().__init__(*rules, **{"is_inter_broker": True, **more}, leader=self.throttled)  # type: ignore[misc,arg-type]
        self.version = version

    @property
    def quota(self) -> ReplicationQuota:
        return self.throttled.quota(now_ms=self.now_ms)

    def use_up(self, size_bytes: int = 1_000_000) -> None:
        """Use up bytes of the limit, as if other followers had fetched them."""
        self.quota.settle(0, size_bytes, now_ms=self.now_ms)
        self.quota.record(size_bytes, now_ms=self.now_ms)

    def fetch(self, *places: Place, number: int = 1, replica_id: int = 3, session: tuple[int, int] = (0, -1)) -> bytes:
        """Return a fetch of these partitions from offset 1."""
        parts = {place: Part(1, MiB, 4) for place in places}
        return write_request(self.version, Request(number, replica_id, 500, 10 * MiB, *session, parts))

    def answer(self, entries: Mapping[Place, Entry], number: int = 1) -> bytes:
        return write_response(self.version, Response(number, 0, 0, dict(entries)))

    def see(self, *places: Place, high_watermark: int = 1_000) -> None:
        """Let the follower fetch these partitions once, so that the proxy knows how far they lag."""
        assert self.client(self.fetch(*places))
        entry = Entry(0, high_watermark, high_watermark, 0, b"")
        assert self.broker(self.answer(dict.fromkeys(places, entry)))

    def held(self, *places: Place) -> None:
        """Use up the limit, so that a fetch of these partitions waits in the session."""
        self.see(*places)
        self.use_up()
        assert self.client(self.fetch(*places, number=2)) == b""
        assert self.session.state.blocked_by is not None
        assert self.now_ms < self.session.needs.wake_at_ms <= self.now_ms + 500

    def read(self, frame: bytes) -> Response:
        return read_response(frame, self.version)


def lagging(records: bytes = b"", *, high_watermark: int = 1_000) -> Entry:
    return Entry(0, high_watermark, high_watermark, 0, records)


# -- Kafka's cases


@pytest.mark.parametrize("version", VERSIONS)
def test_v25_a_consumer_is_not_throttled_as_a_replica(version: int) -> None:
    front = Front(Replication(leader_rate=1_000), version)
    front.use_up()
    request = front.fetch(P0, P1, replica_id=-1)
    response = front.answer({P0: lagging(batches(90_000)), P1: lagging(batches(90_000)[:80_000])})
    for _ in range(3):
        assert front.client(request) == request
        assert front.broker(response[:40], response[40:]) == response
    assert front.quota.total == 1_000_000


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_in_sync", [True, False])
def test_v26_only_in_sync_partitions_complete_a_waiting_fetch(version: int, is_in_sync: bool) -> None:
    front = Front(listed(1_000), version)
    leader = Leader(version, {P0: Log(), BUSY: Log()})
    for log in leader.logs.values():
        log.is_in_sync = is_in_sync
        log.append(5)
    front.see(P0, BUSY, high_watermark=1 if is_in_sync else 2)
    front.use_up(1_300)
    asked = front.client(front.fetch(P0, BUSY))
    assert leader.answer(asked, has_waited=False) is None, "at the end of the log it waits"
    leader.logs[P0].append(50)
    if is_in_sync:
        assert leader.answer(asked, has_waited=False) is not None
    else:
        assert list(read_request(asked, version).parts) == [BUSY]
        assert leader.answer(asked, has_waited=False) is None


@pytest.mark.parametrize("throttled", ["busy", "moving"])
def test_v46_message_larger_than_the_limit_is_sent_alone(throttled: str) -> None:
    front = Front(Replication(leader_rate=1e9, leader_replicas={throttled: parse("*")}, follower_replicas={}), 3)
    leader = Leader(3, {P0: Log()})
    for value_bytes in (1, 500, 1_040, 500, 50):
        leader.logs[P0].append(70 + value_bytes)
    follower = Follower(3, 3, [P0], max_bytes=1_024)
    steps = []
    while follower.offsets[P0] < 5:
        asked = front.client(follower.next_request())
        response = leader.answer(asked, has_waited=True)
        assert response is not None
        follower.take(front.broker(response), now_ms=front.now_ms)
        steps.append(follower.offsets[P0])
        front.wait(1)
    assert steps == [2, 3, 5]


@pytest.mark.parametrize("version", [7, 11, 12, 17])
def test_v59_fetch_session_ends_under_a_throttle_and_is_kept_without_one(version: int) -> None:
    front = Front(listed(1e9), version)
    request = front.fetch(session=(77, 4))
    front.session.receive_from_client(request, now_ms=front.now_ms)
    assert not front.session.state.to_broker, "not even nothing: a broker is dialled when there is something"
    told = front.read(front.to_client())
    assert (told.correlation_id, told.error_code, told.session_id, told.entries) == (1, SESSION_NOT_FOUND, 0, {})
    front.throttle.update(None, now_ms=front.now_ms)
    response = write_response(version, Response(1, 0, 77, {}))
    throttled = bytearray(response)
    at = 8 + (version >= 12)
    throttled[at : at + 4] = pack(">i", 100)
    assert front.client(request) == request
    assert front.broker(bytes(throttled)) == bytes(throttled), "same session, throttle_time_ms 100"


@pytest.mark.parametrize("replication", [None, Replication(leader_rate=1e9, leader_replicas={}, follower_replicas={})])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_throttle_changes_no_byte(version: int, replication: Replication | None) -> None:
    front = Front(replication, version)
    request = front.fetch(P0, BUSY, session=(77, 4))
    response = front.answer({BUSY: lagging(batches(100)[:70]), P0: lagging()})
    for _ in range(3):
        assert front.client(request[:50], request[50:]) == request
        assert front.broker(response[:50], response[50:]) == response


# -- among other requests


def test_requests_behind_a_held_fetch_wait_in_order() -> None:
    front = Front(listed(1_000))
    front.held(P0)
    behind = front.fetch(BUSY, P0, number=3) + other_request(4) + front.fetch(P0, BUSY, number=5)
    assert front.client(behind) == b""
    front.wait(499)
    assert (front.to_client(), front.to_broker()) == (b"", b"")
    front.wait(1)
    told = front.read(front.to_client())
    assert (told.correlation_id, list(told.entries)) == (2, [("moving", 0)])
    asked = front.to_broker()
    assert asked.endswith(other_request(4)), "which is nobody's business"
    assert read_request(asked.removesuffix(other_request(4)), 17).correlation_id == 3
    out = front.broker(front.answer({BUSY: lagging()}, 3))
    assert front.read(out).correlation_id == 3
    assert front.to_broker() == b""
    assert front.broker(other_response(4)) == other_response(4)
    assert list(read_request(front.to_broker(), 17).parts) == [BUSY]


def test_own_responses_follow_pending_ones() -> None:
    front = Front(listed(1_000))
    front.see(P0)
    incremental = front.fetch(number=8, session=(77, 3))
    assert front.client(other_request(7) + incremental) == other_request(7)
    assert front.session.state.blocked_by is not None
    response = other_response(7, size_bytes=300)
    for piece in (response[:6], response[6:40], response[40:-1]):
        assert front.broker(piece) in (b"", piece, response[:40])
        assert front.session.state.blocked_by is not None, "it would cut into the answer before it"
    out = front.broker(response[-1:])
    assert out[:1] == response[-1:]
    assert front.read(out[1:]).error_code == SESSION_NOT_FOUND


def test_second_fetch_waits_for_the_first_response_even_if_the_throttle_ends() -> None:
    front = Front(listed(1_000))
    front.see(P0, BUSY)
    front.use_up()
    assert list(read_request(front.client(front.fetch(P0, BUSY)), 17).parts) == [BUSY]
    front.throttle.update(None, now_ms=front.now_ms)
    second = front.fetch(P0, BUSY, number=2)
    assert front.client(second) == b""
    told = front.read(front.broker(front.answer({BUSY: lagging()})))
    assert list(told.entries) == [P0, BUSY]
    assert front.to_broker() == second


# -- which connections are throttled


def test_fetch_of_another_follower_does_not_affect_the_first() -> None:
    front = Front(listed(1_000))
    front.see(P0, BUSY)
    front.use_up()
    front.client(front.fetch(P0, BUSY))
    assert front.client(front.fetch(P0, number=2, replica_id=4)) == b""
    assert list(front.read(front.broker(front.answer({BUSY: lagging()}))).entries) == [P0, BUSY]
    assert read_request(front.to_broker(), 17).replica_id == 4


def test_throttle_that_begins_during_a_fetch_does_not_trim_its_response() -> None:
    front = Front(None)
    request, response = front.fetch(P0, session=(0, 0)), front.answer({P0: lagging(batches(900)[:700])})
    assert front.client(request) == request
    front.throttle.update(listed(1_000), now_ms=front.now_ms)
    assert front.client(front.fetch(number=2, session=(77, 1))) == b""
    out = front.broker(response)
    assert out[: len(response)] == response
    assert front.read(out[len(response) :]).error_code == SESSION_NOT_FOUND
    asked = read_request(front.client(front.fetch(P0, number=3, session=(0, 0))), 17)
    assert (asked.session_id, asked.session_epoch) == (77, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_untrusted_replica_is_a_consumer(version: int) -> None:
    front = Front(listed(1_000), version, is_inter_broker=False, rules=(A_TIGHT_RULE,))
    front.use_up()
    request = front.fetch(P0)
    response = front.answer({P0: lagging(batches(9_000))})
    assert read_request(front.client(request), version).parts == {P0: Part(1, MiB, 4 if version >= 9 else -1)}
    assert len(front.broker(response)) == len(response)
    assert front.muted_for_ms > 0
    assert front.quota.total == 1_000_000
    assert front.bucket("fetch", client_id="broker-9-fetcher-0").usage.amount > 9_000


@pytest.mark.parametrize(("brokers", "is_trimmed"), [({"broker1"}, True), ({"another"}, False), (set(), False)])
def test_a_principal_of_the_brokers_is_throttled_after_its_login(brokers: set[str], is_trimmed: bool) -> None:
    front = Front(listed(1_000), is_inter_broker=False, principals=Principals(brokers=frozenset(brokers)))
    front.use_up()
    for step in ("before", "after"):
        if step == "after":
            front.client(handshake_request("PLAIN"))
            front.broker(handshake_response())
            front.client(authenticate_request(b"\0broker1\0secret"))
            front.broker(authenticate_response())
        request = front.fetch(P0, session=(0, 0))
        asked = front.client(request)
        out = front.broker(front.answer({P0: lagging(batches(5_000))}))
        believed = is_trimmed and step == "after"  # the name counts only after the login
        assert (asked == request) is not believed
        assert len(front.read(out).entries[P0].records) == (0 if believed else 5_000)


def test_unknown_fetch_version_is_forwarded_and_counted() -> None:
    front = Front(listed(1_000), 18)
    front.held(P0)
    front.wait(500)
    assert front.to_client()
    newer = bytearray(front.fetch(P0, number=3))
    newer[6:8] = pack(">h", 19)
    assert front.client(bytes(newer)) == newer
    response = front.answer({P0: lagging(batches(9_000)[:5_000])}, 3)
    assert front.broker(response[:40], response[40:]) == response
    assert front.listening.counters.unknown_apis[ApiKey.FETCH] == 1
    assert front.client(front.fetch(P0, number=4)), "what was seen before it is forgotten"


def test_held_fetch_becomes_a_consumer_fetch_when_the_listener_stops_trusting_replicas() -> None:
    front = Front(listed(1_000), rules=(A_TIGHT_RULE,))
    front.held(P0)
    front.listening.policy = Policy(104_857_600, Enforcement.RESPOND, False, "sub")
    front.wait(500)
    assert list(read_request(front.to_broker(), 17).parts) == [P0]
    assert front.session.needs.wake_at_ms == 0
    response = front.answer({P0: lagging(batches(9_000))}, 2)
    assert len(front.broker(response)) == len(response)


# -- what a session counts, and what it has when it ends


def test_held_bytes_are_reported() -> None:
    front = Front(listed(1e9))
    front.client(front.fetch(P0))
    response = front.answer({P0: lagging(batches(300_000))})
    for at in range(0, len(response) - 1_000, 1_000):
        assert front.broker(response[at : at + 6], response[at + 6 : at + 1_000]) == b"", "its head in two pieces"
        assert front.session.held_bytes == at + 1_000
        assert not front.session.has_answered
        assert front.session.is_owed
    assert front.read(front.broker(response[at + 1_000 :])).entries[P0].records == batches(300_000)
    assert front.session.held_bytes == 0
    assert front.session.is_idle
    assert not front.session.is_owed


def test_release_forwards_a_held_fetch() -> None:
    front = Front(listed(1_000))
    front.held(P0)
    front.session.release(now_ms=front.now_ms)
    assert front.to_broker() == front.fetch(P0, number=2)
    response = front.answer({P0: lagging(batches(90_000))}, 2)
    assert front.broker(response) == response
    assert front.session.is_idle
    assert front.client(front.fetch(P0, number=3)) == front.fetch(P0, number=3)


def test_drain_does_not_forward_a_held_fetch() -> None:
    front = Front(listed(1_000))
    front.held(P0)
    front.session.take_no_more()
    assert front.session.has_answered
    front.wait(1_000)
    assert (front.to_broker(), front.to_client()) == (b"", b"")
    front.session.release(now_ms=front.now_ms)
    assert (front.to_broker(), front.to_client()) == (b"", b"")
    assert front.session.has_answered


# -- moved leaders


@pytest.mark.parametrize("version", [16, 17, 18])
def test_moved_leaders_get_proxy_addresses_in_a_trimmed_response(version: int) -> None:
    met: list[object] = []
    addresses = Addresses(lambda brokers, is_all, cluster_id: met.append(brokers))
    addresses.advertised = {2: (b"proxy.example", 9192)}
    front = Front(listed(1_000), version, addresses=addresses)
    front.see(P0, BUSY)
    front.use_up()
    front.client(front.fetch(P0, BUSY))
    endpoint = pack(">i", 2) + uvarint(12) + b"own.example" + pack(">i", 9092) + b"\0\0"
    array = b"\x02" + endpoint
    tags = b"\x01\0" + uvarint(len(array)) + array
    response = front.answer({BUSY: Entry(6, -1, -1, -1, b"")})[4:-1] + tags
    response = pack(">i", len(response)) + response
    out = front.broker(response[:30], response[30:])
    assert b"own.example" not in out
    assert out.count(b"proxy.example" + pack(">i", 9192)) == 1
    assert int.from_bytes(out[:4]) == len(out) - 4
    assert met


# -- attacks


def test_a_follower_that_never_ends_its_fetch_is_refused() -> None:
    front = Front(listed(1_000))
    with pytest.raises(HeadTooLong):
        front.client(pack(">i", 100_000_000) + front.fetch(P0)[4:], bytes(MAX_REPLICA_FETCH_BYTES))
    front = Front(listed(1_000))
    front.client(pack(">i", MAX_REPLICA_FETCH_BYTES) + front.fetch(P0)[4:], bytes(MAX_REPLICA_FETCH_BYTES // 2))
    assert front.session.held_bytes < MAX_REPLICA_FETCH_BYTES


def test_enormous_response_is_refused() -> None:
    front = Front(listed(1_000))
    front.client(front.fetch(P0))
    with pytest.raises(FrameTooLarge):
        front.broker(pack(">ii", 2**31 - 1, 1) + bytes(100))


def test_response_to_another_request_is_refused() -> None:
    front = Front(listed(1_000))
    front.client(front.fetch(P0))
    with pytest.raises(UnexpectedResponse):
        front.broker(front.answer({P0: lagging()}, 2))
    front.session.close(now_ms=front.now_ms, has_passed=False)
