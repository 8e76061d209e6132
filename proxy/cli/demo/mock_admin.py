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
from io import SEEK_CUR, BytesIO
from typing import Any, Final

from aiokafka.protocol.types import Boolean, CompactString, Int8, Int32, String, TaggedFields, UnsignedVarInt32

from kafka_quota_proxy.proxy.cli.demo.mock_admin_layouts import LAYOUTS
from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster

_METADATA: Final = 3
_FIND_COORDINATOR: Final = 10
_FLEXIBLE_METADATA: Final = 9
_FLEXIBLE_FIND_COORDINATOR: Final = 3
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
# The response to a request of an API that is announced for its error message only, by the API's name.
_REFUSALS: Final[Mapping[str, Callable[[Fields, Error], Fields]]] = {
    "DescribeConfigs": lambda request, error: (0, [(*error, *resource[:2], []) for resource in request[0]]),
    "AlterConfigs": lambda request, error: (0, [(*error, *resource[:2]) for resource in request[0]]),
    "IncrementalAlterConfigs": lambda request, error: (0, [(*error, *resource[:2]) for resource in request[0]]),
    "CreatePartitions": lambda request, error: (0, [(topic, *error) for topic, _ in request[0]]),
    "DescribeClientQuotas": lambda _, error: (0, *error, None),
    "AlterClientQuotas": lambda request, error: (0, [(*error, entity) for entity, _ in request[0]]),
}


class MockAdmin:
    """Answers the admin requests to all brokers of a mock cluster. Requests and responses are frames.

    Attributes:
        versions: The oldest and the newest version of each API that is answered, by API key.
    """

    def __init__(self, mock: MockCluster) -> None:
        self._mock = mock
        self._preferred: dict[tuple[str, int], int] = {}  # the preferred leaders other than broker 1
        self._layouts = {(layout.api_key, version): layout for layout in LAYOUTS for version in layout.versions}
        self.versions = {
            key: (min(each for each in self._layouts if each[0] == key)[1], version)
            for key, version in sorted(self._layouts)
        }
        self._answers: Mapping[str, Callable[[Fields], Fields]] = {
            "CreateTopics": self._create_topics,
            "DeleteTopics": self._delete_topics,
            "ElectLeaders": self._elect_leaders,
            "AlterPartitionReassignments": self._reassign,
            # There is none, because each ends at once.
            "ListPartitionReassignments": lambda _: (0, *_NO_ERROR, [], {}),
        }

    def answer(self, frame: bytes) -> bytes | None:
        """Return the response to a request, or None if the mock has to answer it.

        Raises:
            struct.error, ValueError: The request ends too early.
        """
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if api_key == _METADATA:
            self._create_named_topics(frame, version)
        elif api_key == _FIND_COORDINATOR:
            self._choose_coordinator(frame, version)
        layout = self._layouts.get((api_key, version))
        if layout is None:
            return None
        request = layout.request.decode(_body(frame, is_flexible=layout.is_flexible))
        response = (
            self._answers[layout.api](request)
            if layout.api in self._answers
            else _REFUSALS[layout.api](request, (_UNSUPPORTED_VERSION, _LACKS.format(layout.api)))
        )
        # The header of a flexible response has tagged fields, too.
        return struct.pack(">i", correlation_id) + bytes(layout.is_flexible) + bytes(layout.response.encode(response))

    def _create_named_topics(self, frame: bytes, version: int) -> None:
        for topic in topics_to_create(_body(frame, is_flexible=version >= _FLEXIBLE_METADATA), version):
            if topic not in self._mock.leaders and _TOPIC.fullmatch(topic):
                self._mock.create_topic(topic, [1] * _DEFAULT_PARTITIONS)

    def _choose_coordinator(self, frame: bytes, version: int) -> None:
        fields = _body(frame, is_flexible=version >= _FLEXIBLE_FIND_COORDINATOR)
        string = CompactString if version >= _FLEXIBLE_FIND_COORDINATOR else String
        key = string("utf-8").decode(fields)
        kind = "transaction" if version >= 1 and Int8.decode(fields) == 1 else "group"
        self._mock.set_coordinator(kind, key, 1)

    def _create_topics(self, request: Fields) -> Fields:
        topics, _, validate_only = request
        return 0, [(topic[0], *self._create_topic(*topic, validate_only=validate_only)) for topic in topics]

    def _create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        assignment: Sequence[tuple[int, list[int]]],
        _configs: Fields,
        *,
        validate_only: bool,
    ) -> Error:
        if not _TOPIC.fullmatch(topic):
            return _INVALID_TOPIC, f"Topic name is invalid: '{topic}'"
        if topic in self._mock.leaders:
            return _TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists."
        if assignment:
            replicas = dict(assignment)
            if sorted(replicas) != list(range(len(assignment))) or not all(map(self._are_brokers, replicas.values())):
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
        topics, _ = request
        return 0, [(topic, self._delete_topic(topic)) for topic in topics]

    def _delete_topic(self, topic: str) -> int:
        if topic not in self._mock.leaders:
            return _UNKNOWN_TOPIC_OR_PARTITION
        for partition in range(len(self._mock.leaders[topic])):
            self._preferred.pop((topic, partition), None)
        self._mock.delete_topic(topic)
        return 0

    def _reassign(self, request: Fields) -> Fields:
        """Make the first replica of each list the preferred leader."""
        topics = request[-2]
        results: list[Fields] = [
            (topic, [(index, *self._reassign_one(topic, index, replicas), {}) for index, replicas, _ in partitions], {})
            for topic, partitions, _ in topics
        ]
        return (0, *request[1:-2], *_NO_ERROR, results, {})

    def _reassign_one(self, topic: str, partition: int, replicas: list[int] | None) -> Error:
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
        unclean, asked = request[:2]
        if asked is None:
            pairs = [(topic, range(len(leaders))) for topic, leaders in self._mock.leaders.items()]
        else:
            pairs = [(topic, partitions) for topic, partitions, *_ in asked]
        tags: list[Mapping[int, bytes]] = [{}] if len(request) > 3 else []  # of v2
        results: list[Fields] = []
        for topic, partitions in pairs:
            elected = [(partition, *self._elect(topic, partition, unclean=bool(unclean))) for partition in partitions]
            if asked is None:
                elected = [each for each in elected if each[1] != _ELECTION_NOT_NEEDED]
            if elected or asked is not None:
                results.append((topic, [(*each, *tags) for each in elected], *tags))
        return 0, 0, results, *tags

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


def topics_to_create(fields: BytesIO, version: int) -> list[str]:
    """Return the topics that the body of a Metadata request names, or none if it forbids their creation.

    The body consists of an array of topics, (v4+: bool allow_auto_topic_creation) and the rest. A topic consists of
    (v10+: uuid topic_id), string name, and (v9+) tagged fields. The array and the string are compact from v9 on.
    """
    is_flexible = version >= _FLEXIBLE_METADATA
    string = (CompactString if is_flexible else String)("utf-8")
    topics = []
    for _ in range(UnsignedVarInt32.decode(fields) - 1 if is_flexible else Int32.decode(fields)):
        if version >= 10:
            fields.seek(16, SEEK_CUR)
        topics.append(string.decode(fields))
        if is_flexible:
            TaggedFields.decode(fields)
    return [topic for topic in topics if topic] if version < 4 or Boolean.decode(fields) else []


def _body(frame: bytes, *, is_flexible: bool) -> BytesIO:
    """Return the request after its header, which ends with string client_id and, if flexible, tagged fields."""
    fields = BytesIO(frame)
    fields.seek(8)
    String("utf-8").decode(fields)
    if is_flexible:
        TaggedFields.decode(fields)
    return fields
