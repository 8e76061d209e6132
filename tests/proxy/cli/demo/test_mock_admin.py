"""Tests the answers to admin requests, which an independent codec encodes and decodes, without a mock cluster."""

import importlib
import struct
from collections.abc import Sequence
from datetime import timedelta
from io import BytesIO
from types import ModuleType
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from kafka_quota_proxy.proxy.cli.demo.mock_admin import MockAdmin

CLIENT_ID = struct.pack(">h", 4) + b"test"
NO_TIME = timedelta(0)
ELECTION_NOT_NEEDED = (84, "Leader election not needed for topic partition.")
UNKNOWN = (3, "This server does not host this topic-partition.")


class Mock:
    """Remembers what a mock cluster is told."""

    def __init__(self, *, brokers: int = 3) -> None:
        self.brokers = brokers
        self.leaders: dict[str, list[int]] = {}
        self.coordinators: list[tuple[str, str, int]] = []

    def create_topic(self, topic: str, leaders: Sequence[int]) -> None:
        assert topic not in self.leaders
        self.leaders[topic] = list(leaders)

    def delete_topic(self, topic: str) -> None:
        del self.leaders[topic]

    def set_leader(self, topic: str, partition: int, node_id: int) -> None:
        self.leaders[topic][partition] = node_id

    def set_coordinator(self, kind: str, key: str, node_id: int) -> None:
        self.coordinators.append((kind, key, node_id))


@pytest.fixture
def mock() -> Mock:
    return Mock()


@pytest.fixture
def admin(mock: Mock) -> MockAdmin:
    return MockAdmin(mock)  # type: ignore[arg-type]


def requests(api: str, version: int) -> ModuleType:
    return importlib.import_module(f"kio.schema.{api}.v{version}.request")


def ask(admin: MockAdmin, request: Any) -> Any:  # noqa: ANN401 - of a class of kio, which has no types
    kind = type(request)
    head = struct.pack(">hhi", kind.__api_key__, kind.__version__, 7) + CLIENT_ID + bytes(kind.__flexible__)
    body = BytesIO(head)
    body.seek(len(head))
    entity_writer(kind)(body, request)
    frame = admin.answer(body.getvalue())
    if frame is None:
        return None
    module = importlib.import_module(kind.__module__.replace(".request", ".response"))
    head = struct.pack(">i", 7) + bytes(kind.__flexible__)
    assert frame.startswith(head)
    response, size = entity_reader(getattr(module, kind.__name__.replace("Request", "Response")))(frame, len(head))
    assert size == len(frame) - len(head)
    return response


def create(
    admin: MockAdmin,
    *topics: Any,  # noqa: ANN401 - as above
    version: int = 4,
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    module = requests("create_topics", version)
    response = ask(admin, module.CreateTopicsRequest(topics=topics, timeout=NO_TIME, validate_only=validate_only))
    return [(each.error_code, each.error_message) for each in response.topics]


def new_topic(
    name: str, partitions: int = 2, replicas: int = 1, assigned: Sequence[tuple[int, ...]] = (), version: int = 4
) -> Any:  # noqa: ANN401 - as above
    module = requests("create_topics", version)
    return module.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=tuple(
            module.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in enumerate(assigned)
        ),
        configs=(module.CreatableTopicConfig(name="retention.ms", value="1000"),),
    )


def reassign(admin: MockAdmin, *partitions: tuple[str, int, tuple[int, ...] | None], version: int = 0) -> list[Any]:
    module = requests("alter_partition_reassignments", version)
    topics = tuple(
        module.ReassignableTopic(
            name=name, partitions=(module.ReassignablePartition(partition_index=index, replicas=replicas),)
        )
        for name, index, replicas in partitions
    )
    response = ask(admin, module.AlterPartitionReassignmentsRequest(timeout=NO_TIME, topics=topics))
    assert response.error_code == 0
    return [(each.error_code, each.error_message) for topic in response.responses for each in topic.partitions]


def elect(
    admin: MockAdmin, topics: dict[str, tuple[int, ...]] | None, *, version: int = 1, kind: int = 0
) -> list[tuple[str, int, int, str | None]]:
    module = requests("elect_leaders", version)
    asked = topics and tuple(module.TopicPartitions(topic=name, partitions=all_) for name, all_ in topics.items())
    response = ask(admin, module.ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout=NO_TIME))
    assert response.error_code == 0
    return [
        (topic.topic, each.partition_id, each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_topics_are_created_with_leaders_on_broker_1(mock: Mock, admin: MockAdmin, version: int) -> None:
    topics = [new_topic("two", version=version), new_topic("replicated", 1, replicas=3, version=version)]

    assert create(admin, *topics, version=version) == [(0, None)] * 2

    assert mock.leaders == {"two": [1, 1], "replicated": [1]}


def test_defaults_and_assigned_replicas_are_used(mock: Mock, admin: MockAdmin) -> None:
    create(admin, new_topic("default", -1, replicas=-1), new_topic("assigned", -1, -1, assigned=[(2, 1), (1,), (3,)]))

    assert mock.leaders == {"default": [1] * 4, "assigned": [2, 1, 3]}
    assert elect(admin, None) == []  # each leader is the preferred one


def test_topics_are_refused_with_the_errors_of_kafka(mock: Mock, admin: MockAdmin) -> None:
    create(admin, new_topic("old"))

    refused = create(
        admin,
        new_topic("old"),
        new_topic("a b"),
        new_topic("none", 0),
        new_topic("few", 1, replicas=0),
        new_topic("many", 1, replicas=4),
        new_topic("far", assigned=[(4,)]),
        new_topic("empty", assigned=[()]),
    )

    assert [code for code, _ in refused] == [36, 17, 37, 38, 38, 39, 39]
    assert refused[0][1] == "Topic 'old' already exists."
    assert refused[4][1] == "Replication factor: 4 larger than available brokers: 3."
    assert [*mock.leaders] == ["old"]


def test_a_topic_that_is_only_validated_is_not_created(mock: Mock, admin: MockAdmin) -> None:
    assert create(admin, new_topic("checked"), validate_only=True) == [(0, None)]

    assert mock.leaders == {}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_topics_are_deleted(mock: Mock, admin: MockAdmin, version: int) -> None:
    create(admin, new_topic("old"), new_topic("kept"))
    reassign(admin, ("old", 0, (2, 1)))

    request = requests("delete_topics", version).DeleteTopicsRequest(topic_names=("old", "unknown"), timeout=NO_TIME)
    codes = [each.error_code for each in ask(admin, request).responses]

    assert codes == [0, 3]
    assert [*mock.leaders] == ["kept"]
    create(admin, new_topic("old"))
    assert elect(admin, {"old": (0,)}) == [("old", 0, *ELECTION_NOT_NEEDED)]  # the preferred leader is forgotten


@pytest.mark.parametrize(("alter_version", "elect_version"), [(0, 1), (1, 2)])
def test_an_election_moves_the_leader_to_the_first_replica(
    mock: Mock, admin: MockAdmin, alter_version: int, elect_version: int
) -> None:
    create(admin, new_topic("topic"))

    assert reassign(admin, ("topic", 1, (2, 1)), version=alter_version) == [(0, None)]
    before = list(mock.leaders["topic"])
    elected = [elect(admin, {"topic": (0, 1), "no": (0,)}, version=elect_version) for _ in range(2)]

    assert before == [1, 1]
    assert mock.leaders["topic"] == [1, 2]
    assert elected[0] == [("topic", 0, *ELECTION_NOT_NEEDED), ("topic", 1, 0, None), ("no", 0, *UNKNOWN)]
    assert elected[1][1] == ("topic", 1, *ELECTION_NOT_NEEDED)


def test_an_election_for_all_partitions_names_those_that_it_moved(mock: Mock, admin: MockAdmin) -> None:
    create(admin, new_topic("one"), new_topic("other"))
    reassign(admin, ("other", 0, (3, 1)))

    assert elect(admin, None, version=2) == [("other", 0, 0, None)]
    assert mock.leaders == {"one": [1, 1], "other": [3, 1]}


def test_no_unclean_election_is_needed(mock: Mock, admin: MockAdmin) -> None:
    create(admin, new_topic("topic"))
    reassign(admin, ("topic", 0, (2, 1)))

    assert elect(admin, {"topic": (0,)}, kind=1) == [("topic", 0, *ELECTION_NOT_NEEDED)]
    assert mock.leaders["topic"] == [1, 1]


def test_a_leader_that_is_no_replica_any_more_moves_at_once(mock: Mock, admin: MockAdmin) -> None:
    create(admin, new_topic("topic"))

    reassign(admin, ("topic", 0, (3, 2)))

    assert mock.leaders["topic"] == [3, 1]


def test_reassignments_are_refused_with_the_errors_of_kafka(mock: Mock, admin: MockAdmin) -> None:
    create(admin, new_topic("topic"))

    refused = reassign(
        admin,
        ("unknown", 0, (1,)),
        ("topic", 2, (1,)),
        ("topic", 0, (4,)),
        ("topic", 0, ()),
        ("topic", 0, (2, 2)),
        ("topic", 0, None),
    )

    assert [code for code, _ in refused] == [3, 3, 39, 39, 39, 85]
    assert elect(admin, None) == []


def test_no_reassignment_is_ongoing(admin: MockAdmin) -> None:
    module = requests("list_partition_reassignments", 0)

    response = ask(admin, module.ListPartitionReassignmentsRequest(timeout=NO_TIME, topics=None))

    assert (response.error_code, response.topics) == (0, ())


def refused_requests() -> list[tuple[str, Any]]:
    all_ = []
    for version in (1, 2):
        module = requests("describe_configs", version)
        resource = module.DescribeConfigsResource(resource_type=2, resource_name="topic", configuration_keys=None)
        all_.append(("DescribeConfigs", module.DescribeConfigsRequest(resources=(resource,))))
    for version in (0, 1):
        module = requests("alter_configs", version)
        config = module.AlterableConfig(name="retention.ms", value="1")
        altered = module.AlterConfigsResource(resource_type=2, resource_name="topic", configs=(config,))
        all_.append(("AlterConfigs", module.AlterConfigsRequest(resources=(altered,), validate_only=False)))
        module = requests("create_partitions", version)
        grown = module.CreatePartitionsTopic(
            name="topic", count=9, assignments=(module.CreatePartitionsAssignment(broker_ids=(1, 2)),)
        )
        all_.append(
            ("CreatePartitions", module.CreatePartitionsRequest(topics=(grown,), timeout=NO_TIME, validate_only=False))
        )
    module = requests("incremental_alter_configs", 0)
    config = module.AlterableConfig(name="retention.ms", config_operation=0, value="1")
    altered = module.AlterConfigsResource(resource_type=2, resource_name="topic", configs=(config,))
    all_.append(
        ("IncrementalAlterConfigs", module.IncrementalAlterConfigsRequest(resources=(altered,), validate_only=False))
    )
    module = requests("describe_client_quotas", 0)
    component = module.ComponentData(entity_type="user", match_type=0, match="a")
    all_.append(("DescribeClientQuotas", module.DescribeClientQuotasRequest(components=(component,), strict=False)))
    module = requests("alter_client_quotas", 0)
    entry = module.EntryData(
        entity=(module.EntityData(entity_type="user", entity_name=None),),
        ops=(module.OpData(key="producer_byte_rate", value=1.0, remove=False),),
    )
    all_.append(("AlterClientQuotas", module.AlterClientQuotasRequest(entries=(entry,), validate_only=False)))
    return all_


@pytest.mark.parametrize(
    ("api", "request_"), refused_requests(), ids=lambda one: one if isinstance(one, str) else str(one.__version__)
)
def test_an_api_that_the_broker_lacks_says_so(admin: MockAdmin, api: str, request_: Any) -> None:  # noqa: ANN401 - as above
    response = ask(admin, request_)

    results = [getattr(response, name) for name in ("results", "responses", "entries") if hasattr(response, name)]
    refused = [response] if hasattr(response, "error_message") else results[0]
    text = f"kafka-quota-proxy's embedded broker has no {api}: run the test in front of a Kafka"
    assert [each.error_code for each in refused] == [35]
    assert refused[0].error_message.startswith(text)


@pytest.mark.parametrize("version", range(13))
def test_the_topics_of_a_metadata_request_are_created(mock: Mock, admin: MockAdmin, version: int) -> None:
    module = requests("metadata", version)
    no_id = {"topic_id": None} if version >= 10 else {}
    topics = tuple(module.MetadataRequestTopic(name=name, **no_id) for name in ("first", "second", "first"))
    flags = {"include_topic_authorized_operations": False} if version >= 8 else {}
    flags |= {"include_cluster_authorized_operations": False} if 8 <= version <= 10 else {}
    mock.create_topic("second", [3])

    if version >= 4:
        assert ask(admin, module.MetadataRequest(topics=topics, allow_auto_topic_creation=False, **flags)) is None
        assert [*mock.leaders] == ["second"]
    if version >= 1:
        assert ask(admin, module.MetadataRequest(topics=None, **flags)) is None
    assert ask(admin, module.MetadataRequest(topics=topics, **flags)) is None

    assert mock.leaders == {"second": [3], "first": [1] * 4}


@pytest.mark.parametrize("version", range(4))
def test_broker_1_is_the_coordinator(mock: Mock, admin: MockAdmin, version: int) -> None:
    module = requests("find_coordinator", version)
    kinds = (0, 1) if version >= 1 else (0,)

    for kind in kinds:
        ask(admin, module.FindCoordinatorRequest(key="name", **({"key_type": kind} if version >= 1 else {})))

    assert mock.coordinators == [("group", "name", 1), ("transaction", "name", 1)][: len(kinds)]


def test_versions_of_other_layouts_are_not_announced(admin: MockAdmin) -> None:
    assert admin.versions == {
        19: (2, 4),
        20: (1, 3),
        32: (1, 2),
        33: (0, 1),
        37: (0, 1),
        43: (1, 2),
        44: (0, 0),
        45: (0, 1),
        46: (0, 0),
        48: (0, 0),
        49: (0, 0),
    }
