"""Defines requests that aiokafka lacks, and their responses, as subclasses of aiokafka's protocol types.

aiokafka's Metadata request has no topic ids, and aiokafka has no DescribeLogDirs request. The response to
DescribeClientQuotas is not decoded here. The caller decodes it only if it differs from the last response.

Source: MetadataRequest.json, DescribeLogDirsRequest.json, DescribeClientQuotasRequest.json and their responses in
Apache Kafka. Kafka 4 still supports at least one of the versions of each request.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from io import BytesIO
from struct import Struct
from typing import Any, Final, NamedTuple

from aiokafka.errors import NoError, for_code
from aiokafka.protocol import metadata
from aiokafka.protocol.admin import DescribeClientQuotasRequest_v0
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from kafka_quota_proxy.protocol.api import ApiKey

_SIZE: Final = Struct(">i")
_ID_BYTES: Final = 16
_NO_ID: Final = bytes(_ID_BYTES)


class Partition(NamedTuple):
    """A partition in a Metadata response. ``leader`` is -1 if the partition has no leader."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Topic(NamedTuple):
    """A topic in a Metadata response. ``topic_id`` is None if the broker is older than Kafka 2.8."""

    error_code: int
    name: str
    topic_id: bytes | None
    partitions: tuple[Partition, ...]


class Broker(NamedTuple):
    """A broker in a Metadata response."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Metadata(NamedTuple):
    """The content of a Metadata response."""

    brokers: tuple[Broker, ...]
    controller_id: int
    topics: tuple[Topic, ...]

    @property
    def racks(self) -> dict[int, str | None]:
        """The rack of each broker, by node id."""
        return {broker.node_id: broker.rack for broker in self.brokers}


class ConfigKind(IntEnum):
    """The type of resource that a config belongs to. The values are those of Kafka's ``ConfigResource.Type``."""

    TOPIC = 2
    BROKER = 4


class ConfigQuery(NamedTuple):
    """A query for the configs ``keys`` of the topics or brokers ``names``.

    The query is sent to the broker ``node_id``, or to any broker if that is None.
    """

    kind: ConfigKind
    names: tuple[str, ...]
    keys: tuple[str, ...]
    node_id: int | None = None


class Configs(NamedTuple):
    """The configs of one topic or broker, or the error that the cluster returned."""

    name: str
    error_code: int
    error_message: str | None
    values: Mapping[str, str | None]

    def checked(self) -> Mapping[str, str | None]:
        """Return the configs by key. Raises a ``KafkaError`` if the cluster returned an error."""
        error = for_code(self.error_code)
        if error is not NoError:
            raise error(f"DescribeConfigs of {self.name}: {self.error_message or error.__name__}")
        return self.values


class _Uuid:
    """The protocol type of a topic id (16 bytes)."""

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(_ID_BYTES)

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def repr(cls, value: bytes) -> str:
        return value.hex()


def _structs(*fields: tuple[str, Any]) -> CompactArray:
    return CompactArray(*fields, ("tags", TaggedFields))


class _MetadataResponse(Response):  # type: ignore[misc]  # of a library without types, here and below
    API_KEY = int(ApiKey.METADATA)
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", _structs(
            ("node_id", Int32), ("host", CompactString()), ("port", Int32), ("rack", CompactString()),
        )),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        ("topics", _structs(
            ("error_code", Int16),
            ("topic", CompactString()),
            ("topic_id", _Uuid),
            ("is_internal", Boolean),
            ("partitions", _structs(
                ("error_code", Int16),
                ("partition", Int32),
                ("leader", Int32),
                ("leader_epoch", Int32),
                ("replicas", CompactArray(Int32)),
                ("isr", CompactArray(Int32)),
                ("offline_replicas", CompactArray(Int32)),
            )),
            ("topic_authorized_operations", Int32),
        )),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )  # fmt: skip


class _MetadataWithIds(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = int(ApiKey.METADATA)
    API_VERSION = 10
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", _structs(("topic_id", _Uuid), ("name", CompactString()))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


_Metadata = (
    metadata.MetadataRequest_v1
    | metadata.MetadataRequest_v2
    | metadata.MetadataRequest_v3
    | metadata.MetadataRequest_v4
    | metadata.MetadataRequest_v5
    | _MetadataWithIds
)


class MetadataRequest(Request[_Metadata]):  # type: ignore[misc]
    """A request for the brokers of a cluster and the given topics. It creates no topic.

    If ``topics`` is None, it asks for all topics.
    """

    API_KEY = int(ApiKey.METADATA)

    def __init__(self, topics: Sequence[str] | None) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return the request as a struct of the protocol version that aiokafka has chosen."""
        if request_struct_class is _MetadataWithIds:
            no_tags: dict[int, bytes] = {}
            with_ids = None if self._topics is None else [(_NO_ID, name, no_tags) for name in self._topics]
            return _MetadataWithIds(with_ids, False, False, False, {})
        topics = None if self._topics is None else list(self._topics)
        return (
            request_struct_class(topics)
            if request_struct_class.API_VERSION < 4
            else request_struct_class(topics, False)
        )


class _DescribeLogDirsResponse(Response):  # type: ignore[misc]
    API_KEY = int(ApiKey.DESCRIBE_LOG_DIRS)
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("log_dirs", Array(
            ("error_code", Int16),
            ("log_dir", String()),
            ("topics", Array(
                ("name", String()),
                ("partitions", Array(
                    ("partition_index", Int32),
                    ("partition_size", Int64),
                    ("offset_lag", Int64),
                    ("is_future_key", Boolean),
                )),
            )),
        )),
    )  # fmt: skip


class _DescribeLogDirsV0(RequestStruct):  # type: ignore[misc]
    API_KEY = int(ApiKey.DESCRIBE_LOG_DIRS)
    API_VERSION = 0
    RESPONSE_TYPE = _DescribeLogDirsResponse
    SCHEMA = Schema(("topics", Array(("topic", String()), ("partitions", Array(Int32)))))


class _DescribeLogDirsV1(_DescribeLogDirsV0):
    API_VERSION = 1


class DescribeLogDirsRequest(Request[_DescribeLogDirsV0 | _DescribeLogDirsV1]):  # type: ignore[misc]
    """A request to a broker for the sizes of its logs. ``partitions`` contains partition numbers by topic."""

    API_KEY = int(ApiKey.DESCRIBE_LOG_DIRS)

    def __init__(self, partitions: Mapping[str, Sequence[int]]) -> None:
        self._partitions = partitions

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return the request as a struct of the protocol version that aiokafka has chosen."""
        return request_struct_class([(topic, list(indexes)) for topic, indexes in self._partitions.items()])


class _Frame(Response):  # type: ignore[misc]
    """A response that is not decoded. ``decode`` returns the whole frame, including the size in front of it."""

    API_KEY = int(ApiKey.DESCRIBE_CLIENT_QUOTAS)
    API_VERSION = 0
    SCHEMA = Schema()

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        frame = data.getvalue()
        return _SIZE.pack(len(frame)) + frame


class _DescribeClientQuotas(DescribeClientQuotasRequest_v0):  # type: ignore[misc]
    RESPONSE_TYPE = _Frame


class AllClientQuotasRequest(Request[_DescribeClientQuotas]):  # type: ignore[misc]
    """A DescribeClientQuotas request, version 0, for all entities. Its answer is the undecoded response frame."""

    API_KEY = int(ApiKey.DESCRIBE_CLIENT_QUOTAS)
    API_VERSION = _DescribeClientQuotas.API_VERSION

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return a request without a filter, so that all entities match."""
        return request_struct_class([], False)


def read_metadata(response: Any) -> Metadata:  # noqa: ANN401
    """Return the content of a response to ``MetadataRequest``."""
    has_ids = response.API_VERSION == _MetadataResponse.API_VERSION
    return Metadata(
        brokers=tuple(Broker(*broker[:4]) for broker in response.brokers),
        controller_id=response.controller_id,
        topics=tuple(_topic(topic, has_ids=has_ids) for topic in response.topics),
    )


def read_configs(response: Any) -> list[Configs]:  # noqa: ANN401
    """Return the content of a response to aiokafka's ``DescribeConfigsRequest``."""
    return [
        Configs(name, error_code, message, {key: value for key, value, *_ in entries})
        for error_code, message, _, name, entries in response.resources
    ]


def _topic(topic: Any, *, has_ids: bool) -> Topic:  # noqa: ANN401
    error_code, name, topic_id, _, partitions = topic[:5] if has_ids else (*topic[:2], _NO_ID, *topic[2:])
    replicas_at = 4 if has_ids else 3  # versions with topic ids also have a leader epoch before this field
    return Topic(
        error_code,
        name,
        topic_id if topic_id != _NO_ID else None,
        tuple(Partition(one[1], one[2], tuple(one[replicas_at]), tuple(one[replicas_at + 1])) for one in partitions),
    )
