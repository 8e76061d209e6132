"""Holds the settings of a fair call queue, which decides the order in which requests are forwarded to a broker.

They are Hadoop's settings, and some that only this program has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from kafka_quota_proxy.config.principals import Fold


class CallQueueImpl(Enum):
    """The kind of queue that requests wait in (Hadoop's ``callqueue.impl``)."""

    FAIR = "fair"  # one queue for each level of priority
    FIFO = "fifo"  # one queue for all requests


class SchedulerImpl(Enum):
    """How the priority level of a request is determined. This is Hadoop's setting ``scheduler.impl``."""

    DECAY = "decay"  # by the recent share of its identity in the cost of all requests
    DEFAULT = "default"  # every request has level 0


class IdentityProvider(Enum):
    """What determines the identity to which a request's cost is charged (Hadoop's ``identity-provider.impl``)."""

    USER = "user"  # the principal, or client-id and address if the client did not log in
    USER_CLIENT_ID = "user-client-id"


class CostProvider(Enum):
    """How the cost of a request is measured. This is Hadoop's setting ``cost-provider.impl``."""

    DEFAULT = "default"  # each request costs 1
    WEIGHTED = "weighted"  # the time in each phase of the request times the weight of the phase


class WithinLevel(Enum):
    """The order in which requests with the same priority level are forwarded to the broker."""

    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"  # one request of each identity in turn


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWeights:
    """The cost of one microsecond in each phase of a request (Hadoop's ``WeightedTimeCostProvider``).

    By default, waiting costs nothing. A weight for ``processing`` would count the four phases in it twice.
    """

    lockshared: int = 10
    lockexclusive: int = 100
    handler: int = 1
    lockfree: int = 1
    response: int = 1
    queue: int = 0
    enqueue: int = 0
    lockwait: int = 0
    processing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FairCallQueue:
    """The settings of the fair call queue, in which requests wait to be forwarded to a broker by priority.

    Each request has a priority level, and level 0 is served first. The defaults are for four levels. A tuple has one
    element for each level, except ``thresholds``, which has none for the last level.
    """

    callqueue_impl: CallQueueImpl = CallQueueImpl.FAIR
    scheduler_impl: SchedulerImpl = SchedulerImpl.DECAY
    levels: int = 4
    capacity: int = 1_024  # how many requests may wait, over all levels
    capacity_weights: tuple[int, ...] = (1, 1, 1, 1)
    multiplexer_weights: tuple[int, ...] = (8, 4, 2, 1)  # the turns of each level in a round
    # A new identity has level 0 until the levels are computed next. In FIFO order, its first burst would delay all
    # others.
    within_level: WithinLevel = WithinLevel.ROUND_ROBIN
    backoff_enable: bool = False
    identity_provider: IdentityProvider = IdentityProvider.USER
    fold: tuple[Fold, ...] = ()  # as in Principals; folded principals are one identity
    cost_provider: CostProvider = CostProvider.DEFAULT
    cost_weights: CostWeights = field(default_factory=CostWeights)
    period_ms: int = 5_000
    decay_factor: float = 0.5  # above 0, below 1
    thresholds: tuple[float, ...] = (0.125, 0.25, 0.5)  # ascending; level i + 1 begins at this share of all cost
    utilisation_floor: float = 0.5  # if a smaller share of slots is used, all requests have level 0
    backoff_responsetime_enable: bool = False  # only with backoff_enable
    backoff_responsetime_thresholds_ms: tuple[int, ...] = (10_000, 20_000, 30_000, 40_000)
    top_user_count: int = 10
    service_users: frozenset[str] = frozenset()  # always have level 0, and are not part of the total cost
    max_identities: int | None = 10_000  # above this number, new ones share one identity; None: no limit
    max_in_flight: int | None = None  # requests at a broker at a time; None: found from its latency


def places(capacity: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Divide ``capacity`` in proportion to ``weights``, and return how many requests may wait in each level.

    Each share is rounded down. The levels that lose most by this get one more place each, until all places are given.
    A level may get none if there are fewer places than the weights add up to.
    """
    total = sum(weights)
    sizes = [capacity * weight // total for weight in weights]
    cut_most = sorted(range(len(weights)), key=lambda level: -(capacity * weights[level] % total))
    for level in cut_most[: capacity - sum(sizes)]:
        sizes[level] += 1
    return tuple(sizes)
