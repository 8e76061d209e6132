"""What the section ``replication`` of the file means for a partition that a follower fetches. KIP-73."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check
from tests.simulation.checks.settings import number
from tests.simulation.wire.transfer import FetchedPartition, FetchPartition, FetchRequest, fetch

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
_ALL: Final = "*"

Key = tuple[str | bytes, int]


class Bucket(NamedTuple):
    """Whose rate it is: that of a leader, or that of a follower."""

    side: str
    node_id: int


class Replication(NamedTuple):
    """The limits on replication. Without ``lists`` each replica that lags is throttled. Without rates none is."""

    rates: Mapping[str, float]
    lists: Mapping[str, str] | None

    @classmethod
    def of(cls, section: Mapping[str, Any] | None) -> Self:
        """Return what a section says. None is no section."""
        section = section or {}
        rates = {
            side: number(section[f"{side}.replication.throttled.rate"])
            for side in (LEADER, FOLLOWER)
            if f"{side}.replication.throttled.rate" in section
        }
        return cls(rates, section.get("throttled.replicas"))

    @property
    def is_on(self) -> bool:
        """Whether any follower may be throttled."""
        return bool(self.rates) and (self.lists is None or bool(self.lists))

    def is_named(self, topic: str | None, partition: int, node_id: int) -> bool:
        """Return whether the replica of a partition on a broker is one of those that the limits are for."""
        if self.lists is None:
            return True
        listed = self.lists.get(topic or "")
        return listed is not None and (listed == _ALL or f"{partition}:{node_id}" in listed.split(","))

    def buckets(self, topic: str | None, partition: int, leader: int, follower: int) -> Iterator[Bucket]:
        """Yield whose rates limit a partition that one broker fetches from another."""
        for side, node_id in ((LEADER, leader), (FOLLOWER, follower)):
            if side in self.rates and self.is_named(topic, partition, node_id):
                yield Bucket(side, node_id)

    def concerns(self, topic: str | None, partition: int, leader: int, follower: int) -> bool:
        """Return whether a partition is measured, with or without a rate."""
        return any(self.is_named(topic, partition, node_id) for node_id in (leader, follower))


class FollowerCheck(Check):
    """A check of followers' fetches, which knows the limits on replication in force."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._section = world.settings.replication
        self._limits = Replication.of(self._section)
        self._since_ms = 0.0  # from when on these limits are in force
        self._names: dict[bytes, str] = {}  # of topics, by their ids
        self._fetched: dict[int, dict[Key, FetchPartition]] = {}  # what each connection fetches
        self._sessions: dict[int, None] = {}  # the fetches that the leader got in a session

    def sent(self, exchange: "Exchange") -> None:
        """A fetch of a session names only what has changed."""
        if not is_of_follower(exchange):
            return
        self._follow_settings()
        request, parts = asked_of(exchange.request)
        fetched = self._fetched.setdefault(exchange.connection, {})
        if request.session_epoch <= 0:
            fetched.clear()
        for topic, numbers in request.forgotten:
            for index in numbers:
                fetched.pop((topic, index), None)
        fetched.update(parts)

    def at_broker(self, exchange: "Exchange", node_id: int, frame: bytes) -> None:
        """Note a session with the leader."""
        if is_of_follower(exchange) and asked_of(frame)[0].session_epoch >= 0:
            self._sessions[exchange.correlation_id] = None

    def _is_of_session(self, exchange: "Exchange") -> bool:
        """Return whether the leader got a fetch that is over in a session."""
        return self._sessions.pop(exchange.correlation_id, self) is None

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Forget what was known of a connection."""
        self._fetched.pop(connection, None)

    def _follow_settings(self) -> None:
        section = self.world.settings.replication
        if section != self._section:
            self._section = section
            self._limits = Replication.of(section)
            self._begin()

    def _begin(self) -> None:
        """Other limits are in force, or another process."""
        self._since_ms = self.world.clock.now_ms

    def proxy_started(self, number: int) -> None:
        """A new process has counted nothing yet."""
        self._begin()

    def _is_known(self, exchange: "Exchange") -> bool:
        """Return whether the same limits are in force since a fetch was sent."""
        self._follow_settings()
        return exchange.sent_ms > self._since_ms and not self.ledger.is_stopping

    def _place(self, exchange: "Exchange", key: Key) -> tuple[str | None, int, int, int]:
        topic, index = key
        name: str | None = topic if isinstance(topic, str) else None
        if isinstance(topic, bytes):
            found = self.world.scenario.cluster.topics_by_id.get(topic)
            name = self._names.get(topic) if found is None else found.name
            if name is not None:
                self._names[topic] = name  # also when it is deleted
        assert exchange.broker is not None
        return name, index, exchange.broker, int(exchange.client.split("-")[1])

    def _buckets(self, exchange: "Exchange", key: Key) -> Iterator[Bucket]:
        """Yield whose rates limit a partition of a fetch."""
        return self._limits.buckets(*self._place(exchange, key))


def is_of_follower(exchange: "Exchange") -> bool:
    """Return whether an exchange is a follower's fetch."""
    return exchange.is_inter_broker and exchange.api_key == frames.FETCH


def asked_of(frame: bytes) -> tuple[FetchRequest, dict[Key, FetchPartition]]:
    """Return a Fetch, and its partitions."""
    request = fetch.parse_request(frame)
    return request, {(topic, one.partition): one for topic, of_topic in request.topics for one in of_topic}


def told_by(frame: bytes, version: int) -> tuple[int, dict[Key, FetchedPartition]]:
    """Return the error of a Fetch response, and its partitions."""
    response = fetch.parse_response(frame, version)
    return response.error_code, {(topic, one.partition): one for topic, of_topic in response.topics for one in of_topic}
