"""Plans the events of a soak from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from tests.soak.clients import CLIENTS, KIB, VISITOR_RATES, Client

# A run of at least this length has the intervals below. A shorter one has three lives of the proxy.
WHOLE_MINUTES: Final = 30
_RELOAD_EVERY_S: Final = 20
_ALTER_EVERY_S: Final = 25
_BROKER_EVERY_S: Final = 300
_PROXY_EVERY_S: Final = 420
LONG_LIFE_S: Final = 990
# A limit stays for longer than a minute, so that there are whole minutes to check.
_HOLD_S: Final = 130
_SHORT_HOLD_S: Final = 80
_AWAY_S: Final = (4.0, 15.0)
_QUIET_END_S: Final = 40


class Kind(Enum):
    RELOAD = "reload"
    ALTER = "alter a quota"
    KILL_BROKER = "kill a broker"
    KILL_PROXY = "kill the proxy"
    STOP_PROXY = "stop the proxy"


class Event(NamedTuple):
    """An event at a time since the start.

    A reload or an alteration sets ``limit`` for ``client``, or for visitors if ``client`` is empty. A killed ``broker``
    (its index) is away for ``away_s``.
    """

    at_s: float
    kind: Kind
    client: str = ""
    limit: int = 0
    broker: int = 0
    away_s: float = 0


class Plan(NamedTuple):
    limits: dict[str, int]  # the first limit of each client
    events: list[Event]


def plan(minutes: float, seed: int) -> Plan:
    """Return the first limits and the events, in the order of their times."""
    chance = random.Random(seed)  # noqa: S311
    end_s = minutes * 60
    hold_s = _HOLD_S if minutes >= WHOLE_MINUTES else _SHORT_HOLD_S
    limits = {client.name: _limit(client, chance) for client in CLIENTS}
    events = [
        *_changes(Kind.RELOAD, [one for one in CLIENTS if one.in_file], _RELOAD_EVERY_S, end_s, hold_s, chance),
        *_changes(Kind.ALTER, [one for one in CLIENTS if not one.in_file], _ALTER_EVERY_S, end_s, hold_s, chance),
        *_broker_kills(minutes, end_s, chance),
        *_proxy_ends(minutes, end_s, chance),
    ]
    return Plan(
        limits, sorted((event for event in events if event.at_s < end_s - _QUIET_END_S), key=lambda it: it.at_s)
    )


def _limit(client: Client, chance: random.Random) -> int:
    return chance.randrange(client.lowest, client.highest, KIB)


def _changes(
    kind: Kind, clients: list[Client], every_s: float, end_s: float, hold_s: float, chance: random.Random
) -> Iterator[Event]:
    """Yield changes of limits. Each changes the client whose limit is the oldest, once it has held for long enough."""
    changed = {client.name: chance.uniform(-hold_s, 0) for client in clients}
    at_s = chance.uniform(5, every_s)
    while at_s < end_s:
        oldest = min(clients, key=lambda client: changed[client.name])
        if at_s - changed[oldest.name] >= hold_s:
            changed[oldest.name] = at_s
            yield Event(at_s, kind, oldest.name, _limit(oldest, chance))
        elif kind is Kind.RELOAD:
            yield Event(at_s, kind, limit=chance.choice(VISITOR_RATES))
        at_s += every_s * chance.uniform(0.85, 1.15)


def _broker_kills(minutes: float, end_s: float, chance: random.Random) -> Iterator[Event]:
    every_s = _BROKER_EVERY_S if minutes >= WHOLE_MINUTES else end_s / 2.5
    at_s = every_s * 0.6
    while at_s < end_s:
        yield Event(at_s, Kind.KILL_BROKER, broker=chance.randrange(3), away_s=chance.uniform(*_AWAY_S))
        at_s += every_s * chance.uniform(0.9, 1.1)


def _proxy_ends(minutes: float, end_s: float, chance: random.Random) -> Iterator[Event]:
    """Yield the ends of the proxy's lives but the last, in turn by SIGKILL and SIGTERM. One life is a long one."""
    if minutes >= WHOLE_MINUTES:
        short = max(round((end_s - LONG_LIFE_S) / _PROXY_EVERY_S), 1)
        lives_s = [(end_s - LONG_LIFE_S) / short] * short
        lives_s.insert(chance.randrange(short + 1), LONG_LIFE_S)
    else:
        lives_s = [end_s * 0.5, end_s * 0.25, end_s * 0.25]
    at_s = 0.0
    for number, life_s in enumerate(lives_s[:-1]):
        at_s += life_s
        yield Event(at_s, (Kind.KILL_PROXY, Kind.STOP_PROXY)[number % 2])
