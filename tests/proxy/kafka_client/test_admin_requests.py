"""Tests requests to a cluster and their responses, against kio, in each version that a broker may know."""

from io import BytesIO
from typing import Any

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.kafka_client.admin_requests import (
    AllClientQuotasRequest,
    DescribeLogDirsRequest,
    MetadataRequest,
    Partition,
    Topic,
    read_metadata,
)
from tests.protocol.support import kio_messages

_ADVERTISED = range(14)  # the versions of Metadata that Kafka 4.1 advertises


def prepared(request: Any, api_key: ApiKey, highest: int) -> Any:  # noqa: ANN401
    """Return the request as it is sent to a broker that knows versions 0 to ``highest``."""
    return request.prepare({int(api_key): (0, highest)})


def test_metadata_requests_are_those_of_kafka() -> None:
    for highest in _ADVERTISED[1:]:
        for topics in (None, (), ("orders", "payments")):
            request = prepared(MetadataRequest(topics), ApiKey.METADATA, highest)
            version = request.API_VERSION
            kind = kio_messages.request_class(ApiKey.METADATA, version)
            names = None if topics is None else tuple(_requested_topic(kind, name) for name in topics)
            values = {
                "topics": names,
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            }
            assert request.encode() == kio_messages.encode(kio_messages.example(kind, values)), (highest, topics)


def test_metadata_answers_are_read_in_each_version() -> None:
    for highest in _ADVERTISED[1:]:
        request = prepared(MetadataRequest(None), ApiKey.METADATA, highest)
        kind = kio_messages.response_class(ApiKey.METADATA, request.API_VERSION)
        message = kio_messages.example(kind)

        found = read_metadata(request.RESPONSE_TYPE.decode(BytesIO(kio_messages.encode(message))))

        assert found.controller_id == message.controller_id
        assert found.racks == {broker.node_id: broker.rack for broker in message.brokers}
        assert [broker[:3] for broker in found.brokers] == [
            (one.node_id, one.host, one.port) for one in message.brokers
        ]
        assert found.topics == tuple(_topic(topic) for topic in message.topics), highest


def test_log_dirs_are_asked_for_and_read_as_kafka_has_them() -> None:
    request = prepared(DescribeLogDirsRequest({"orders": (0, 2)}), ApiKey.DESCRIBE_LOG_DIRS, 5)
    message = kio_messages.example(kio_messages.response_class(ApiKey.DESCRIBE_LOG_DIRS, request.API_VERSION))

    answer = request.RESPONSE_TYPE.decode(BytesIO(kio_messages.encode(message)))

    assert request.encode() == b"\0\0\0\1\0\6orders\0\0\0\2\0\0\0\0\0\0\0\2"
    assert [
        (name, *partition)
        for _, _, topics in answer.log_dirs
        for name, partitions in topics
        for partition in partitions
    ] == [
        (topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
        for result in message.results
        for topic in result.topics
        for one in topic.partitions
    ]


def test_the_answer_about_client_quotas_is_the_whole_frame() -> None:
    request = prepared(AllClientQuotasRequest(), ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)
    kind = kio_messages.response_class(ApiKey.DESCRIBE_CLIENT_QUOTAS, request.API_VERSION)
    frame = kio_messages.response_frame(kio_messages.example(kind))
    data = BytesIO(frame[4:])

    header = request.parse_response_header(data)

    assert (header.correlation_id, request.RESPONSE_TYPE.decode(data)) == (7, frame)


def _requested_topic(kind: Any, name: str) -> Any:  # noqa: ANN401
    (one,) = kio_messages.example(kind, array_length=1).topics
    values = {"name": name, "topic_id": None} if hasattr(one, "topic_id") else {"name": name}
    return kio_messages.example(type(one), values)


def _topic(topic: Any) -> Topic:  # noqa: ANN401
    topic_id = getattr(topic, "topic_id", None)
    return Topic(
        topic.error_code.value,
        topic.name,
        topic_id and topic_id.bytes,
        tuple(
            Partition(one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes) for one in topic.partitions
        ),
    )
