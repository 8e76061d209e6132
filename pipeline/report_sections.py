"""Builds what the reports of ``capacity`` and ``whatif`` have in common: the verdict and the key figures.

Does no I/O and needs no Spark.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka_quota_proxy.pipeline.limit_search import Bounds, Entity
from kafka_quota_proxy.pipeline.quota_comparison import TOO_LOOSE, TOO_TIGHT, UNUSED
from kafka_quota_proxy.pipeline.report import Column, duration, label, share


class Replay(NamedTuple):
    """What a replay found under a limit, on the broker where each is highest. ``name`` is the entity in words."""

    name: str
    throttled_share: float
    longest_delay_ms: float


class Brokers(NamedTuple):
    """What is known about brokers.

    ``overfull`` is the number of brokers that cannot bear what their clients need. ``fullest`` is the highest sum of
    limits divided by the capacity of the broker, or None if no capacity is known. ``unknown`` is the number of brokers
    without a known capacity.
    """

    overfull: int = 0
    fullest: float | None = None
    unknown: int = 0


class Verdict(NamedTuple):
    """A sentence about limits. ``is_good`` if they can be switched on."""

    words: str
    is_good: bool


def verdict(limits: Sequence[Replay], bounds: Bounds, brokers: Brokers | None = None) -> Verdict:
    """Return the verdict on limits, with the worst of what speaks against them.

    ``brokers`` is None if the verdict is about clients only.
    """
    if not limits:
        return Verdict("There is nothing to switch on: no client in the log has a limit.", is_good=False)
    late = [one for one in limits if one.longest_delay_ms > bounds.delay_ms]
    silent = [one for one in limits if one.throttled_share > bounds.share]
    if late:
        worst = max(late, key=lambda one: one.longest_delay_ms)
        does = f"delay{_s(late)} data by more than {duration(bounds.delay_ms)}"
        return _against(late, limits, does, f"{worst.name}, {duration(worst.longest_delay_ms)}")
    if silent:
        worst = max(silent, key=lambda one: one.throttled_share)
        does = f"throttle{_s(silent)} clients for more than {share(bounds.share)} of their time"
        return _against(silent, limits, does, f"{worst.name}, {share(worst.throttled_share)}")
    if brokers is not None and brokers.overfull:
        them = "one broker" if brokers.overfull == 1 else f"{brokers.overfull} brokers"
        return Verdict(f"Do not switch these on: {them} cannot bear what clients need.", is_good=False)
    count = f"{len(limits):,} limit{'' if len(limits) == 1 else 's'} can be switched on"
    return Verdict(f"{count}: {_longest(limits)}{_borne(brokers)}.", is_good=True)


def _against(found: Sequence[Replay], limits: Sequence[Replay], does: str, worst: str) -> Verdict:
    which = f"{len(found):,} of {len(limits):,} limits" if len(limits) > 1 else "the limit"
    return Verdict(f"Do not switch these on: {which} {does}; the worst is {worst}.", is_good=False)


def _s(found: Sequence[Replay]) -> str:
    return "s" if len(found) == 1 else ""


def _longest(limits: Sequence[Replay]) -> str:
    longest_ms = max(one.longest_delay_ms for one in limits)
    return f"no client waits longer than {duration(longest_ms)}" if longest_ms else "no client waits"


def _borne(brokers: Brokers | None) -> str:
    if brokers is None:
        return ""
    if brokers.fullest is None:
        return "; what the brokers can bear is unknown"
    if brokers.fullest > 1:
        return f", but all at once they are {brokers.fullest:.3g} times what a broker can bear"
    which = "every broker" if not brokers.unknown else "every broker with a known capacity"
    return f", and {which} bears them all at once"


MOST_ROWS: Final = 200
TEAM: Final = Column("team", "team", "text", "the owner on the last day of the log", is_chosen=True)

Row = Mapping[str, Any]


def named(entity: Entity) -> str:
    """Return the names and the kind of an entity as one text."""
    return f"{label(*entity[1:])}, {entity[0]}"


def replays_of(throttled: Mapping[Entity, Row]) -> list[Replay]:
    """Return what a replay found for each entity, for the verdict."""
    return [Replay(named(names), row["throttled_share"], row["longest_delay_ms"]) for names, row in throttled.items()]


def worst_facts(throttled: Mapping[Entity, Row]) -> list[tuple[str, str]]:
    """Return the highest share of time throttled and the longest delay. There are none if no entity is throttled."""
    worst = max(throttled.items(), key=lambda item: item[1]["throttled_share"] or 0, default=None)
    if worst is None or not worst[1]["throttled_share"]:
        return []
    latest, row = max(throttled.items(), key=lambda item: item[1]["longest_delay_ms"])
    return [
        (share(worst[1]["throttled_share"]), f"of its time silent, the most of all: {named(worst[0])}"),
        (duration(row["longest_delay_ms"]), f"the longest delay of a request: {named(latest)}"),
    ]


def state_facts(states: Iterable[str], of: str) -> list[tuple[str, str]]:
    """Return how many limits do not fit. ``of`` says which limits these are."""
    every = list(states)
    counts = [every.count(state) for state in (TOO_TIGHT, TOO_LOOSE, UNUSED)]
    if not any(counts):
        return []
    return [(" / ".join(f"{count:,}" for count in counts), f"{of} that are too tight / too loose / unused")]
