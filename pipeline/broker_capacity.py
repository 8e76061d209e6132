"""Divides what brokers can bear among the entities that use them, max-min fair.

An entity has one limit, which holds on each of its brokers. The limits on a broker may add up to its capacity. If that
is too little, entities that want little get all of it. The others get equal parts.

First all entities get what they need, as far as the capacity goes. Then they get the headroom above it. This module
does no I/O and needs no Spark.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

Entity = tuple[str, str, str]  # the kind, the user and the client-id
Broker = tuple[int, str]  # the node id and the kind
# How many proxies each entity uses in front of each broker. Every proxy limits it separately.
Users = Mapping[Broker, Mapping[Entity, int]]


class Shortage(NamedTuple):
    """A broker whose clients need limits that add up to more than it bears, in bytes per second."""

    broker: Broker
    needed: float
    bearable: float


def shortages(needs: Mapping[Entity, float], users: Users, bearable: Mapping[Broker, float]) -> list[Shortage]:
    """Return the brokers that cannot bear the limits that their clients need, the worst first."""
    sums = {broker: sum(times * needs[one] for one, times in of.items()) for broker, of in users.items()}
    found = [Shortage(broker, sums[broker], bearable[broker]) for broker in users if sums[broker] > bearable[broker]]
    return sorted(found, key=lambda one: (-one.needed / max(one.bearable, 1), one.broker))


def shaped(
    needs: Mapping[Entity, float],
    limits: Mapping[Entity, float],
    users: Users,
    bearable: Mapping[Broker, float],
) -> dict[Entity, float]:
    """Return the limits that the brokers can bear, which are at most ``limits``. ``needs`` are met first."""
    met = max_min_fair(needs, users, bearable)
    left = {
        broker: bearable[broker] - sum(times * met[one] for one, times in of.items()) for broker, of in users.items()
    }
    more = max_min_fair({one: limit - needs[one] for one, limit in limits.items()}, users, left)
    return {one: met[one] + more[one] for one in limits}


def max_min_fair(wanted: Mapping[Entity, float], users: Users, bearable: Mapping[Broker, float]) -> dict[Entity, float]:
    """Return for each entity at most what it wants, such that no broker has to bear more than it can.

    The broker that is used up first decides the limits of all its entities. What they leave unused on their other
    brokers is divided among the other entities there.
    """
    given: dict[Entity, float] = {}
    left = {broker: max(0.0, bearable[broker]) for broker in users}
    while True:
        levels = {
            broker: _level({one: times for one, times in of.items() if one not in given}, wanted, left[broker])
            for broker, of in users.items()
        }
        broker = min(levels, key=lambda one: (levels[one], one), default=None)
        if broker is None or levels[broker] == inf:
            return {one: given.get(one, rate) for one, rate in wanted.items()}
        decided = [one for one in users[broker] if one not in given]
        given |= {one: min(wanted[one], levels[broker]) for one in decided}
        for other, of in users.items():
            left[other] = max(0.0, left[other] - sum(of.get(one, 0) * given[one] for one in decided))


def _level(times: Mapping[Entity, int], wanted: Mapping[Entity, float], left: float) -> float:
    """Return the rate at which the entities use up a broker, or infinity if they do not."""
    proxies = sum(times.values())
    for one in sorted(times, key=lambda one: wanted[one]):
        if wanted[one] * proxies > left:
            return left / proxies
        left -= times[one] * wanted[one]
        proxies -= times[one]
    return inf
