"""Defines requests that aiokafka lacks, and reads their answers.

The messages are those of ``protocol.messages``. aiokafka's Metadata request has no topic ids, and it has no
DescribeLogDirs or ElectLeaders request.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from enum import IntEnum
from io import BytesIO
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Self

from aiokafka.errors import IncompatibleBrokerVersion, NoError, for_code

from kafka_quota_proxy.protocol import codec
from kafka_quota_proxy.protocol.api import API_NAMES, HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.primitives import NULL_UUID

_INT32: Final = Struct(">i")


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
    is_internal: bool = False


class Broker(NamedTuple):
    """A broker in a Metadata response."""

    node_id: int
    host: str
    port: int


class Metadata(NamedTuple):
    """The content of a Metadata response."""

    brokers: tuple[Broker, ...]
    controller_id: int
    topics: tuple[Topic, ...]


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


class TableRequest:
    """A request of a message in ``protocol.messages``, for ``send`` of aiokafka's connections.

    Its answer are the fields of the response. The methods are those that aiokafka calls.

    Args:
        api_key: The API.
        values: The fields of the request.
        first: The oldest version with these fields.
    """

    def __init__(self, api_key: ApiKey, values: Sequence[Any], *, first: int = 0) -> None:
        self.API_KEY = int(api_key)
        self.API_VERSION = HIGHEST_VERSION[api_key]
        self.values = values
        self._first = first
        self._frame = b""

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Self:
        """Return the request in the newest version that the broker supports."""
        oldest, newest = versions.get(self.API_KEY, (0, -1))
        version = min(newest, self.API_VERSION)
        if version < max(oldest, self._first):
            raise IncompatibleBrokerVersion(f"the broker does not support {API_NAMES[self.API_KEY]}")
        prepared = copy(self)
        prepared.API_VERSION = version
        return prepared

    def build_request_header(self, correlation_id: int, client_id: str) -> SimpleNamespace:
        """Encode the request. Return an empty header, because ``encode`` returns the header, too."""
        name = client_id.encode()
        self._frame = codec.write_request(self.API_KEY, self.API_VERSION, correlation_id, name, self.values)
        return SimpleNamespace(encode=bytes)

    def encode(self) -> bytes:
        """Return the request without its size."""
        return self._frame[4:]

    def parse_response_header(self, data: BytesIO) -> SimpleNamespace:
        """Return the correlation id of a response."""
        return SimpleNamespace(correlation_id=_INT32.unpack_from(data.getvalue())[0])

    @property
    def RESPONSE_TYPE(self) -> Self:  # noqa: N802 - aiokafka's name
        """The object whose ``decode`` is called."""
        return self

    def decode(self, data: BytesIO) -> Any:  # noqa: ANN401 - the fields of a message have many types
        """Return the fields of a response. As Java's client does, it leaves what follows the last field unread.

        Metadata of librdkafka's mock cluster has a byte more since v9.
        """
        frame = data.getvalue()
        frame = _INT32.pack(len(frame)) + frame
        return codec.read_response(frame, self.API_KEY, self.API_VERSION, most_elements=len(frame), allows_rest=True)


class AllClientQuotasRequest(TableRequest):
    """A DescribeClientQuotas request for all entities.

    Its answer is the version and the whole frame, which the caller decodes only if it differs from the last one.
    """

    def __init__(self) -> None:
        super().__init__(ApiKey.DESCRIBE_CLIENT_QUOTAS, ((), False))

    def decode(self, data: BytesIO) -> tuple[int, bytes]:
        """Return the version and the frame of a response."""
        frame = data.getvalue()
        return self.API_VERSION, _INT32.pack(len(frame)) + frame


def metadata_request(topics: Sequence[str] | None) -> TableRequest:
    """Return a request for the brokers of a cluster and the given topics. It creates no topic.

    If ``topics`` is None, it asks for all topics.
    """
    named = None if topics is None else [(NULL_UUID, topic.encode()) for topic in topics]
    return TableRequest(ApiKey.METADATA, (named, False, False, False), first=1)


def read_metadata(response: Sequence[Any]) -> Metadata:
    """Return the content of a response to ``metadata_request``."""
    _, brokers, _, controller_id, topics, *_ = response
    return Metadata(tuple(Broker(*one[:3]) for one in brokers), controller_id, tuple(map(_topic, topics)))


def _topic(topic: Sequence[Any]) -> Topic:
    error_code, name, topic_id, is_internal, partitions, _ = topic
    found = tuple(
        Partition(number, leader, replicas, in_sync) for _, number, leader, _, replicas, in_sync, _ in partitions
    )
    return Topic(error_code, name.decode(), topic_id if topic_id != NULL_UUID else None, found, is_internal)


def configs_request(query: ConfigQuery) -> TableRequest:
    """Return a DescribeConfigs request."""
    resources = [(int(query.kind), name, [(key,) for key in query.keys]) for name in query.names]
    return TableRequest(ApiKey.DESCRIBE_CONFIGS, (resources, False, False))


def read_configs(response: Sequence[Any]) -> list[Configs]:
    """Return the content of a response to ``configs_request``."""
    return [
        Configs(name, error_code, message, {key: value for key, value, *_ in entries})
        for error_code, message, _, name, entries in response[1]
    ]


def log_dirs_request(partitions: Mapping[str, Sequence[int]]) -> TableRequest:
    """Return a request to a broker for the sizes of its logs. ``partitions`` contains partition numbers by topic."""
    return TableRequest(ApiKey.DESCRIBE_LOG_DIRS, (list(partitions.items()),))
