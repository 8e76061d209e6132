"""Answers admin requests in place of librdkafka's mock cluster, which has none.

Topics are created and deleted, and leaders moved, in the mock cluster. Each other request is answered by an error whose
text says that the embedded broker lacks it. An API without such a text in its responses is not announced, so that the
client itself reports it as unsupported.

All partitions of a topic are led by broker 1, and all groups coordinated by it, until a request moves a leader. The
mock chooses both differently, so topics are created here before the mock sees the request that asks for them.
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
    ApiKey.DESCRIBE_CONFIGS: (1, 2),
    ApiKey.ALTER_CONFIGS: (0, 1),
    ApiKey.CREATE_PARTITIONS: (0, 1),
    ApiKey.ELECT_LEADERS: (1, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 0),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 0),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 0),
}
_DEFAULT_PARTITIONS: Final = 4  # the mock's
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_UNKNOWN_TOPIC_OR_PARTITION: Final = 3
_INVALID_TOPIC: Final = 17
_UNSUPPORTED_VERSION: Final = 35
_TOPIC_ALREADY_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
_INVALID_REPLICATION_FACTOR: Final = 38
_INVALID_REPLICA_ASSIGNMENT: Final = 39
_ELECTION_NOT_NEEDED: Final = 84
_NO_REASSIGNMENT_IN_PROGRESS: Final = 85

_LACKS: Final = (
    "kafka-quota-proxy's embedded broker has no {}: run the test in front of a Kafka (--kafka-bootstrap-servers)"
)

Fields = Sequence[Any]
Error = tuple[int, str | None]
_NO_ERROR: Final[Error] = (0, None)
_UNKNOWN: Final[Error] = (_UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
# The response to a request of an API that is announced for its error message only. ``protocol.messages`` has the fields
# of both.
_REFUSALS: Final[Mapping[int, Callable[[Fields, Error], Fields]]] = {
    ApiKey.DESCRIBE_CONFIGS: lambda request, error: (0, [(*error, *resource[:2], ()) for resource in request[0]]),
    ApiKey.ALTER_CONFIGS: lambda request, error: (0, [(*error, *resource[:2]) for resource in request[0]]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request, error: (0, [(*error, *resource[:2]) for resource in request[0]]),
    ApiKey.CREATE_PARTITIONS: lambda request, error: (
        (None, 0, None, [(None, topic[1], error[0], (error[1] or "").encode()) for topic in request[0]], None)
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda _, error: (0, *error, None),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda request, error: (0, [(*error, entity) for entity, _ in request[0]]),
}


class MockAdmin:
    """Answers the admin requests to all brokers of a mock cluster. Requests and responses are frames without a size.

    Attributes:
        versions: The oldest and the newest version of each API that is answered, by API key.
    """

    def __init__(self, mock: MockCluster) -> None:
        self._mock = mock
        self._preferred: dict[tuple[str, int], int] = {}  # the preferred leaders other than broker 1
        self.versions = {int(key): versions for key, versions in _VERSIONS.items()}
        self._answers: Mapping[int, Callable[[Fields], Fields]] = {
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.DELETE_TOPICS: self._delete_topics,
            ApiKey.ELECT_LEADERS: self._elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._reassign,
            # There is none, because each ends at once.
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _: (0, *_NO_ERROR, ()),
        }

    def answer(self, frame: bytes) -> bytes | None:
        """Return the response to a request, or None if the mock has to answer it.

        Raises:
            struct.error, ValueError: The request is malformed.
        """
        api_key, version = struct.unpack_from(">hh", frame)
        oldest, newest = _VERSIONS.get(api_key, (0, -1))
        is_answered = oldest <= version <= newest
        if not is_answered and api_key not in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR):
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
        elif api_key == ApiKey.FIND_COORDINATOR:
            key, kind, _ = request
            self._mock.set_coordinator("transaction" if kind == 1 else "group", key, 1)
        if not is_answered:
            return None
        lacks = _UNSUPPORTED_VERSION, _LACKS.format(API_NAMES[api_key])
        answer = self._answers.get(api_key)
        response = answer(request) if answer else _REFUSALS[api_key](request, lacks)
        return codec.write_response(api_key, version, head.correlation_id, response)[4:]

    def _create_named_topics(self, request: Fields) -> None:
        topics, may_create, *_ = request
        for _, name in (topics or ()) if may_create is not False else ():  # it is None before v4
            topic = name.decode() if name else ""
            if topic not in self._mock.leaders and _TOPIC.fullmatch(topic):
                self._mock.create_topic(topic, [1] * _DEFAULT_PARTITIONS)

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
        if topic in self._mock.leaders:
            return _TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists."
        if replicas:
            if sorted(replicas) != list(range(len(replicas))) or not all(map(self._are_brokers, replicas.values())):
                return _INVALID_REPLICA_ASSIGNMENT, f"Invalid replica assignment for topic '{topic}'."
            leaders = [replicas[partition][0] for partition in range(len(replicas))]
        elif partitions < 1 and partitions != -1:
            return _INVALID_PARTITIONS, "Number of partitions must be larger than 0."
        elif replication_factor < 1 and replication_factor != -1:
            return _INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        elif replication_factor > self._mock.brokers:
            return _INVALID_REPLICATION_FACTOR, (
                f"Replication factor: {replication_factor} larger than available brokers: {self._mock.brokers}."
            )
        else:
            leaders = [1] * (_DEFAULT_PARTITIONS if partitions == -1 else partitions)
        if not validate_only:
            self._mock.create_topic(topic, leaders)
            self._preferred |= {(topic, partition): leader for partition, leader in enumerate(leaders) if leader != 1}
        return _NO_ERROR

    def _delete_topics(self, request: Fields) -> Fields:
        _, topics, _, _ = request
        results = [(None, name, None, self._delete_topic(name.decode("utf-8", "replace")), None) for _, name in topics]
        return None, 0, None, results, None

    def _delete_topic(self, topic: str) -> int:
        if topic not in self._mock.leaders:
            return _UNKNOWN_TOPIC_OR_PARTITION
        for partition in range(len(self._mock.leaders[topic])):
            self._preferred.pop((topic, partition), None)
        self._mock.delete_topic(topic)
        return 0

    def _reassign(self, request: Fields) -> Fields:
        """Make the first replica of each list the preferred leader."""
        _, flag, topics = request
        results = [
            (topic, [(index, *self._reassign_one(topic, index, replicas)) for index, replicas in partitions])
            for topic, partitions in topics
        ]
        return 0, flag, *_NO_ERROR, results

    def _reassign_one(self, topic: str, partition: int, replicas: Sequence[int] | None) -> Error:
        if not self._exists(topic, partition):
            return _UNKNOWN
        if replicas is None:
            return _NO_REASSIGNMENT_IN_PROGRESS, None
        if not self._are_brokers(replicas):
            return _INVALID_REPLICA_ASSIGNMENT, f"The brokers are 1 to {self._mock.brokers}, and not {replicas}."
        self._preferred[topic, partition] = replicas[0]
        if self._mock.leaders[topic][partition] not in replicas:
            self._mock.set_leader(topic, partition, replicas[0])
        return _NO_ERROR

    def _elect_leaders(self, request: Fields) -> Fields:
        """Make the preferred replicas the leaders of the partitions, or of all that another broker leads."""
        unclean, asked, _ = request
        of_all = [(topic, range(len(leaders))) for topic, leaders in self._mock.leaders.items()]
        results: list[Fields] = []
        for topic, partitions in of_all if asked is None else asked:
            elected = [(partition, *self._elect(topic, partition, unclean=bool(unclean))) for partition in partitions]
            if asked is None:
                elected = [each for each in elected if each[1] != _ELECTION_NOT_NEEDED]
            if elected or asked is not None:
                results.append((topic, elected))
        return 0, 0, results

    def _elect(self, topic: str, partition: int, *, unclean: bool) -> Error:
        if not self._exists(topic, partition):
            return _UNKNOWN
        preferred = self._preferred.get((topic, partition), 1)
        if unclean or self._mock.leaders[topic][partition] == preferred:
            return _ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        self._mock.set_leader(topic, partition, preferred)
        return _NO_ERROR

    def _exists(self, topic: str, partition: int) -> bool:
        return 0 <= partition < len(self._mock.leaders.get(topic, ()))

    def _are_brokers(self, replicas: Sequence[int]) -> bool:
        known = {*range(1, self._mock.brokers + 1)}
        return bool(replicas) and len({*replicas}) == len(replicas) and known.issuperset(replicas)
