"""The targets: bounds for figures that are computed from a row's samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from bench.figures import (
    DIRECT,
    ENVOY,
    KROXYLICIOUS,
    OURS,
    OURS_QUEUEING,
    OURS_REWRITING,
    OURS_WITHOUT_RELAY,
    Quantity,
    Samples,
    bytes_per_second,
    cpu_s_per_10k_requests,
    cpu_s_per_gb,
    difference,
    field,
    ratio,
    spread,
)

Reading: TypeAlias = Callable[[Samples], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure and its bound. ``read`` returns None if a necessary peer was not measured."""

    text: str
    read: Reading
    bound: Reading
    at_least: bool = False

    def is_met(self, samples: Samples) -> bool | None:
        """Return whether the figure meets the bound, or None if it is unknown."""
        figure, bound = self.read(samples), self.bound(samples)
        if figure is None or bound is None:
            return None
        return figure >= bound if self.at_least else figure <= bound


def _constant(value: float) -> Reading:
    return lambda samples: value


def _median_ratio(one: str, other: str, quantity: Quantity) -> Reading:
    def read(samples: Samples) -> float | None:
        found = ratio(samples, one, other, quantity)
        return found.median if found else None

    return read


def _median(peer: str, quantity: Quantity) -> Reading:
    def read(samples: Samples) -> float | None:
        found = spread(samples, peer, quantity)
        return found.median if found else None

    return read


def rate_of_envoy(least: float) -> Target:
    """Require bytes per second, relative to Envoy."""
    read = _median_ratio(OURS, ENVOY, bytes_per_second)
    return Target(text=f"bytes/s ≥ {least:g} of Envoy's", read=read, bound=_constant(least), at_least=True)


def per_cpu_second_of_envoy(least: float) -> Target:
    """Require requests per CPU second, relative to Envoy."""
    read = _median_ratio(ENVOY, OURS, cpu_s_per_10k_requests)
    return Target(text=f"per CPU second ≥ {least:g} of Envoy's", read=read, bound=_constant(least), at_least=True)


def per_cpu_second_without_relay(least: float) -> Target:
    """Require the same of our proxy without its relay."""
    read = _median_ratio(ENVOY, OURS_WITHOUT_RELAY, cpu_s_per_10k_requests)
    text = f"without relay, per CPU second ≥ {least:g} of Envoy's"
    return Target(text=text, read=read, bound=_constant(least), at_least=True)


def cpu_of_envoy() -> Target:
    """Allow no more CPU seconds per GB than Envoy takes."""
    read = _median_ratio(OURS, ENVOY, cpu_s_per_gb)
    return Target(text="CPU s per GB ≤ Envoy's", read=read, bound=_constant(1))


def direct_ratio() -> Target:
    """Require bytes per second, relative to the direct connection."""
    return Target(
        text="bytes/s of direct ≥ Envoy's",
        read=_median_ratio(OURS, DIRECT, bytes_per_second),
        bound=_median_ratio(ENVOY, DIRECT, bytes_per_second),
        at_least=True,
    )


def than_kroxylicious() -> tuple[Target, ...]:
    """Require more bytes per second than Kroxylicious, and less CPU time."""
    return (
        Target(
            text="bytes/s of direct ≥ Kroxylicious'",
            read=_median_ratio(OURS, DIRECT, bytes_per_second),
            bound=_median_ratio(KROXYLICIOUS, DIRECT, bytes_per_second),
            at_least=True,
        ),
        Target(
            text="CPU s per GB ≤ Kroxylicious'",
            read=_median(OURS, cpu_s_per_gb),
            bound=_median(KROXYLICIOUS, cpu_s_per_gb),
        ),
    )


def latency() -> tuple[Target, ...]:
    """Allow no more added latency than the best peer adds. Added is what is above the direct connection."""

    def of_ours(name: str) -> Reading:
        return lambda samples: _added(samples, OURS, name)

    def of_the_best(name: str) -> Reading:
        def read(samples: Samples) -> float | None:
            found = (_added(samples, peer, name) for peer in (ENVOY, KROXYLICIOUS))
            return min((one for one in found if one is not None), default=None)

        return read

    return tuple(
        Target(text=f"{name[:3]} over direct ≤ the best peer's (µs)", read=of_ours(name), bound=of_the_best(name))
        for name in ("p50_us", "p99_us")
    )


def _added(samples: Samples, peer: str, name: str) -> float | None:
    found = difference(samples, peer, DIRECT, field(name))
    return found.median if found else None


def rewriting() -> tuple[Target, ...]:
    """Limit the cost of rewriting for responses without addresses."""
    return (
        Target(
            text="bytes/s rewriting ≥ 0.98 of ours",
            read=_median_ratio(OURS_REWRITING, OURS, bytes_per_second),
            bound=_constant(0.98),
            at_least=True,
        ),
        Target(
            text="CPU s per GB rewriting ≤ 1.02 of ours",
            read=_median_ratio(OURS_REWRITING, OURS, cpu_s_per_gb),
            bound=_constant(1.02),
        ),
    )


def queueing() -> tuple[Target, ...]:
    """Limit the cost of a queue that is never full."""
    return (
        Target(
            text="bytes/s with a queue ≥ 0.95 of ours",
            read=_median_ratio(OURS_QUEUEING, OURS, bytes_per_second),
            bound=_constant(0.95),
            at_least=True,
        ),
    )


def memory() -> Target:
    """Limit the growth of the resident set."""
    read = _median(OURS, field("resident_bytes_per_connection"))
    return Target(text="bytes < 4 KiB", read=read, bound=_constant(4_095))


def microseconds(most: float) -> Target:
    """Limit the time of one decision."""
    return Target(text=f"a decision < {most:g} µs", read=_median(OURS, field("decision_us")), bound=_constant(most))
