"""Tests the answers to admin requests, which an independent codec encodes and decodes, without a mock cluster."""

import importlib
import struct
from collections.abc import Sequence
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from kio.serial import entity_reader

from kafka_quota_proxy.proxy.cli.demo.mock_admin import MockAdmin
from tests.protocol.support import kio_messages

NO_TIME = timedelta(0)


class Mock:
    """Remembers what a mock cluster is told."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}

    def create_topic(self, topic: str, partitions: int) -> None:
        assert topic not in self.topics
        self.topics[topic] = partitions

    def delete_topic(self, topic: str) -> None:
        del self.topics[topic]


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
    frame = admin.answer(kio_messages.request_frame(request)[4:])
    if frame is None:
        return None
    head = struct.pack(">i", 7) + bytes(kind.__flexible__)
    assert frame.startswith(head)
    response_class = kio_messages.response_class(kind.__api_key__, kind.__version__)
    response, size = entity_reader(response_class)(frame, len(head))
    assert size == len(frame) - len(head)
    return response


def create(
    admin: MockAdmin,
    *topics: Any,  # noqa: ANN401 - as above
    version: int = 4,
    validate_only: bool = False,
) -> list[int]:
    """Return the error of each topic."""
    module = requests("create_topics", version)
    response = ask(admin, module.CreateTopicsRequest(topics=topics, timeout=NO_TIME, validate_only=validate_only))
    return [each.error_code for each in response.topics]


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


@pytest.mark.parametrize("version", [2, 3, 4])
def test_topics_are_created(mock: Mock, admin: MockAdmin, version: int) -> None:
    topics = [new_topic("two", version=version), new_topic("replicated", 1, replicas=3, version=version)]

    assert create(admin, *topics, version=version) == [0, 0]
    assert create(admin, new_topic("checked", version=version), version=version, validate_only=True) == [0]

    assert mock.topics == {"two": 2, "replicated": 1}


def test_defaults_and_assigned_replicas_are_used(mock: Mock, admin: MockAdmin) -> None:
    create(admin, new_topic("default", -1, replicas=-1), new_topic("assigned", -1, -1, assigned=[(2, 1), (1,), (3,)]))

    assert mock.topics == {"default": 4, "assigned": 3}


def test_topics_are_refused_with_the_errors_of_kafka(mock: Mock, admin: MockAdmin) -> None:
    create(admin, new_topic("old"))

    refused = create(
        admin,
        new_topic("old"),
        new_topic("a b"),
        new_topic("none", 0),
        new_topic("few", 1, replicas=0),
        new_topic("empty", assigned=[()]),
    )

    assert refused == [36, 17, 37, 38, 39]
    assert [*mock.topics] == ["old"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_topics_are_deleted(mock: Mock, admin: MockAdmin, version: int) -> None:
    create(admin, new_topic("old"), new_topic("kept"))

    request = requests("delete_topics", version).DeleteTopicsRequest(topic_names=("old", "unknown"), timeout=NO_TIME)
    codes = [each.error_code for each in ask(admin, request).responses]

    assert codes == [0, 3]
    assert [*mock.topics] == ["kept"]


@pytest.mark.parametrize("version", range(13))
def test_the_topics_of_a_metadata_request_are_created(mock: Mock, admin: MockAdmin, version: int) -> None:
    module = requests("metadata", version)
    no_id = {"topic_id": None} if version >= 10 else {}
    topics = tuple(module.MetadataRequestTopic(name=name, **no_id) for name in ("first", "second", "first"))
    flags = {"include_topic_authorized_operations": False} if version >= 8 else {}
    flags |= {"include_cluster_authorized_operations": False} if 8 <= version <= 10 else {}
    mock.create_topic("second", 3)

    if version >= 4:
        assert ask(admin, module.MetadataRequest(topics=topics, allow_auto_topic_creation=False, **flags)) is None
        assert [*mock.topics] == ["second"]
    if version >= 1:
        assert ask(admin, module.MetadataRequest(topics=None, **flags)) is None
    assert ask(admin, module.MetadataRequest(topics=topics, **flags)) is None

    assert mock.topics == {"second": 3, "first": 4}
