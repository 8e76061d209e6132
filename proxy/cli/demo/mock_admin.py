"""Answers admin requests in place of librdkafka's mock cluster, which has none.

Topics are created and deleted in the mock cluster. A topic may ask for any number of replicas, and has one. Topics are
created here before the mock sees the request that asks for them, so that all topics are known. Other admin requests are
not announced, so that the client itself reports them as unsupported.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafka_quota_proxy.protocol import codec
from kafka_quota_proxy.protocol.api import API_NAMES, ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster

# The oldest and the newest version of each API that is answered. The newest versions without compact strings suffice
# for all clients.
_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    ApiKey.CREATE_TOPICS: (2, 4),
    ApiKey.DELETE_TOPICS: (1, 3),
}
_DEFAULT_PARTITIONS: Final = 4  # the mock's
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_UNKNOWN_TOPIC_OR_PARTITION: Final = 3
_INVALID_TOPIC: Final = 17
_TOPIC_ALREADY_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
_INVALID_REPLICATION_FACTOR: Final = 38
_INVALID_REPLICA_ASSIGNMENT: Final = 39

Fields = Sequence[Any]
Error = tuple[int, str | None]
_NO_ERROR: Final[Error] = (0, None)


class MockAdmin:
    """Answers the admin requests to the broker of a mock cluster. Requests and responses are frames without a size.

    Attributes:
        versions: The oldest and the newest version of each API that is answered, by API key.
    """

    def __init__(self, mock: MockCluster) -> None:
        self._mock = mock
        self.versions = {int(key): versions for key, versions in _VERSIONS.items()}
        self._answers: Mapping[int, Callable[[Fields], Fields]] = {
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.DELETE_TOPICS: self._delete_topics,
        }

    def answer(self, frame: bytes) -> bytes | None:
        """Return the response to a request, or None if the mock has to answer it.

        Raises:
            struct.error, ValueError: The request is malformed.
        """
        api_key, version = struct.unpack_from(">hh", frame)
        oldest, newest = _VERSIONS.get(api_key, (0, -1))
        is_answered = oldest <= version <= newest
        if not is_answered and api_key != ApiKey.METADATA:
            return None
        framed = struct.pack(">i", len(frame)) + frame
        try:
            head = codec.read_whole_head(framed)
            # librdkafka's Metadata v12 for all topics has three bytes behind its last field. Kafka reads no further.
            request, _ = codec.read_fields(framed, head.body, api_key, version, "request")
        except ProtocolError as error:
            raise ValueError(f"a request of {API_NAMES[api_key]} v{version} cannot be read: {error}") from None
        if api_key == ApiKey.METADATA:
            self._create_named_topics(request)
        if not is_answered:
            return None
        response = self._answers[api_key](request)
        return codec.write_response(api_key, version, head.correlation_id, response)[4:]

    def _create_named_topics(self, request: Fields) -> None:
        topics, may_create, *_ = request
        for _, name in (topics or ()) if may_create is not False else ():  # it is None before v4
            topic = name.decode() if name else ""
            if topic not in self._mock.topics and _TOPIC.fullmatch(topic):
                self._mock.create_topic(topic, _DEFAULT_PARTITIONS)

    def _create_topics(self, request: Fields) -> Fields:
        topics, _, _, validate_only = request
        results = []
        for _, name, partitions, replication_factor, assignment, _ in topics:
            error_code, message = self._create_topic(
                name.decode("utf-8", "replace"), partitions, replication_factor, dict(assignment), validate_only
            )
            results.append((None, name, None, error_code, message and message.encode(), None, None, None))
        return None, 0, None, results, None

    def _create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        replicas: Mapping[int, Sequence[int]],
        validate_only: bool,
    ) -> Error:
        if not _TOPIC.fullmatch(topic):
            return _INVALID_TOPIC, f"Topic name is invalid: '{topic}'"
        if topic in self._mock.topics:
            return _TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists."
        if replicas:
            if sorted(replicas) != list(range(len(replicas))) or not all(replicas.values()):
                return _INVALID_REPLICA_ASSIGNMENT, f"Invalid replica assignment for topic '{topic}'."
            partitions = len(replicas)
        elif partitions < 1 and partitions != -1:
            return _INVALID_PARTITIONS, "Number of partitions must be larger than 0."
        elif replication_factor < 1 and replication_factor != -1:
            return _INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        if not validate_only:
            self._mock.create_topic(topic, _DEFAULT_PARTITIONS if partitions == -1 else partitions)
        return _NO_ERROR

    def _delete_topics(self, request: Fields) -> Fields:
        _, topics, _, _ = request
        results = [(None, name, None, self._delete_topic(name.decode("utf-8", "replace")), None) for _, name in topics]
        return None, 0, None, results, None

    def _delete_topic(self, topic: str) -> int:
        if topic not in self._mock.topics:
            return _UNKNOWN_TOPIC_OR_PARTITION
        self._mock.delete_topic(topic)
        return 0
