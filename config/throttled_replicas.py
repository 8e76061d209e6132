"""The replicas that a throttle applies to: Kafka's ``leader.`` and ``follower.replication.throttled.replicas``.

::

    value := "*" | item ("," item)*      blanks around the value and each item, and empty items, are ignored
    item  := partition ":" broker        digits; the "-" of KIP-73's text is read as well

Kafka validates such a value in one place (``ThrottledReplicaListValidator``) and parses it in another
(``ConfigHandler``), which fails on some values that the first accepts: an empty item that is not the last, a blank in
the middle. This module has one parser, which accepts all that the validator does. ``none`` is not a keyword: no
throttle is an empty value, or none at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.errors import ThrottledReplicasError
from kafka_quota_proxy.config.units import INT32_MAX, shown

_ALL: Final = "*"
_ITEM: Final = re.compile(r"([0-9]{1,10})[:-]([0-9]{1,10})")
_BLANKS: Final = "".join(map(chr, range(0x21)))  # the characters that Java's String.trim removes
_HELP: Final = 'write "*" for all, or PARTITION:BROKER,PARTITION:BROKER, such as "0:101,1:102"'


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The throttled replicas of one topic: all, or those of some partitions on some brokers."""

    is_all: bool
    partitions: Mapping[int, frozenset[int]]  # by broker; empty for all

    def holds(self, partition: int, broker: int) -> bool:
        """Return whether the replica of a partition on a broker (in the leaders' list: its leader) is throttled."""
        return self.is_all or partition in self.partitions.get(broker, ())


ALL_REPLICAS: Final = ThrottledReplicas(is_all=True, partitions={})


def parse(text: str) -> ThrottledReplicas:
    """Return the replicas of a value. Raises ThrottledReplicasError: Kafka refuses it, or a number is no int32."""
    replicas, unread = read(text)
    if unread:
        raise ThrottledReplicasError(f"{shown(unread[0])} names no replica; {_HELP}")
    if replicas.is_all and len(_items(text)) > 1:
        raise ThrottledReplicasError(f"{_ALL!r} cannot be given with other items; {_HELP}")
    return replicas


def read(text: str) -> tuple[ThrottledReplicas, tuple[str, ...]]:
    """Lenient reader for values of a cluster: return the replicas, and the items that cannot be parsed."""
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
