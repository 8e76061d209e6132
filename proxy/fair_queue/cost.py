"""The cost of a request. A user's share of all cost decides its level.

A listener uses one of three:

* ``default_cost``      1 for each request (``DefaultCostProvider`` in Hadoop)
* ``WeightedTimeCost``  its time, by phases with weights (``WeightedTimeCostProvider``)
* ``TrafficCost``       its bytes and its service time. The request's bytes are charged on arrival, so that a burst of a
  new user counts before its first request is served, and a client that leaves early does not go free
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol


class CompletedRequest(NamedTuple):
    """A request that is over. Times in microseconds."""

    api_key: int
    queue_us: int
    elapsed_us: int  # from when the broker could begin until the response began
    service_us: int  # the working part of it
    response_bytes: int


class CostModel(Protocol):
    """The charges for a request: on arrival and on completion, or on refusal."""

    @property
    def on_refusal(self) -> int:
        """The charge for a refused request."""

    @property
    def on_arrival(self) -> Callable[[int], int] | None:
        """The charge for a request's bytes when it is admitted; None: no charge."""

    @property
    def flat(self) -> int | None:
        """The charge for any completed request; None: ``on_completion`` computes it."""

    def on_completion(self, done: CompletedRequest) -> int:
        """Return the charge for a completed request."""


class Phases(NamedTuple):
    """One number for each phase of a request: its time in microseconds, or the weight of that time.

    The names are Hadoop's (``ProcessingDetails.Timing``). In the proxy:

    * ``enqueue``        waiting for a place in the queue
    * ``queue``          in the queue
    * ``handler``        other time in the proxy
    * ``processing``     from the write to the broker until its response is complete; the sum of the four below
    * ``lockfree``       service of a request that neither reads nor changes partitions
    * ``lockwait``       waiting at the broker (a long poll, a group that gathers)
    * ``lockshared``     service of a request that reads: Fetch, ListOffsets, Metadata
    * ``lockexclusive``  service of a request that changes state: Produce, groups, transactions, topics
    * ``response``       writing the response to the client
    """

    enqueue: int = 0
    queue: int = 0
    handler: int = 0
    processing: int = 0
    lockfree: int = 0
    lockwait: int = 0
    lockshared: int = 0
    lockexclusive: int = 0
    response: int = 0


# Waiting costs nothing, and a weight for `processing` would count its parts twice.
DEFAULT_WEIGHTS: Final = Phases(handler=1, lockfree=1, lockshared=10, lockexclusive=100, response=1)


def default_cost(times_us: Phases) -> int:
    """Return 1: a user's cost is its number of requests."""
    del times_us
    return 1


class WeightedTimeCost:
    """The weighted sum of times; a time below 0 (clocks) counts as 0."""

    __slots__ = ("_weighted",)

    def __init__(self, weights: Phases = DEFAULT_WEIGHTS) -> None:
        self._weighted = tuple((place, weight) for place, weight in enumerate(weights) if weight)

    def __call__(self, times_us: Phases) -> int:
        """Return the cost of one request."""
        cost = 0
        for place, weight in self._weighted:
            time_us = times_us[place]
            if time_us > 0:
                cost += time_us * weight
        return cost


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCost:
    """The cost of a request, of a byte, and of a microsecond.

    By default the cheapest request costs 1,000, so that decay, which truncates, does not erase a user after one
    request. A megabyte costs as much as 10 ms of a broker's time.
    """

    per_request: int = 1_000
    per_refusal: int = 1_000
    per_request_byte: int = 1
    per_response_byte: int = 1
    per_service_us: int = 100

    def on_arrival(self, request_bytes: int) -> int:
        """Return the charge for an admitted request, before it waits for anything."""
        return self.per_request + self.per_request_byte * request_bytes

    def on_completion(self, *, response_bytes: int, service_us: int) -> int:
        """Return the rest, charged when the response is complete, the client is gone or the broker has failed."""
        return self.per_response_byte * response_bytes + self.per_service_us * max(0, service_us)
