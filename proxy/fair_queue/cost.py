"""What a request costs: the share of all cost that a user has decides its level.

Three ways, of which a listener has one:

* ``default_cost``      one a request (``DefaultCostProvider`` in Hadoop)
* ``WeightedTimeCost``  its time, by phases with weights (``WeightedTimeCostProvider``)
* ``TrafficCost``       its bytes and its service time; what is known on arrival is charged then, so that a burst of
  somebody new counts before the first of it is served, and one who leaves early does not go free
"""

from dataclasses import dataclass
from typing import Final, NamedTuple


class Phases(NamedTuple):
    """Something for each phase of a request: its time in microseconds, or the weight of that time.

    The names are Hadoop's (``ProcessingDetails.Timing``). In the proxy:

    * ``enqueue``        waiting for a place in the queue
    * ``queue``          in the queue
    * ``handler``        what else the proxy took for it
    * ``processing``     write to the broker done until its answer is complete; the four below are parts of it
    * ``lockfree``       service of a request that neither reads nor changes partitions
    * ``lockwait``       what of it the broker waited (a long poll, a group that gathers)
    * ``lockshared``     service of one that reads: Fetch, ListOffsets, Metadata
    * ``lockexclusive``  service of one that changes something: Produce, group and transaction state, topics
    * ``response``       writing the answer to the client
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


# Waiting is no cost, and `processing` would count its parts twice.
DEFAULT_WEIGHTS: Final = Phases(handler=1, lockfree=1, lockshared=10, lockexclusive=100, response=1)


def default_cost(times_us: Phases) -> int:
    """Return 1, whatever the times: a user's cost is how many requests it made."""
    del times_us
    return 1


class WeightedTimeCost:
    """The sum of times with their weights; a time below 0 (clocks) counts as 0."""

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
    """What a byte and a microsecond cost, and any request at all.

    The defaults make the cheapest request cost 1,000, so that decaying, which truncates, erases nobody; a megabyte
    costs as much as 10 ms of a broker's time.
    """

    per_request: int = 1_000
    per_refusal: int = 1_000
    per_request_byte: int = 1
    per_response_byte: int = 1
    per_service_us: int = 100

    def on_arrival(self, request_bytes: int) -> int:
        """Return what is charged when a request is let in, before it waits for anything."""
        return self.per_request + self.per_request_byte * request_bytes

    def on_completion(self, *, response_bytes: int, service_us: int) -> int:
        """Return the rest, charged when the answer is complete, the client is gone or the broker has failed."""
        return self.per_response_byte * response_bytes + self.per_service_us * max(0, service_us)
