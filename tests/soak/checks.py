"""What must hold in a soak. Each check returns its findings, which are empty if all is well."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.soak.clients import Client
from tests.soak.records import Jump
from tests.soak.slope import Fit, Point, Verdict, fit, summarised

# docs/explanation/throttling.md: the bytes of any minute relative to the limit. A sampled minute may have six bursts of
# eleven seconds' worth (1.10), the last of which may exceed its window by the requests in flight.
MINUTE_BOUNDS: Final = {"sampled": 1.13, "paced": 1.05}
# What a new bucket lets pass at once, in seconds of its limit.
BURSTS_S: Final = {"sampled": 11, "paced": 1}
# A client notes its bytes a moment after they passed.
_SETTLES_S: Final = 2.0
MINUTE_S: Final = 60
# A batch that was sent to a broker or proxy that then died is sent again, at the latest after the request timeout of
# 30 s, and then waits for its turn.
FAILURE_LASTS_S: Final = 60
# A member of a group that lost its coordinator joins again after a request timeout, a session and a rebalance, and then
# reads again what it had not committed.
MEMBERS_RETURN_S: Final = 120
_EVERY_S: Final = 10
# A life of this length must show that it is flat. A shorter one must not show that it grows.
LONG_LIFE_S: Final = 15 * 60
_SHOWN: Final = 5


class Span(NamedTuple):
    """From one Unix time to another."""

    start: float
    end: float

    def has(self, at: float) -> bool:
        return self.start <= at <= self.end


class Change(NamedTuple):
    """A new limit. It held at some time between the request and its acknowledgement."""

    asked_s: float
    held_s: float
    limit: float


@dataclass(slots=True)
class Life:
    """One process of the proxy, from its start to its end. ``warm_s`` is the end of its warm-up."""

    started_s: float
    warm_s: float = math.inf
    ended_s: float = 0.0
    end: str = "end of the run"
    memory: list[Point] = field(default_factory=list)  # MiB
    descriptors: list[Point] = field(default_factory=list)  # without two for each client's connection
    lag: list[Point] = field(default_factory=list)  # ms
    internal_errors: float = 0
    faults: list[str] = field(default_factory=list)

    @property
    def length_s(self) -> float:
        return self.ended_s - self.started_s


class Trend(NamedTuple):
    """The growth of one quantity in one life. ``verdict`` is None if there are too few samples for a fit."""

    fit: Fit | None
    verdict: Verdict | None
    middle: float


class Quantity(NamedTuple):
    """Something that must not grow by more than ``bound`` in ten minutes."""

    name: str
    unit: str
    bound: float
    by: Callable[[list[float]], float]  # makes one sample of those in ten seconds


def _lower_quartile(values: list[float]) -> float:
    return sorted(values)[len(values) // 4]


# Without a leak, memory changes in steps of 1 MiB, as Python takes it, and clients that wait for a broker change the
# number of descriptors by about four. The bounds are above that. A leak grows faster, because ``ShortConnections``
# opens thousands of connections in ten minutes. Of the loop lag the lower quartile counts, because other programs of
# the machine delay the rest.
QUANTITIES: Final = (
    Quantity("memory", "MiB", 2.0, statistics.median),
    Quantity("descriptors", "", 6.0, statistics.median),
    Quantity("lag", "ms", 1.0, _lower_quartile),
)


def trend(life: Life, quantity: Quantity, *, away: Sequence[Span], strictness: float = 1.0) -> Trend:
    """Fit a quantity of a life after its warm-up, without the times in which a broker was ``away``."""
    points = [
        point
        for point in getattr(life, quantity.name)
        if point[0] >= life.warm_s and not any(span.has(point[0]) for span in away)
    ]
    points = summarised(points, every_s=_EVERY_S, by=quantity.by)
    line = fit(points)
    middle = statistics.median(value for _, value in points) if points else float("nan")
    return Trend(line, line.verdict(quantity.bound / strictness / 600) if line else None, middle)


def life_findings(number: int, life: Life, trends: Sequence[Trend]) -> Iterator[str]:
    """Yield what is wrong with a life: growth, internal errors, and faults in its log."""
    for quantity, (line, verdict, _) in zip(QUANTITIES, trends, strict=True):
        is_flat = verdict is Verdict.FLAT or (verdict is not Verdict.GROWS and life.length_s < LONG_LIFE_S)
        if not is_flat:
            growth = f"{line.low * 600:+.2f} to {line.high * 600:+.2f} {quantity.unit}" if line else "no samples"
            yield f"life {number}: {quantity.name} not flat: {growth} in ten minutes"
    if life.internal_errors:
        yield f"life {number}: {life.internal_errors:.0f} internal errors"
    yield from (f"life {number}: {fault}" for fault in life.faults)


def tracebacks(log: str) -> list[str]:
    """Return each traceback in a log, with the line before it, up to the line that names the exception."""
    return re.findall(r"(?:^.*\n)?^Traceback .*\n(?:^\s.*\n)*(?:^\S.*$)?", log, re.MULTILINE)


class Flow(NamedTuple):
    """What passed for a client, and what could let more pass.

    ``trace`` has Unix times and the bytes so far. ``fresh`` are the times in which a new bucket replaced its own: a
    restart of the proxy, or another leader of its partition.
    """

    client: Client
    trace: Sequence[tuple[float, float]]
    changes: Sequence[Change]
    fresh: Sequence[Span]


class Use(NamedTuple):
    """Shares of the limit: of the worst and of the mean minute, and of the whole run's bound."""

    minutes: int
    worst: float
    mean: float
    run: float


def use(flow: Flow) -> Use:
    """Measure a client against its limit."""
    if not flow.trace:
        return Use(0, 0.0, 0.0, 0.0)
    start, end = flow.trace[0][0], flow.trace[-1][0]
    disturbed = [Span(one.asked_s, one.held_s + _SETTLES_S) for one in flow.changes[1:]]
    disturbed += [Span(one.start, one.end + _SETTLES_S) for one in flow.fresh]
    shares: list[float] = []
    minutes = 0
    for span in quiet(Span(start, end), disturbed):
        limit = [one.limit for one in flow.changes if one.held_s <= span.start or one is flow.changes[0]][-1]
        found = list(_shares(flow.trace, span, limit))
        minutes += int((span.end - span.start) // MINUTE_S) if found else 0
        shares += found
    passed = flow.trace[-1][1] - flow.trace[0][1]
    return Use(
        minutes, max(shares, default=0.0), statistics.fmean(shares) if shares else 0.0, passed / _run_bound(flow)
    )


def quota_findings(
    flow: Flow, used: Use, throttled: float, *, least_minutes: int, strictness: float = 1.0
) -> Iterator[str]:
    """Yield where a client had more than its limit allows, was not limited, or could not be checked."""
    name, bound = flow.client.name, MINUTE_BOUNDS[flow.client.shaping] / strictness
    if used.worst > bound:
        yield f"{name}: a minute with {used.worst:.3f} of the limit, above {bound:.3f}"
    if used.run > 1 / strictness:
        yield f"{name}: {used.run:.3f} of what all limits of the run allow"
    if used.minutes < least_minutes:
        yield f"{name}: only {used.minutes} undisturbed minutes to check"
    if not throttled:
        yield f"{name}: never throttled, so nothing was tested"


def quiet(whole: Span, disturbed: Iterable[Span]) -> list[Span]:
    """Return the parts of a time without a disturbance."""
    spans = []
    at = whole.start
    for one in sorted(disturbed):
        if one.start > at:
            spans.append(Span(at, min(one.start, whole.end)))
        at = max(at, one.end)
    if at < whole.end:
        spans.append(Span(at, whole.end))
    return spans


def _shares(trace: Sequence[tuple[float, float]], span: Span, limit: float) -> Iterator[float]:
    """Yield the bytes of each window of at least a minute within ``span``, relative to the limit."""
    inside = [one for one in trace if span.has(one[0])]
    last = 0
    for at, passed in inside:
        while last < len(inside) and inside[last][0] < at + MINUTE_S:
            last += 1
        if last == len(inside):
            return
        until, passed_then = inside[last]
        yield (passed_then - passed) / (limit * (until - at))


def _run_bound(flow: Flow) -> float:
    """Return the bytes that all limits of the run allow together."""
    factor, burst_s = MINUTE_BOUNDS[flow.client.shaping], BURSTS_S[flow.client.shaping]
    end = flow.trace[-1][0]
    allowed = 0.0
    before = 0.0
    for number, (asked_s, held_s, limit) in enumerate(flow.changes):
        is_last = number + 1 == len(flow.changes)
        # Until a change was acknowledged, either limit may have held: the higher one counts.
        starts = asked_s if limit > before else held_s
        following = None if is_last else flow.changes[number + 1]
        ends = end if following is None else (following.asked_s if following.limit > limit else following.held_s)
        starts = max(starts, flow.trace[0][0])
        allowed += factor * limit * max(ends - starts, 0) + burst_s * max(limit - before, 0)
        allowed += sum(burst_s * limit for one in flow.fresh if starts <= one.end < ends)
        before = limit
    return allowed


class Sent(NamedTuple):
    """What a producer says of its records: how many it sent, and the numbers that were not acknowledged."""

    records: int
    unacknowledged: frozenset[int]


class Delivered(NamedTuple):
    records: int
    duplicates: int
    findings: list[str]


def delivered(client: Client, sent: Sent, records: Iterable[tuple[int, float]], failures: Sequence[Span]) -> Delivered:
    """Compare a topic with what was acknowledged. ``records`` are the numbers and the times of appending."""
    seen: set[int] = set()
    highest = -1
    total = duplicates = 0
    findings: list[str] = []
    for number, appended_s in records:
        total += 1
        if number in seen:
            duplicates += 1
            if client.is_idempotent:
                findings.append(f"record {number} is there twice")
            elif not in_failure(appended_s, failures):
                findings.append(f"record {number} is there twice without a failure before")
            continue
        if number < highest:
            findings.append(f"record {number} comes after record {highest}")
        seen.add(number)
        highest = max(highest, number)
    if strange := [number for number in seen if number >= sent.records]:
        findings.append(f"{len(strange)} records were never sent, such as {strange[0]}")
    lost = [number for number in range(sent.records) if number not in seen and number not in sent.unacknowledged]
    if lost:
        findings.append(f"{len(lost)} acknowledged records are lost, such as {lost[0]}")
    return Delivered(total, duplicates, [f"{client.name}: {one}" for one in _first(findings)])


class Seen(NamedTuple):
    """What a consumer says: the offset after its last record, jumps, faults, and when it read records again."""

    next_offset: int
    jumps: Sequence[Jump]
    faults: Sequence[str]
    again_at_s: Sequence[float]


def consumer_findings(client: Client, seen: Seen, topic: Sequence[Jump], failures: Sequence[Span]) -> Iterator[str]:
    """Yield where a consumer saw something else than what the topic has (its ``Notes.jumps``)."""
    yield from (f"{client.name}: {fault}" for fault in _first(seen.faults))
    if list(seen.jumps) != [jump for jump in topic if jump.offset < seen.next_offset]:
        yield f"{client.name}: saw other records than the topic has: {_first(seen.jumps)}"
    if not seen.next_offset:
        yield f"{client.name}: read nothing"
    if seen.again_at_s and not client.is_member:
        yield f"{client.name}: read records again {len(seen.again_at_s)} times, without a group"
    elif unprovoked := [at for at in seen.again_at_s if not in_failure(at, failures, lasts_s=MEMBERS_RETURN_S)]:
        after_s = min((unprovoked[0] - one.end for one in failures if one.end < unprovoked[0]), default=math.inf)
        yield (
            f"{client.name}: read records again {len(unprovoked)} times without a failure shortly before, "
            f"first {after_s:.0f} s after one"
        )


def in_failure(at_s: float, failures: Iterable[Span], *, lasts_s: float = FAILURE_LASTS_S) -> bool:
    """Return whether a broker or proxy was away at this time, or at most ``lasts_s`` before."""
    return any(span.start <= at_s <= span.end + lasts_s for span in failures)


def _first(found: Collection[object]) -> list[str]:
    some = [str(one) for one in list(found)[:_SHOWN]]
    return some if len(found) <= _SHOWN else [*some, f"and {len(found) - _SHOWN} more"]
