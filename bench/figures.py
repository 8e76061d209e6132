"""From samples to figures: medians, spreads, and ratios within one repetition. Pure.

A sample is one run of one peer. The samples of a repetition lie within seconds, so ratios are computed per repetition
and then reduced to a median. A slowdown of the whole machine cancels out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

DIRECT = "direct"
ENVOY = "Envoy"
KROXYLICIOUS = "Kroxylicious"
OURS = "ours"
OURS_REWRITING = "ours, rewriting"
OURS_QUEUEING = "ours, with a queue"
CPU_STEP_S = 0.01

# What one run gave, by name: seconds, requests, bytes, cpu_s, p50_us, p99_us, resident_bytes_per_connection,
# decision_us
Sample: TypeAlias = Mapping[str, float]
# peer -> its samples, in the order of the repetitions
Samples: TypeAlias = Mapping[str, Sequence[Sample]]
Quantity: TypeAlias = Callable[[Sample], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median with the least and greatest value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Reduce at least one value."""
        return cls(median=median(values), low=min(values), high=max(values))


def bytes_per_second(sample: Sample) -> float:
    """Both directions."""
    return sample["bytes"] / sample["seconds"]


def requests_per_second(sample: Sample) -> float:
    """Answered requests."""
    return sample["requests"] / sample["seconds"]


def cpu_s_per_gb(sample: Sample) -> float:
    """CPU seconds of the proxy for 10^9 bytes."""
    return _cpu_s(sample) / sample["bytes"] * 1e9


def cpu_s_per_10k_requests(sample: Sample) -> float:
    """CPU seconds of the proxy for 10,000 requests."""
    return _cpu_s(sample) / sample["requests"] * 1e4


def _cpu_s(sample: Sample) -> float:
    # The kernel's clock shows no less than this; a zero would make ratios infinite.
    return max(sample["cpu_s"], CPU_STEP_S)


def field(name: str) -> Quantity:
    """Return the quantity of this name."""
    return lambda sample: sample[name]


def spread(samples: Samples, peer: str, quantity: Quantity) -> Spread | None:
    """Return a quantity of one peer; None if it was not measured."""
    values = [quantity(sample) for sample in samples.get(peer, ())]
    return Spread.of(values) if values else None


def paired(samples: Samples, one: str, other: str, combine: Callable[[Sample, Sample], float]) -> Spread | None:
    """Combine the samples of two peers, repetition by repetition; None if one was not measured."""
    pairs = zip(samples.get(one, ()), samples.get(other, ()), strict=False)
    values = [combine(value, other_value) for value, other_value in pairs]
    return Spread.of(values) if values else None


def ratio(samples: Samples, one: str, other: str, quantity: Quantity) -> Spread | None:
    """Return a quantity of one peer over that of another."""
    return paired(samples, one, other, lambda value, other_value: quantity(value) / quantity(other_value))


def difference(samples: Samples, one: str, other: str, quantity: Quantity) -> Spread | None:
    """Return a quantity of one peer minus that of another."""
    return paired(samples, one, other, lambda value, other_value: quantity(value) - quantity(other_value))
