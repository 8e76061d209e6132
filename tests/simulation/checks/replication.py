"""What the section ``replication`` of the file means for a partition that a follower fetches. KIP-73."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from tests.simulation.checks.settings import number
from tests.simulation.wire.fetch import FetchPartition, FetchRequest, parse_request
from tests.simulation.wire.fetch_response import FetchedPartition, parse_response

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


def asked_of(frame: bytes) -> tuple[FetchRequest, dict[Key, FetchPartition]]:
    """Return a Fetch, and its partitions."""
    request = parse_request(frame)
    return request, {(topic, one.partition): one for topic, of_topic in request.topics for one in of_topic}


def told_by(frame: bytes, version: int) -> tuple[int, dict[Key, FetchedPartition]]:
    """Return the error of a Fetch response, and its partitions."""
    response = parse_response(frame, version)
    return response.error_code, {(topic, one.partition): one for topic, of_topic in response.topics for one in of_topic}
