"""Tests requests to a cluster and their responses, against kio, in each version that a broker may know."""

from io import BytesIO
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.kafka_client.admin_requests import (
    AllClientQuotasRequest,
    ConfigKind,
    ConfigQuery,
    Configs,
    Partition,
    TableRequest,
    Topic,
    configs_request,
    log_dirs_request,
    metadata_request,
    read_configs,
    read_metadata,
)
from tests.protocol.support import kio_messages

_ADVERTISED = range(14)  # the versions of Metadata that Kafka 4.1 advertises


def prepared(request: TableRequest, highest: int, *, lowest: int = 0) -> TableRequest:
    """Return the request as it is sent to a broker that knows these versions."""
    return request.prepare({request.API_KEY: (lowest, highest)})


def sent(request: TableRequest) -> bytes:
    """Return the bytes that aiokafka's connections send for a prepared request, with their size."""
    payload: bytes = request.build_request_header(5, "etl").encode() + request.encode()
    return len(payload).to_bytes(4) + payload


def answered(request: TableRequest, message: Any, *, rest: bytes = b"") -> Any:  # noqa: ANN401
    """Return the answer to a prepared request, as aiokafka's connections do. ``rest`` follows its last field."""
    data = BytesIO(kio_messages.response_frame(message)[4:] + rest)
    assert request.parse_response_header(data).correlation_id == 7
    return request.RESPONSE_TYPE.decode(data)


def test_metadata_requests_are_those_of_kafka() -> None:
    for highest in _ADVERTISED[1:]:
        for topics in (None, (), ("orders", "payments")):
            request = prepared(metadata_request(topics), highest)
            kind = kio_messages.request_class(ApiKey.METADATA, highest)
            names = None if topics is None else tuple(_requested_topic(kind, name) for name in topics)
            values = {
                "topics": names,
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            }
            message = kio_messages.example(kind, values)
            assert sent(request) == kio_messages.request_frame(message, correlation_id=5), (highest, topics)


def test_metadata_answers_are_read_in_each_version() -> None:
    for highest in _ADVERTISED[1:]:
        message = kio_messages.example(kio_messages.response_class(ApiKey.METADATA, highest))

        found = read_metadata(answered(prepared(metadata_request(None), highest), message, rest=b"\0"))

        assert found.controller_id == message.controller_id
        assert [broker.node_id for broker in found.brokers] == [broker.node_id for broker in message.brokers]
        assert [broker[:3] for broker in found.brokers] == [
            (one.node_id, one.host, one.port) for one in message.brokers
        ]
        assert found.topics == tuple(_topic(topic) for topic in message.topics), highest


def test_log_dirs_are_asked_for_and_read_as_kafka_has_them() -> None:
    request = prepared(log_dirs_request({"orders": (0, 2)}), 1)
    message = kio_messages.example(kio_messages.response_class(ApiKey.DESCRIBE_LOG_DIRS, 1))

    *_, log_dirs = answered(request, message)

    assert sent(request).endswith(b"\0\0\0\1\0\6orders\0\0\0\2\0\0\0\0\0\0\0\2")
    assert [
        (name, *partition) for _, _, topics, *_ in log_dirs for name, partitions in topics for partition in partitions
    ] == [
        (topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
        for result in message.results
        for topic in result.topics
        for one in topic.partitions
    ]


def test_configs_are_asked_for_and_read_as_kafka_has_them() -> None:
    request = prepared(configs_request(ConfigQuery(ConfigKind.BROKER, ("1", "2"), ("key",))), 4)
    message = kio_messages.example(kio_messages.response_class(ApiKey.DESCRIBE_CONFIGS, 4))

    found = read_configs(answered(request, message))

    assert sent(request).endswith(b"\3\4\0021\2\4key\0\4\0022\2\4key\0\0\0\0")
    assert found == [Configs("three", 0, "three", {"three": "three"})] * 2


def test_the_answer_about_client_quotas_is_the_whole_frame() -> None:
    for version in range(2):
        message = kio_messages.example(kio_messages.response_class(ApiKey.DESCRIBE_CLIENT_QUOTAS, version))
        answer = answered(prepared(AllClientQuotasRequest(), 5 * version), message)
        assert answer == (version, kio_messages.response_frame(message))


def test_a_broker_that_lacks_the_api_or_its_versions_is_not_asked() -> None:
    with pytest.raises(IncompatibleBrokerVersion, match="does not support Metadata"):
        metadata_request(None).prepare({})
    for lowest, highest in ((0, 0), (14, 20)):
        with pytest.raises(IncompatibleBrokerVersion):
            prepared(metadata_request(None), highest, lowest=lowest)


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
        topic.is_internal,
    )
