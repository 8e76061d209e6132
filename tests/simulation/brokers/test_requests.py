"""The simulated brokers answer the requests that are not about logs."""

from collections.abc import Sequence

from tests.simulation.brokers.cluster import Cluster
from tests.simulation.brokers.profiles import LISTENERS_WITH_LOGIN, VERSION_2_4
from tests.simulation.brokers.talk import Client, batch, fetched, outcome, produced
from tests.simulation.wire import (
    alter_client_quotas,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    metadata,
    offset_commit,
    offset_fetch,
    records,
    sasl_authenticate,
    sasl_handshake,
    share,
    share_fetch,
)
from tests.simulation.world import World


def test_metadata_follows_the_cluster(client: Client, cluster: Cluster) -> None:
    frame = client.ask(metadata.request(1, 12, "tester", None))
    found = metadata.parse_response(frame, 12)
    assert [tuple(node)[:3] for node in found.brokers] == [
        (1, "10.0.1.1", 9092),
        (2, "10.0.1.2", 9092),
        (3, "10.0.1.3", 9092),
    ]
    assert [(part.partition, part.leader, part.in_sync) for part in found.topics[0].partitions] == [
        (0, 1, [1, 2]),
        (1, 1, [1, 3]),
    ]
    cluster.advertised[2, "client"] = ("10.0.0.1", 19092)
    cluster.brokers[3].crash()
    frame = client.ask(metadata.request(1, 12, "tester", [metadata.AskedTopic("t"), metadata.AskedTopic("u")]))
    found = metadata.parse_response(frame, 12)
    assert [tuple(node)[:3] for node in found.brokers] == [(1, "10.0.1.1", 9092), (2, "10.0.0.1", 19092)]
    assert found.topics[0].partitions[1].in_sync == [1]
    assert found.topics[1].error_code == 3
    by_id = metadata.AskedTopic(None, cluster.topics["t"].topic_id)
    assert metadata.parse_response(client.ask(metadata.request(1, 12, "tester", [by_id])), 12).topics[0].name == "t"


def test_versions_that_a_broker_lacks_are_told(client: Client, cluster: Cluster) -> None:
    cluster.versions = VERSION_2_4
    found = api_versions.parse_response(client.ask(api_versions.request(1, 3, "tester")), 3)
    assert {each.api_key: each[1:] for each in found.apis} == VERSION_2_4
    found = api_versions.parse_response(client.ask(api_versions.request(1, 4, "tester")), 4)
    assert (found.error_code, found.apis) == (35, [(18, 0, 3)])
    client.send(produced(batch("a")))
    assert client.has_ended or client.is_lost


def test_a_listener_that_demands_a_login_closes_what_comes_before(world: World) -> None:
    cluster = Cluster(world, [1], listeners=LISTENERS_WITH_LOGIN)
    cluster.users["alice"] = "secret"
    cluster.start()
    cluster.create_topic("t")
    stranger = Client(world, ("10.0.1.1", 9092))
    stranger.send(produced(batch("a")))
    assert stranger.has_ended or stranger.is_lost
    assert cluster.tokens_of("t", 0) == []

    def log_in(password: str) -> tuple[Client, int]:
        client = Client(world, ("10.0.1.1", 9092))
        assert sasl_handshake.parse_response(client.ask(sasl_handshake.request(1, 1, "tester")), 1).error_code == 0
        token = sasl_authenticate.plain_token("alice", password)
        frame = client.ask(sasl_authenticate.request(2, 2, "tester", token))
        return client, sasl_authenticate.parse_response(frame, 2).error_code

    refused, error = log_in("guess")
    assert error == 58
    assert refused.has_ended or refused.is_lost
    client, error = log_in("secret")
    assert error == 0
    assert outcome(client.ask(produced(batch("a")))) == (0, 0)


def test_the_controller_changes_topics(world: World, client: Client, cluster: Cluster) -> None:
    new = [create_topics.NewTopic("u", 3, 2), create_topics.NewTopic("t", 1, 1), create_topics.NewTopic("v", 1, 9)]
    created = create_topics.parse_response(client.ask(create_topics.request(1, 7, "tester", new)), 7)
    assert [topic.error_code for topic in created.topics] == [0, 36, 38]
    assert created.topics[0].topic_id == cluster.topics["u"].topic_id
    grown = create_partitions.request(2, 3, "tester", [create_partitions.GrownTopic("u", 5)])
    assert create_partitions.parse_response(client.ask(grown), 3).topics[0].error_code == 0
    assert [len(part.replicas) for part in cluster.topics["u"].partitions] == [2, 2, 2, 2, 2]
    doomed = delete_topics.request(3, 6, "tester", [delete_topics.DoomedTopic(None, cluster.topics["u"].topic_id)])
    assert delete_topics.parse_response(client.ask(doomed), 6).topics[0].error_code == 0
    assert list(cluster.topics) == ["t"]
    other = Client(world, ("10.0.1.2", 9092))
    refused = create_topics.parse_response(other.ask(create_topics.request(1, 7, "tester", new[:1])), 7)
    assert refused.topics[0].error_code == 41


def test_a_topic_deleted_in_use_is_unknown_to_those_who_wait(client: Client, cluster: Cluster) -> None:
    client.send(fetched([fetch.FetchPartition(0, 0)], wait_ms=5_000))
    cluster.delete_topic("t")
    client.run(20)
    found = fetch.parse_response(client.frames[0], 12).topics[0].partitions[0]
    assert found.error_code == 3
    assert outcome(client.ask(produced(batch("a"))))[0] == 3


def test_quotas_of_the_cluster_are_kept(client: Client) -> None:
    entity = [describe_client_quotas.EntityPart("user", "alice")]
    operation = alter_client_quotas.Operation("producer_byte_rate", 1024.0)
    alter = alter_client_quotas.request(1, 1, "tester", [alter_client_quotas.Alteration(entity, [operation])])
    assert alter_client_quotas.parse_response(client.ask(alter), 1).entries[0].error_code == 0
    wanted = describe_client_quotas.Component("user", describe_client_quotas.EXACT, "alice")
    found = describe_client_quotas.parse_response(client.ask(describe_client_quotas.request(2, 1, "t", [wanted])), 1)
    assert found.entries == [
        describe_client_quotas.Entry(entity, [describe_client_quotas.QuotaValue("producer_byte_rate", 1024.0)])
    ]
    other = describe_client_quotas.Component("user", describe_client_quotas.DEFAULT)
    frame = client.ask(describe_client_quotas.request(3, 1, "t", [other]))
    assert describe_client_quotas.parse_response(frame, 1).entries == []


def test_offsets_are_kept_by_the_coordinator(world: World, client: Client, cluster: Cluster) -> None:
    found = find_coordinator.parse_response(client.ask(find_coordinator.request(1, 6, "tester", ["g"])), 6)
    coordinator = found.coordinators[0]
    topics = [offset_commit.CommittedTopic("t", [offset_commit.CommittedPartition(0, 42)])]
    right = Client(world, (coordinator.host, coordinator.port))
    commit = offset_commit.request(2, 8, "tester", "g", topics)
    assert offset_commit.parse_response(right.ask(commit), 8).topics[0].partitions[0].error_code == 0
    asked = offset_fetch.request(3, 7, "tester", "g", [offset_fetch.AskedTopic("t", [0, 1])])
    offsets = offset_fetch.parse_response(right.ask(asked), 7).topics[0].partitions
    assert [partition.offset for partition in offsets] == [42, -1]
    wrong = Client(world, (f"10.0.1.{coordinator.node_id % 3 + 1}", 9092))
    assert heartbeat.parse_response(wrong.ask(heartbeat.request(4, 4, "tester", "g")), 4).error_code == 16
    first, second = (
        init_producer_id.parse_response(right.ask(init_producer_id.request(number, 4, "tester")), 4).producer_id
        for number in (5, 6)
    )
    assert first != second


def test_members_of_a_share_group_get_different_records(world: World, client: Client, cluster: Cluster) -> None:
    topic_id = cluster.topics["t"].topic_id
    other = Client(world, ("10.0.1.1", 9092))

    def shared(asker: Client, member: str, epoch: int, ranges: Sequence[share.AcknowledgedBatch] = ()) -> list[str]:
        topics = [share.ShareTopic(topic_id, [share.SharePartition(0, ranges)])] if not epoch or ranges else []
        frame = asker.ask(
            share_fetch.request(
                1, 1, "tester", topics, member_id=member, session_epoch=epoch, max_bytes=300, max_wait_ms=10
            ), 30,
        )  # fmt: skip
        response = share_fetch.parse_response(frame, 1)
        assert response.error_code == 0
        return [
            one.token
            for topic in response.topics
            for part in topic.partitions
            for one in records.parse_batches(part.records or b"")
        ]

    for token in "abcd":
        client.ask(produced(batch(token, size=100, count=2)))
    assert shared(client, "m", 0) == ["a", "b", "c"]
    assert shared(other, "n", 0) == ["d"]
    assert shared(client, "m", 1, [share.AcknowledgedBatch(0, 1, [share.ACCEPT])]) == []
    assert shared(client, "m", 2, [share.AcknowledgedBatch(2, 3, [share.RELEASE])]) == ["b"]
    assert shared(client, "m", 0) == ["b", "c"]
