"""Computes figures from samples: medians, spreads, and ratios within one repetition.

A sample is one run of one peer. The samples of a repetition are taken within seconds. A ratio is computed for each
repetition, so that a slowdown of the whole machine cancels out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

DIRECT = "direct"
ENVOY = "Envoy"
KROXYLICIOUS = "Kroxylicious"
OURS = "ours"
OURS_WITHOUT_RELAY = "ours without relay"  # compiled as well, but the event loop reads the sockets
OURS_REWRITING = "ours, rewriting"
OURS_QUEUEING = "ours, with a queue"
CPU_STEP_S = 0.01

# The results of one run by name: seconds, requests, bytes, cpu_s, p50_us, p99_us, resident_bytes_per_connection,
# decision_us
Sample: TypeAlias = Mapping[str, float]
# peer -> its samples, in the order of the repetitions
Samples: TypeAlias = Mapping[str, Sequence[Sample]]
Quantity: TypeAlias = Callable[[Sample], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median with the lowest and the highest value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of at least one value."""
        return cls(median=median(values), low=min(values), high=max(values))


def bytes_per_second(sample: Sample) -> float:
    """Return the bytes per second in both directions."""
    return sample["bytes"] / sample["seconds"]


def requests_per_second(sample: Sample) -> float:
    """Return the answered requests per second."""
    return sample["requests"] / sample["seconds"]


def cpu_s_per_gb(sample: Sample) -> float:
    """Return the CPU seconds of the proxy for 10^9 bytes."""
    return _cpu_s(sample) / sample["bytes"] * 1e9


def cpu_s_per_10k_requests(sample: Sample) -> float:
    """Return the CPU seconds of the proxy for 10,000 requests."""
    return _cpu_s(sample) / sample["requests"] * 1e4


def _cpu_s(sample: Sample) -> float:
    # The kernel measures CPU time in steps of this size. Zero would make ratios infinite.
    return max(sample["cpu_s"], CPU_STEP_S)


def field(name: str) -> Quantity:
    """Return a function that returns the value of this name."""
    return lambda sample: sample[name]


def spread(samples: Samples, peer: str, quantity: Quantity) -> Spread | None:
    """Return a quantity of one peer, or None if the peer was not measured."""
    values = [quantity(sample) for sample in samples.get(peer, ())]
    return Spread.of(values) if values else None


def paired(samples: Samples, one: str, other: str, combine: Callable[[Sample, Sample], float]) -> Spread | None:
    """Combine the samples of two peers in each repetition. Returns None if a peer was not measured."""
    pairs = zip(samples.get(one, ()), samples.get(other, ()), strict=False)
    values = [combine(value, other_value) for value, other_value in pairs]
    return Spread.of(values) if values else None


def ratio(samples: Samples, one: str, other: str, quantity: Quantity) -> Spread | None:
    """Return a quantity of one peer over that of another."""
    return paired(samples, one, other, lambda value, other_value: quantity(value) / quantity(other_value))


def difference(samples: Samples, one: str, other: str, quantity: Quantity) -> Spread | None:
    """Return a quantity of one peer minus that of another."""
    return paired(samples, one, other, lambda value, other_value: quantity(value) - quantity(other_value))
