"""The simulated clients with the simulated brokers, and no proxy between: what they say of themselves is true."""

import pytest

from tests.simulation.brokers.cluster import Cluster
from tests.simulation.brokers.connection import Connection
from tests.simulation.brokers.handlers import HANDLERS
from tests.simulation.brokers.profiles import LISTENERS_WITH_LOGIN, VERSION_2_4
from tests.simulation.clients import profiles
from tests.simulation.clients.admin import ALTER, CREATE, DELETE, DESCRIBE, GROW, Admin, QuotaChoice
from tests.simulation.clients.consumer import Consumer
from tests.simulation.clients.group_member import GroupMember
from tests.simulation.clients.producer import Load, Producer
from tests.simulation.clients.profiles import Habits, Profile
from tests.simulation.clients.setting import Login, Setting
from tests.simulation.clients.share_member import ShareMember
from tests.simulation.ledger import Entity
from tests.simulation.wire import create_topics, fetch, produce, share_fetch
from tests.simulation.wire.common import RequestHeader
from tests.simulation.world import World

_RESETS = Habits(resets=0.05, splits=0.3)
_OUT_OF_ORDER_SEQUENCE = 45


def _setting(
    name: str, profile: Profile = profiles.JAVA, habits: Habits = profiles.HEALTHY, login: Login | None = None
) -> Setting:
    entity = Entity(login.user if login else "ANONYMOUS", name, "10.0.2.1")
    bootstrap = tuple((f"10.0.1.{node}", 9092) for node in (1, 2, 3))
    return Setting(name, profile, entity, entity.host, bootstrap, habits, login)


def _run(world: World, seconds: float) -> None:
    world.scheduler.run_until(world.clock.now_ns + int(seconds * 1e9))


@pytest.fixture
def world() -> World:
    return World(1)


@pytest.fixture
def cluster(world: World) -> Cluster:
    cluster = Cluster(world, [1, 2, 3])
    cluster.start()
    cluster.create_topic("t", 3, replication=2)
    return cluster


def _produce_errors(world: World) -> set[int]:
    return {
        answer.error_code
        for exchange in world.ledger.exchanges.values()
        if exchange.api_key == profiles.PRODUCE and exchange.response is not None
        for topic in produce.parse_response(exchange.response, exchange.api_version).topics
        for answer in topic.partitions
    }


def _tokens(cluster: Cluster) -> list[str]:
    return [token for index in range(3) for token in cluster.tokens_of("t", index)]


@pytest.mark.parametrize("profile", [profiles.JAVA, profiles.LIBRDKAFKA, profiles.AIOKAFKA, profiles.FRANZ_GO])
def test_idempotent_producer_writes_each_batch_once_and_in_order(
    world: World, cluster: Cluster, profile: Profile
) -> None:
    """Its connections are reset and brokers crash, and yet no batch comes twice or out of order."""
    world.network.latency_ms = (5.0, 30.0)  # so that several requests are in flight
    producer = Producer(
        world, _setting("p", profile, _RESETS), ["t"], Load((300,), 180.0, 12, 1_000), is_idempotent=True
    )
    producer.start()
    for node in (1, 2, 3):
        _run(world, 4)
        cluster.brokers[node].crash()
        _run(world, 3)
        cluster.brokers[node].start()
    _run(world, 60)
    assert len(producer.acknowledged) == 1_000
    assert not producer.failed
    assert not producer.may_repeat
    tokens = _tokens(cluster)
    assert len(tokens) == len(set(tokens)) == 1_000
    for index in range(3):
        numbers = [int(token.split("-")[1]) for token in cluster.tokens_of("t", index)]
        assert numbers == sorted(numbers)
    assert _OUT_OF_ORDER_SEQUENCE not in _produce_errors(world)
    exchanges = [each for each in world.ledger.exchanges.values() if each.api_key == profiles.PRODUCE]
    assert len(exchanges) > 300
    assert any(each.received_ms < 0 for each in exchanges)


def test_plain_producer_repeats_what_was_not_answered(world: World, cluster: Cluster) -> None:
    """A retry without sequences writes the batch again. The log shows it, so the test above can fail."""
    producer = Producer(world, _setting("p", habits=_RESETS), ["t"], Load((300,), 30.0, 2, 1_000))
    producer.start()
    _run(world, 80)
    assert len(producer.acknowledged) == 1_000
    tokens = _tokens(cluster)
    assert len(tokens) > len(set(tokens)) == 1_000


def test_acknowledged_offsets_are_those_in_the_log(world: World, cluster: Cluster) -> None:
    """Producer, log and consumer agree on each offset and token, with sessions and without."""
    producer = Producer(world, _setting("p"), ["t"], Load((300, 200_000), 20.0, 2, 500), is_idempotent=True)
    readers = [Consumer(world, _setting(f"c{each.name}", each), ["t"]) for each in profiles.PROFILES[:-1]]
    for client in (producer, *readers):
        client.start()
    _run(world, 30)
    assert len(producer.acknowledged) == 500
    assert sorted(row[3] for row in producer.acknowledged) == sorted(_tokens(cluster))
    for reader in readers:
        assert sorted(reader.read) == sorted(producer.acknowledged), reader.setting.name
        reader.stop()
    producer.stop()
    _run(world, 20)
    assert all(client.is_done for client in (producer, *readers))
    # Each reader with sessions opens one with each of the three brokers, and keeps it.
    fetches = [each for each in world.ledger.exchanges.values() if each.api_key == profiles.FETCH]
    epochs = [fetch.parse_request(each.request).session_epoch for each in fetches if each.client == "cJava"]
    assert epochs.count(0) == 3
    assert max(epochs) > 10


def test_group_member_keeps_its_session(world: World, cluster: Cluster) -> None:
    """It sends a heartbeat every 3 s, commits what it has read, and joins again when its coordinator dies."""
    Producer(world, _setting("p"), ["t"], Load((300,), 100.0, 2, 300)).start()
    members = [
        GroupMember(world, _setting(f"m{each.name}", each), ["t"], each.name, pause_ms=200.0)
        for each in profiles.PROFILES
    ]
    for member in members:
        member.start()
    _run(world, 40)
    for member in members:
        assert 11 <= len(member.heartbeats) <= 14, member.setting.name
        assert max(took_ms for _, took_ms in member.heartbeats) < 100
        assert len(member.read) == 300
        assert member.committed == member.positions
        assert not member.sessions_lost
    cluster.brokers[1].crash()
    _run(world, 40)
    for member in members:
        assert len(member.heartbeats) >= 20, member.setting.name
        member.stop()
    _run(world, 20)
    assert all(member.is_done for member in members)


def test_group_member_goes_on_from_its_committed_offsets(world: World, cluster: Cluster) -> None:
    """Another member of the same group does not read again what was committed."""
    Producer(world, _setting("p"), ["t"], Load((300,), 10.0, 2, 100)).start()
    first = GroupMember(world, _setting("m1"), ["t"], "g")
    first.start()
    _run(world, 20)
    first.stop()
    _run(world, 10)
    second = GroupMember(world, _setting("m2"), ["t"], "g")
    second.start()
    _run(world, 20)
    assert len(first.read) == 100
    assert second.read == []
    assert second.positions == first.committed


def test_share_members_accept_each_batch_once(world: World, cluster: Cluster) -> None:
    """Two members share the work; what one gives back comes again."""
    Producer(world, _setting("p"), ["t"], Load((300,), 20.0, 2, 200)).start()
    members = [ShareMember(world, _setting(f"m{number}"), ["t"], "g", pause_ms=10.0) for number in range(2)]
    for member in members:
        member.start()
    _run(world, 30)
    for member in members:
        member.stop()
    _run(world, 20)
    accepted = [row[3] for member in members for row in member.accepted]
    read = [row[3] for member in members for row in member.read]
    assert all(member.read and member.settled > 10 and member.is_done for member in members)
    assert len(accepted) == len(set(accepted)) > 150
    assert len(read) > len(set(read)) == 200


def test_share_member_begins_anew_after_a_reset(world: World, cluster: Cluster) -> None:
    """Its first request of a session acknowledges nothing: the broker would refuse it."""
    Producer(world, _setting("p"), ["t"], Load((300,), 20.0, 2, 200)).start()
    member = ShareMember(world, _setting("m", habits=_RESETS), ["t"], "g", pause_ms=10.0)
    member.start()
    _run(world, 60)
    assert len({row[3] for row in member.read}) == 200
    requests = [each.request for each in world.ledger.exchanges.values() if each.api_key == profiles.SHARE_FETCH]
    first = [request for request in map(share_fetch.parse_request, requests) if request.session_epoch == 0]
    assert len(first) > 3
    assert not any(part.acknowledged for request in first for topic in request.topics for part in topic.partitions)


def test_idempotent_producer_keeps_the_order_when_a_batch_is_refused(world: World, cluster: Cluster) -> None:
    """The batches behind a refused one are refused for their sequence. All are sent again, in order."""
    world.network.latency_ms = (5.0, 30.0)
    for broker in cluster.brokers.values():
        broker.refusal_share = 0.1
    producer = Producer(world, _setting("p"), ["t"], Load((300,), 180.0, 12, 500), is_idempotent=True)
    producer.start()
    _run(world, 110)
    assert len(producer.acknowledged) == len(set(_tokens(cluster))) == len(_tokens(cluster)) == 500
    assert not producer.may_repeat
    for index in range(3):
        numbers = [int(token.split("-")[1]) for token in cluster.tokens_of("t", index)]
        assert numbers == sorted(numbers)
    assert _OUT_OF_ORDER_SEQUENCE in _produce_errors(world)


@pytest.mark.parametrize("profile", [profiles.JAVA, profiles.OLD])
def test_administrator_knows_what_was_done(
    world: World, cluster: Cluster, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topics and quotas are those of the cluster, after refusals too."""
    alice = (("user", "alice"),)
    choices = [QuotaChoice(alice, "producer_byte_rate", (1_000.0, 2_000.0, None))]
    create = HANDLERS[profiles.CREATE_TOPICS]
    refused: list[float] = []

    def refuse(connection: Connection, header: RequestHeader, frame: bytes) -> None:
        """Refuse every second request, as a broker whose quota is used up."""
        now_ms = world.clock.now_ms
        if refused and now_ms - refused[-1] >= 700:
            refused.clear()
            create(connection, header, frame)
            return
        refused.append(now_ms)
        topics = [create_topics.CreatedTopic(topic.name, 89) for topic in create_topics.parse_request(frame).topics]
        response = create_topics.response(header.correlation_id, header.api_version, topics, throttle_ms=700)
        connection.respond(header, response, throttle_ms=700)

    monkeypatch.setitem(HANDLERS, profiles.CREATE_TOPICS, refuse)
    admin = Admin(world, _setting("a", profile), every_ms=500.0, choices=choices, most_operations=100)
    admin.start()
    _run(world, 200)
    kinds = {operation.kind for operation in admin.operations if not operation.error_code}
    assert kinds == {CREATE, GROW, DELETE, ALTER, DESCRIBE}
    assert len(admin.operations) == 100
    have = {name: len(topic.partitions) for name, topic in cluster.topics.items() if name != "t"}
    assert have == admin.partitions
    assert not admin.uncertain
    described = [each for each in admin.operations if each.kind == DESCRIBE]
    assert any(each.entries for each in described)
    created = [each for each in admin.operations if each.kind == CREATE]
    assert all(each.refusals == [700] and each.attempts == 2 for each in created)
    assert all(each.ended_ms - each.begun_ms > 700 for each in created)


def test_login_comes_first(world: World) -> None:
    """A user with the right password works, one with a wrong password is refused again and again."""
    cluster = Cluster(world, [1, 2, 3], listeners=LISTENERS_WITH_LOGIN, versions=VERSION_2_4)
    cluster.users = {"alice": "secret"}
    cluster.start()
    cluster.create_topic("t", 3)
    good = Producer(world, _setting("p1", login=Login("alice", "secret")), ["t"], Load((300,), 100.0, 1, 20))
    bad = Producer(world, _setting("p2", login=Login("alice", "wrong")), ["t"], Load((300,), 100.0, 1, 20))
    good.start()
    bad.start()
    _run(world, 20)
    assert len(good.acknowledged) == 20
    assert not bad.acknowledged
    mine = [each for each in world.ledger.exchanges.values() if each.client == "p1"]
    assert [each.entity.user for each in mine[:5]] == ["ANONYMOUS"] * 4 + ["alice"]
    assert [each.api_key for each in mine[:5]] == [18, 18, 17, 36, 3]
    attempts = [each for each in world.ledger.exchanges.values() if each.client == "p2" and each.api_key == 36]
    assert 10 < len(attempts) < 60
