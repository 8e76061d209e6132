"""Reads the lists of replicas to which a replication throttle applies.

Kafka keeps these lists in the topic configs ``leader.replication.throttled.replicas`` and
``follower.replication.throttled.replicas``. Their syntax is::

    value := "*" | item ("," item)*      blanks around the value and around items, and empty items, are ignored
    item  := partition ":" broker        both in digits; "-" instead of ":", as in the text of KIP-73, is read as well

This module accepts all that Kafka's ``ThrottledReplicaListValidator`` accepts, even values on which Kafka's
``ConfigHandler`` fails later. There is no keyword ``none``: to throttle no replica, the value is left
empty or unset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.units import INT32_MAX, shown

_ALL: Final = "*"
_ITEM: Final = re.compile(r"([0-9]{1,10})[:-]([0-9]{1,10})")
_BLANKS: Final = "".join(map(chr, range(0x21)))  # the characters that Java's String.trim removes
_HELP: Final = 'write "*" for all, or PARTITION:BROKER,PARTITION:BROKER, such as "0:101,1:102"'


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The throttled replicas of one topic: all its replicas, or those of some partitions on some brokers."""

    is_all: bool
    partitions: Mapping[int, frozenset[int]]  # by node id of the broker; empty if ``is_all``

    def holds(self, partition: int, broker: int) -> bool:
        """Return whether the replica of a partition on a broker is throttled.

        Kafka has one list of throttled replicas for leaders and one for followers. For the list of leaders, ``broker``
        is the node id of the partition's leader. For the list of followers, it is the node id of the follower.
        """
        return self.is_all or partition in self.partitions.get(broker, ())


ALL_REPLICAS: Final = ThrottledReplicas(is_all=True, partitions={})


def parse(text: str) -> ThrottledReplicas:
    """Read a value strictly, and return its replicas. Raises UnitError if Kafka would refuse the value."""
    replicas, unread = read(text)
    if unread:
        raise UnitError(f"{shown(unread[0])} is not a replica; {_HELP}")
    if replicas.is_all and len(_items(text)) > 1:
        raise UnitError(f"{_ALL!r} cannot be given with other items; {_HELP}")
    return replicas


def read(text: str) -> tuple[ThrottledReplicas, tuple[str, ...]]:
    """Read a value from a cluster's configs. Return its replicas, and the items that cannot be parsed."""
    partitions: dict[int, set[int]] = {}
    unread: list[str] = []
    items = _items(text)
    for item in items:
        found = _ITEM.fullmatch(item)
        partition, broker = (int(found[1]), int(found[2])) if found else (-1, -1)
        if found and partition <= INT32_MAX and broker <= INT32_MAX:
            partitions.setdefault(broker, set()).add(partition)
        elif item != _ALL:
            unread.append(item)
    if _ALL in items:
        return ALL_REPLICAS, tuple(unread)
    return ThrottledReplicas(False, {broker: frozenset(partitions[broker]) for broker in partitions}), tuple(unread)


def _items(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip(_BLANKS))]
