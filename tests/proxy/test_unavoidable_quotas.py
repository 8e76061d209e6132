"""Tests attempts to evade a quota. Each test makes one attack, and counts the bytes that the attackers gain.

Attackers ignore throttle times, and use any number of connections and names. The clock is simulated.
"""

from collections.abc import Iterable

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session import Session
from tests.support.frames import (
    FETCH,
    fetch_request,
    fetch_response,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

LIMIT = 500
ROOM = 5_000  # bytes that the limit allows in a window
BY_CLIENT_ID = QuotaRule(client_id=DEFAULT, producer_byte_rate=float(LIMIT), consumer_byte_rate=float(LIMIT))
MUTING = pytest.mark.parametrize("enforcement", [Enforcement.RESPOND, Enforcement.DELAY])


class Scene:
    """A broker that answers at once, and the connections of clients that try to evade its quotas."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.wires: list[Wire] = []
        self.produced_bytes = 0
        self.fetched_bytes = 0
        self.batch_bytes = 1_000  # the size of the broker's response to a fetch

    @property
    def now_ms(self) -> int:
        return self.wire.now_ms

    def connect(self) -> Wire:
        """Open another connection to the same listener."""
        wire = Wire(*self.wire.config.quotas)
        wire.listening = self.wire.listening
        wire.session = Session(wire.listening, owner=wire)
        wire.now_ms = self.now_ms
        self.wires.append(wire)
        return wire

    def leave(self, wire: Wire) -> None:
        wire.session.close(now_ms=self.now_ms, has_passed=True)
        self.wires.remove(wire)
        self._settle()

    def produce(self, wire: Wire, *, client_id: str = "etl", size_bytes: int = 1_000, acks: int = 1) -> bool:
        """Send a Produce request if the proxy reads the connection. Return whether it does."""
        if wire.session.state.blocked_by is not None or wire.session.state.delayed_until_ms:
            return False
        passed = wire.client(produce_request(1, client_id=client_id, size_bytes=size_bytes, acks=acks))
        self._pass(wire, passed)
        self._settle()
        return True

    def fetch(self, wire: Wire, *, client_id: str = "etl", size_bytes: int = 1_000, replica_id: int = -1) -> bool:
        """Send a Fetch request if the proxy reads the connection. Return whether it does."""
        if wire.session.state.blocked_by is not None or wire.session.state.delayed_until_ms:
            return False
        self.batch_bytes = size_bytes
        self._pass(wire, wire.client(fetch_request(1, client_id=client_id, replica_id=replica_id)))
        self._settle()
        return True

    def wait(self, wait_ms: int) -> None:
        """Let time pass for all connections, and wake each session when its timer is due."""
        end_ms = self.now_ms + wait_ms
        while self.now_ms < end_ms:
            due_ms = [
                wire.session.needs.wake_at_ms for wire in self.wires if wire.session.needs.wake_at_ms > self.now_ms
            ]
            step_ms = min([end_ms, *due_ms]) - self.now_ms
            self.wire.now_ms += step_ms
            for wire in self.wires:
                wire.wait(step_ms)
                self._pass(wire, wire.to_broker())
            self._settle()

    def bucket(self, client_id: str = "etl") -> Bucket:
        """Return the token bucket or rate of the Produce requests of a client-id."""
        return self.wire.bucket(client_id=client_id)

    def _pass(self, wire: Wire, data: bytes) -> None:
        at = 0
        while at < len(data):
            size_bytes, api_key = int.from_bytes(data[at : at + 4]), int.from_bytes(data[at + 4 : at + 6])
            at += 4 + size_bytes
            if api_key == FETCH:
                self.fetched_bytes += self.batch_bytes
                wire.broker(fetch_response(1, size_bytes=self.batch_bytes))
                continue
            self.produced_bytes += size_bytes
            if wire.session.state.in_flight:
                wire.broker(produce_response(1))

    def _settle(self) -> None:
        """Let the connections that the proxy has woken check again whether their request may pass."""
        while woken := self.wire.woken():
            for wire in woken:
                wire.now_ms = self.now_ms
                wire.take_turn()
                self._pass(wire, wire.to_broker())


def scene(*rules: QuotaRule, **settings: object) -> Scene:
    return Scene(Wire(*rules, **settings))  # type: ignore[arg-type]


def names(number: int) -> Iterable[str]:
    return (f"client-{n}" for n in range(number))


# -- a change of client-id on an open connection --


def test_another_client_id_in_mid_connection_does_not_end_a_mute() -> None:
    here = scene(BY_CLIENT_ID)
    wire = here.connect()
    here.produce(wire, client_id="one", size_bytes=2 * ROOM)
    assert wire.muted_for_ms == 10_000

    here.produce(wire, client_id="two")

    assert here.produced_bytes == 2 * ROOM
    assert wire.session.state.blocked_by is not None


# -- many client-ids --


def test_a_flood_of_client_ids_does_not_make_two_quotas_of_one_name() -> None:
    """While a connection uses a bucket, new connections of its client-id must find the same bucket."""
    here = scene(BY_CLIENT_ID, max_buckets=10)
    first = here.connect()
    here.produce(first, client_id="pair", size_bytes=100)
    here.wait(20_000)  # idle, and owes nothing
    for name in names(200):
        wire = here.connect()
        here.produce(wire, client_id=name, size_bytes=100)
        here.leave(wire)

    second = here.connect()
    here.produce(second, client_id="pair", size_bytes=ROOM)
    here.produce(first, client_id="pair", size_bytes=ROOM)

    assert first.muted_for_ms == 10_000


def test_bucket_table_and_kept_names_stay_bounded() -> None:
    here = scene(BY_CLIENT_ID, max_buckets=10)
    wire = here.connect()
    for number in range(500):
        here.produce(wire, client_id=f"{number:032766}", size_bytes=40_000 if number % 2 else 100_000)
        here.fetch(wire, client_id=f"{number:032766}")
        here.wait(300_000)
        for manager in here.wire.listening.quotas.managers:
            assert len(manager) <= 11
            assert all(len(bucket.tags.client_id) <= 256 for bucket in manager)

    account = wire.session.account
    assert account._client_id is None
    assert wire.session._requests.profile is None
    assert len(account.stale_buckets) == 0


# -- a consumer that claims to be a replica --


@pytest.mark.parametrize("version", [3, 11, 14, 15, 18])
def test_consumer_with_a_replica_id_pays(version: int) -> None:
    wire = Wire(BY_CLIENT_ID)

    wire.client(fetch_request(1, version=version, replica_id=2))
    wire.broker(fetch_response(1, version=version, size_bytes=2 * ROOM))

    assert wire.muted_for_ms > 0
    assert wire.bucket("fetch").usage.amount >= 2 * ROOM - 1


# -- reconnecting --


@MUTING
@pytest.mark.parametrize("acks", [0, 1])
def test_reconnecting_sheds_no_mute(enforcement: Enforcement, acks: int) -> None:
    here = scene(BY_CLIENT_ID, enforcement=enforcement)
    wire = here.connect()
    here.produce(wire, size_bytes=2 * ROOM, acks=acks)
    here.leave(wire)

    again = here.connect()
    here.produce(again)

    assert here.produced_bytes == 2 * ROOM
    here.wait(9_999)
    assert here.produced_bytes == 2 * ROOM
    here.wait(1)
    assert here.produced_bytes == 2 * ROOM + 1_000


@MUTING
def test_client_that_reconnects_for_each_request_keeps_to_the_quota(enforcement: Enforcement) -> None:
    here = scene(BY_CLIENT_ID, enforcement=enforcement)
    for _ in range(500):
        wire = here.connect()
        here.produce(wire)
        here.leave(wire)
        here.wait(100)

    assert here.produced_bytes <= LIMIT * 50 + ROOM + 1_000


# -- one huge request --


def test_the_rest_of_a_huge_request_that_is_cut_off_carries_no_second_one() -> None:
    """Bytes within a request are never read as another request."""
    here = scene(BY_CLIENT_ID)
    wire = here.connect()
    hidden = produce_request(2, client_id="hidden", size_bytes=500)
    request = produce_request(1, size_bytes=20_000)
    request = request[: -len(hidden)] + hidden

    wire.client(request[:1_000], request[1_000 : -len(hidden)], request[-len(hidden) :])
    wire.broker(produce_response(1))

    assert here.bucket().usage.amount == 20_000
    assert here.bucket("hidden").usage.amount == 0


def test_huge_response_is_charged_when_it_begins() -> None:
    here = scene(BY_CLIENT_ID)
    wire = here.connect()
    wire.client(fetch_request(1))
    wire.broker(fetch_response(1, size_bytes=1_000_000)[:100])

    assert here.wire.bucket("fetch").usage.amount == 1_000_000
    assert wire.client(fetch_request(2)) == b""


# -- pipelining --


def test_requests_sent_ahead_on_many_connections_share_the_room() -> None:
    here = scene(BY_CLIENT_ID)
    flood = b"".join(produce_request(number, size_bytes=1_000) for number in range(100))

    passed = [len(here.connect().client(flood)) // 1_004 for _ in range(10)]

    assert passed == [5] + [0] * 9
