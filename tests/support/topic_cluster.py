"""Simulates a cluster with one topic ``store``, and the client of aiokafka that talks to the cluster."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Final

from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from kafka_quota_proxy.config.model import Address, AdminClient, QuotasFrom

SETTINGS: Final = QuotasFrom(topic="store", client=AdminClient(bootstrap_servers=(Address(host="k", port=9092),)))
_BOOTSTRAP: Final = 3
_LEADER: Final = 7
_NOBODY: Final = 9
BROKERS: Final = (_BOOTSTRAP, 5, _LEADER)
_EARLIEST: Final = -2


@dataclass
class TopicCluster(ABC):
    """The cluster, which answers where the topic is and where it ends. Subclasses answer reads and writes.

    Attributes:
        partitions: The number of partitions.
        leader: The address of the leader.
        leader_id: The node id of the leader.
        mistaken: Brokers that name another leader.
        silent: Brokers that do not answer Metadata requests.
        topic_error: The error code of the topic in Metadata responses.
        is_away: Whether connections fail.
        latest_error: The error code of requests for the end of the topic.
        clients: The number of clients so far.
        closed: The number of closed clients.
    """

    partitions: int = 1
    leader: Address = field(default_factory=lambda: Address(host="127.0.0.1", port=19092))
    leader_id: int = _LEADER
    mistaken: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    topic_error: int = 0
    is_away: bool = False
    latest_error: int = 0
    clients: int = 0
    closed: int = 0

    def client(self, **settings: object) -> "TopicClient":
        assert settings["bootstrap_servers"] == ["k:9092"]
        assert settings["client_id"] == "me"
        self.clients += 1
        return TopicClient(self)

    def brokers(self) -> list[object]:
        return [SimpleNamespace(nodeId=node_id) for node_id in BROKERS]

    async def answer(self, request: object, *, node_id: int = _BOOTSTRAP) -> object:
        if isinstance(request, MetadataRequest):
            assert request._allow_auto_topic_creation is False
            if node_id in self.silent:
                raise KafkaConnectionError("no answer")
            leader_id = _NOBODY if node_id in self.mistaken else self.leader_id
            partition = (0, 0, leader_id, [_LEADER], [_LEADER])
            return SimpleNamespace(
                brokers=[(_BOOTSTRAP, "k", 9092, None), (leader_id, self.leader.host, self.leader.port, None)],
                topics=[(self.topic_error, "store", False, [partition] * self.partitions)],
            )
        if isinstance(request, OffsetRequest):
            ((_, ((_, which),)),) = request._topics
            of_end = (0, self.latest_error, -1, self.end())
            return SimpleNamespace(topics=[("store", [(0, 0, -1, self.begin()) if which == _EARLIEST else of_end])])
        return await self.answer_of_leader(request)

    def begin(self) -> int:
        """Return the offset of the first record."""
        return 0

    @abstractmethod
    def end(self) -> int:
        """Return the offset after the last record."""

    @abstractmethod
    async def answer_of_leader(self, request: object) -> object:
        """Return the answer to all other requests."""


@dataclass
class TopicClient:
    """Stands in for ``AIOKafkaClient``. It has the methods that the proxy calls."""

    cluster: TopicCluster

    async def bootstrap(self) -> None:
        if self.cluster.is_away:
            raise KafkaConnectionError("Unable to bootstrap from k:9092")

    def get_random_node(self) -> int:
        return _BOOTSTRAP

    async def send(self, node_id: int, request: object) -> object:
        # The old leader may be asked, too. It answers as before, because it has not heard of the new leader.
        is_of_all = isinstance(request, MetadataRequest)
        assert node_id in (BROKERS if is_of_all else (_LEADER, self.cluster.leader_id))
        return await self.cluster.answer(request, node_id=node_id)

    async def close(self) -> None:
        self.cluster.closed += 1
