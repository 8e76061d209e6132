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


def cpu_of_envoy(most: float) -> Target:
    """Limit the CPU seconds per GB, relative to Envoy."""
    read = _median_ratio(OURS, ENVOY, cpu_s_per_gb)
    return Target(text=f"CPU s per GB ≤ {most:g} of Envoy's", read=read, bound=_constant(most))


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
    """Limit the latency, compared with the peers. All include the direct latency."""

    def p50_over_envoy(samples: Samples) -> float | None:
        found = difference(samples, OURS, ENVOY, field("p50_us"))
        return found.median if found else None

    def best_p99(samples: Samples) -> float | None:
        found = [spread(samples, peer, field("p99_us")) for peer in (ENVOY, KROXYLICIOUS)]
        return min((one.median for one in found if one), default=None)

    return (
        Target(text="p50 ≤ Envoy's + 20 µs", read=p50_over_envoy, bound=_constant(20)),
        Target(text="p99 ≤ the best peer's (µs)", read=_median(OURS, field("p99_us")), bound=best_p99),
    )


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
    quantity = field("resident_bytes_per_connection")
    return Target(text="bytes ≤ Envoy's", read=_median(OURS, quantity), bound=_median(ENVOY, quantity))


def microseconds(most: float) -> Target:
    """Limit the time of one decision."""
    return Target(text=f"a decision < {most:g} µs", read=_median(OURS, field("decision_us")), bound=_constant(most))
