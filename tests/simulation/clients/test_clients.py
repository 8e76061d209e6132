"""The simulated clients at simulated brokers, without a proxy: they behave as the real ones, and what they say is true.

They notice what must not happen, and come to rest.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.brokers.cluster import Cluster
from tests.simulation.brokers.connection import Connection
from tests.simulation.brokers.handlers import HANDLERS
from tests.simulation.brokers.profiles import LISTENERS_WITH_LOGIN, VERSION_2_4
from tests.simulation.clients import profiles
from tests.simulation.clients.admin import ALTER, CREATE, DELETE, DESCRIBE, GROW, Admin, QuotaChoice
from tests.simulation.clients.client import Client
from tests.simulation.clients.consumer import Consumer
from tests.simulation.clients.group_member import GroupMember
from tests.simulation.clients.producer import Load, Producer
from tests.simulation.clients.profiles import HEALTHY, Habits, Profile
from tests.simulation.clients.setting import Login, Setting, proxy_header
from tests.simulation.clients.share_member import ShareMember
from tests.simulation.clients.stranger import FLOOD, MANNERS, Stranger
from tests.simulation.ledger import Entity
from tests.simulation.violation import Violation
from tests.simulation.wire import administration, transfer
from tests.simulation.wire.common import RequestHeader
from tests.simulation.world import World

_RESETS = Habits(resets=0.05, splits=0.3)
# Gives the frames that are written instead of a response of some version.
Twist = Callable[[bytes, int], list[bytes]]


def a_cluster(seed: int = 1, **more: Any) -> Cluster:
    cluster = Cluster(World(seed), [1, 2, 3], **more)
    cluster.start()
    cluster.create_topic("t", 3, replication=2)
    return cluster


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster()


def _setting(name: str, profile: Profile = profiles.JAVA, habits: Habits = HEALTHY, user: str = "") -> Setting:
    entity = Entity(user or "ANONYMOUS", name, "10.0.2.1")
    bootstrap = tuple((f"10.0.1.{node}", 9092) for node in (1, 2, 3))
    return Setting(name, profile, entity, entity.host, bootstrap, habits, Login("alice", user) if user else None)


def _start(cluster: Cluster, kind: Callable[..., Any], name: str, *args: Any, **more: Any) -> Any:
    setting = _setting(name, *(more.pop(key) for key in ("profile", "habits") if key in more))
    client = kind(cluster.world, setting, *args, **more)
    client.start()
    return client


def _run(cluster: Cluster, seconds: float) -> None:
    cluster.world.scheduler.run_until(cluster.world.clock.now_ns + int(seconds * 1e9))


def _tokens(cluster: Cluster, index: int) -> list[str]:
    return [batch.token for batch in cluster.partitions["t", index].log.batches]


def _all_tokens(cluster: Cluster) -> list[str]:
    return [token for index in range(3) for token in _tokens(cluster, index)]


def test_everything_that_is_produced_is_read(cluster: Cluster) -> None:
    """Producer, log and consumer agree on each offset and token, with sessions and without."""
    load = Load((100, 5_000), 50.0, 3, 40)
    producers = [_start(cluster, Producer, f"p{one.name}", ["t"], load, profile=one) for one in profiles.PROFILES]
    readers = [
        _start(cluster, Consumer, f"c{one.name}", ["t"], pause_ms=100.0, profile=one) for one in profiles.PROFILES
    ]
    _run(cluster, 60)
    acknowledged = sorted(row for producer in producers for row in producer.acknowledged)
    assert [len(producer.acknowledged) for producer in producers] == [40] * len(producers)
    assert sorted(row[3] for row in acknowledged) == sorted(_all_tokens(cluster))
    for reader in readers:
        assert sorted(reader.read) == acknowledged, reader.setting.name
    for client in (*producers, *readers):
        client.stop()
    _run(cluster, 20)
    assert all(client.is_done for client in (*producers, *readers))
    # One with sessions opens one with each of the three brokers, and keeps it.
    exchanges = [one for one in cluster.world.ledger.exchanges.values() if one.client == "cJava" and one.api_key == 1]
    epochs = [transfer.fetch.parse_request(one.request).session_epoch for one in exchanges]
    assert epochs.count(0) == 3
    assert max(epochs) > 10


def _produce_and_crash(cluster: Cluster, profile: Profile, *, is_idempotent: bool) -> Producer:
    cluster.world.network.latency_ms = (5.0, 30.0)  # so that several requests are in flight
    more: dict[str, Any] = {"profile": profile, "habits": _RESETS, "is_idempotent": is_idempotent}
    producer: Producer = _start(cluster, Producer, "p", ["t"], Load((300,), 180.0, 12, 1_000), **more)
    for node in (1, 2, 3):
        _run(cluster, 4)
        cluster.brokers[node].crash()
        _run(cluster, 3)
        cluster.brokers[node].start()
    _run(cluster, 60)
    return producer


@pytest.mark.parametrize("profile", [profiles.JAVA, profiles.LIBRDKAFKA, profiles.AIOKAFKA, profiles.FRANZ_GO])
def test_idempotent_producer_writes_each_batch_once_and_in_order(cluster: Cluster, profile: Profile) -> None:
    """Its connections are reset and brokers crash, and yet no batch comes twice or out of order."""
    producer = _produce_and_crash(cluster, profile, is_idempotent=True)
    assert (len(producer.acknowledged), producer.failed, producer.may_repeat) == (1_000, [], set())
    assert len(_all_tokens(cluster)) == len(set(_all_tokens(cluster))) == 1_000
    for index in range(3):
        numbers = [int(token.split("-")[1]) for token in _tokens(cluster, index)]
        assert numbers == sorted(numbers)


def test_plain_producer_repeats_what_was_not_answered(cluster: Cluster) -> None:
    """A retry without sequences writes the batch again. The log shows it, so the test above can fail."""
    producer = _produce_and_crash(cluster, profiles.JAVA, is_idempotent=False)
    assert len(producer.acknowledged) == 1_000
    assert len(_all_tokens(cluster)) > len(set(_all_tokens(cluster))) == 1_000


def test_idempotent_producer_keeps_the_order_when_a_batch_is_refused(cluster: Cluster) -> None:
    """The batches behind a refused one are refused for their sequence. All are sent again, in order."""
    cluster.world.network.latency_ms = (5.0, 30.0)
    for broker in cluster.brokers.values():
        broker.refusal_share = 0.1
    producer = _start(cluster, Producer, "p", ["t"], Load((300,), 180.0, 12, 500), is_idempotent=True)
    _run(cluster, 110)
    assert len(producer.acknowledged) == len(set(_all_tokens(cluster))) == len(_all_tokens(cluster)) == 500
    for index in range(3):
        numbers = [int(token.split("-")[1]) for token in _tokens(cluster, index)]
        assert numbers == sorted(numbers)


@pytest.fixture
def twist(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Twist], None]:
    """Return what lets brokers write something else instead of their responses to an API."""

    def begin(api_key: int, change: Twist) -> None:
        respond = Connection.respond

        def twisted(self: Connection, header: RequestHeader, response: bytes, **more: Any) -> None:
            if header.api_key != api_key:
                respond(self, header, response, **more)
                return
            self.broker.world.ledger.answered(header.correlation_id, response)
            for frame in change(response, header.api_version):
                self.end.write(frame)
            self.finish()

        monkeypatch.setattr(Connection, "respond", twisted)

    return begin


def _swapped() -> Twist:
    held: list[bytes] = []

    def swap(frame: bytes, _version: int) -> list[bytes]:
        held.append(frame)
        if len(held) < 2:
            return []
        swapped, held[:] = held[::-1], []
        return swapped

    return swap


@pytest.mark.parametrize(
    ("api_key", "change", "text"),
    [
        (0, lambda one, _: [one] * 2, "a second response to p#"),
        (0, _swapped(), "out of order"),
        (0, lambda *_: [bytes(3) + b"\4" + bytes(3) + b"\7"], "which nobody has sent"),
        (0, lambda one, _: [(len(one) - 3).to_bytes(4) + one[4:] + b"\0"], "cannot be read"),
        (1, lambda one, _: [one[:-40] + bytes([one[-40] ^ 1]) + one[-39:]], "damaged records"),
    ],
)
def test_response_that_must_not_be_is_a_violation(
    cluster: Cluster, twist: Callable[[int, Twist], None], api_key: int, change: Twist, text: str
) -> None:
    twist(api_key, lambda one, version: change(one, version) if api_key == 0 or len(one) > 1_000 else [one])
    _start(cluster, Producer, "p", ["t"], Load((1_000,), 0.01, 1, 9), profile=profiles.LIBRDKAFKA)
    _start(cluster, Consumer, "c", ["t"])
    with pytest.raises(Violation, match=text) as violation:
        _run(cluster, 10)
    assert violation.value.check == "answers"


@pytest.mark.parametrize("profile", profiles.PROFILES, ids=[profile.name for profile in profiles.PROFILES])
def test_throttle_time_is_heeded_by_those_who_heed_it(
    cluster: Cluster, profile: Profile, twist: Callable[[int, Twist], None]
) -> None:
    """Java and franz-go send nothing for 3 s after such a response; the others go on."""

    def throttled(frame: bytes, version: int) -> list[bytes]:
        told = transfer.produce.parse_response(frame, version)
        return [transfer.produce.response(told.correlation_id, version, told.topics, throttle_ms=3_000)]

    twist(0, throttled)
    producer = _start(cluster, Producer, "p", ["t"], Load((100,), 10.0, 1, 30), profile=profile)
    _run(cluster, 120)
    assert len(producer.acknowledged) == 30
    exchanges = [one for one in cluster.world.ledger.exchanges.values() if one.api_key == 0]
    times_ms = [one.sent_ms for one in exchanges if one.broker == exchanges[0].broker]
    waits = max(later - earlier for earlier, later in itertools.pairwise(times_ms)) > 2_900
    assert waits == (profile.name in ("Java", "franz-go"))


def test_request_without_a_response_ends_the_connection(
    cluster: Cluster, twist: Callable[[int, Twist], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the request's time-out the client connects anew, and sends the batch again."""
    with monkeypatch.context():
        twist(0, lambda *_: [])
        producer = _start(cluster, Producer, "p", ["t"], Load((100,), 10.0, 1, 1))
        _run(cluster, 79)
    monkeypatch.undo()
    _run(cluster, 40)
    sent = [one.sent_ms for one in cluster.world.ledger.exchanges.values() if one.api_key == 0]
    assert [round((later - earlier) / 1_000) for earlier, later in itertools.pairwise(sent)] == [30, 30, 30]
    assert [token for _, _, _, token in producer.acknowledged] == ["p-1"]


def test_batch_fails_for_good_after_the_delivery_timeout(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        broker.refusal_share = 1.0
    producer = _start(cluster, Producer, "p", ["t"], Load((100,), 10.0, 1, 2))
    _run(cluster, 119)
    assert not producer.failed
    _run(cluster, 5)
    assert sorted(token for _, _, token in producer.failed) == ["p-1", "p-2"]


def test_broken_clients_come_to_rest(cluster: Cluster) -> None:
    """Resets, stalls and deaf readers stop nobody for good."""
    clients, more = list[Client](), dict[str, Any](habits=profiles.BROKEN)
    for number, profile in enumerate(profiles.PROFILES):
        load = Load((100, 5_000, 300_000), 300.0, 2, 60)
        clients.append(_start(cluster, Producer, f"p{number}", ["t"], load, profile=profile, **more))
        clients.append(_start(cluster, Consumer, f"c{number}", ["t"], pause_ms=200.0, profile=profile, **more))
    _run(cluster, 60)
    for client in clients:
        client.stop()
    _run(cluster, 200)
    assert [client.setting.name for client in clients if not client.is_done] == []
    assert sum(len(client.acknowledged) for client in clients if isinstance(client, Producer)) > 200


def test_strangers_come_and_go(cluster: Cluster) -> None:
    """Nothing is left of them after ``stop``."""
    strangers = [
        _start(cluster, Stranger, f"s{manner}", manner, every_ms=1_000, at_once=20 if manner == FLOOD else 1)
        for manner in MANNERS
    ]
    _run(cluster, 30)
    assert cluster.world.ledger.next_connection() > 400
    for stranger in strangers:
        stranger.stop()
        assert stranger.is_done


def test_group_member_keeps_its_session(cluster: Cluster) -> None:
    """It sends a heartbeat every 3 s, commits what it has read, and joins again when its coordinator dies."""
    _start(cluster, Producer, "p", ["t"], Load((300,), 100.0, 2, 300))
    members = [
        _start(cluster, GroupMember, f"m{one.name}", ["t"], one.name, pause_ms=200.0, profile=one)
        for one in profiles.PROFILES
    ]

    def heartbeats(member: GroupMember) -> int:
        exchanges = cluster.world.ledger.exchanges.values()
        return sum(one.client == member.setting.name and one.api_key == 12 for one in exchanges)

    _run(cluster, 40)
    for member in members:
        assert 11 <= heartbeats(member) <= 14, member.setting.name
        assert len(member.read) == 300
        assert member.committed == member.positions
    cluster.brokers[1].crash()
    _run(cluster, 40)
    assert min(map(heartbeats, members)) >= 20
    # Another member of the same group does not read again what was committed.
    other = _start(cluster, GroupMember, "other", ["t"], members[0].group)
    _run(cluster, 20)
    assert (other.read, other.positions) == ([], members[0].committed)
    for member in (*members, other):
        member.stop()
    _run(cluster, 20)
    assert all(member.is_done for member in members)


def test_share_members_accept_each_batch_once(cluster: Cluster) -> None:
    """Two members share the work; what one gives back comes again."""
    _start(cluster, Producer, "p", ["t"], Load((300,), 20.0, 2, 200))
    members = [_start(cluster, ShareMember, f"m{number}", ["t"], "g", pause_ms=10.0) for number in range(2)]
    _run(cluster, 30)
    for member in members:
        member.stop()
    _run(cluster, 20)
    accepted = [row[3] for member in members for row in member.accepted]
    read = [row[3] for member in members for row in member.read]
    assert all(member.read and member.settled > 10 and member.is_done for member in members)
    assert len(accepted) == len(set(accepted)) > 150
    assert len(read) > len(set(read)) == 200


@pytest.mark.parametrize("profile", [profiles.JAVA, profiles.OLD])
def test_administrator_knows_what_was_done(cluster: Cluster, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topics and quotas are those of the cluster, after refusals too."""
    choices = [QuotaChoice((("user", "alice"),), "producer_byte_rate", (1_000.0, 2_000.0, None))]
    create = HANDLERS[19]
    refused_ms: list[float] = []

    def refuse(connection: Connection, header: RequestHeader, frame: bytes) -> None:
        """Refuse every second request, as a broker whose quota is used up."""
        now_ms = cluster.world.clock.now_ms
        if refused_ms and now_ms - refused_ms[-1] >= 700:
            refused_ms.clear()
            create(connection, header, frame)
            return
        refused_ms.append(now_ms)
        topics = [
            administration.CreatedTopic(topic.name, 89)
            for topic in administration.create_topics.parse_request(frame).topics
        ]
        response = administration.create_topics.response(
            header.correlation_id, header.api_version, topics, throttle_ms=700
        )
        connection.respond(header, response, throttle_ms=700)

    monkeypatch.setitem(HANDLERS, 19, refuse)
    more: dict[str, Any] = {"choices": choices, "most_operations": 100}
    admin = _start(cluster, Admin, "a", profile=profile, every_ms=500.0, **more)
    _run(cluster, 200)
    done = {operation.kind for operation in admin.operations if not operation.error_code}
    assert done == {CREATE, GROW, DELETE, ALTER, DESCRIBE}
    assert len(admin.operations) == 100
    have = {name: len(topic.partitions) for name, topic in cluster.topics.items() if name != "t"}
    assert have == admin.partitions
    assert any(one.entries for one in admin.operations if one.kind == DESCRIBE)


def test_login_comes_first() -> None:
    """A user with the right password works, one with a wrong password is refused again and again."""
    cluster = a_cluster(listeners=LISTENERS_WITH_LOGIN, versions=VERSION_2_4)
    cluster.users = {"alice": "alice"}
    load = Load((300,), 100.0, 1, 20)
    users = [Producer(cluster.world, _setting(user, user=user), ["t"], load) for user in ("alice", "wrong")]
    for one in users:
        one.start()
    _run(cluster, 20)
    assert [len(one.acknowledged) for one in users] == [20, 0]
    mine, others = (
        [one for one in cluster.world.ledger.exchanges.values() if one.client == name] for name in ("alice", "wrong")
    )
    assert [one.entity.user for one in mine[:5]] == ["ANONYMOUS"] * 4 + ["alice"]
    assert [one.api_key for one in mine[:5]] == [18, 18, 17, 36, 3]
    assert 10 < sum(one.api_key == 36 for one in others) < 60


def test_proxy_header_comes_first() -> None:
    """It claims the client's host, in both versions of the protocol."""
    to = ("10.0.0.1", 9092)
    assert proxy_header(1, "192.0.2.7", 40_000, to) == b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 9092\r\n"
    assert proxy_header(2, "192.0.2.7", 40_000, to)[12:] == bytes.fromhex("2111000cc00002070a0000019c402384")
