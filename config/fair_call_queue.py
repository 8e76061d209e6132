"""The settings of a fair call queue: Hadoop's, and the options in which this program differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kafka_quota_proxy.config.principals import Fold


class CallQueueImpl(Enum):
    """The queue that requests wait in (Hadoop's ``callqueue.impl``)."""

    FAIR = "fair"  # a queue for each level of priority
    FIFO = "fifo"  # one for all


class SchedulerImpl(Enum):
    """How the level of a request is found (Hadoop's ``scheduler.impl``)."""

    DECAY = "decay"  # by the share of the cost that its identity had of late
    DEFAULT = "default"  # all of them level 0


class IdentityProvider(Enum):
    """The identity to which cost is charged (Hadoop's ``identity-provider.impl``)."""

    USER = "user"  # the principal; without a login, client-id and address
    USER_CLIENT_ID = "user-client-id"


@dataclass(frozen=True, slots=True)
class OwnIdentityProvider:
    """An operator's function that names the identity a request is charged to: ``MODULE:FUNCTION`` in the file."""

    module: str
    function: str


class CostProvider(Enum):
    """How the cost of a request is measured (Hadoop's ``cost-provider.impl``)."""

    DEFAULT = "default"  # 1
    WEIGHTED = "weighted"  # its time in each phase, times the weight of the phase
    TRAFFIC = "traffic"  # ours: its bytes and the broker's time, the request's part of it on arrival


class FairCallQueueMode(Enum):
    """Which defaults apply to options that the file does not set."""

    HADOOP = "hadoop"
    IMPROVED = "improved"


class ResponseTimeAverage(Enum):
    """How the mean response time of a level carries over to the next period; f is the decay factor."""

    HADOOP = "hadoop"  # f times the last, plus that of the period: a constant 2 s becomes 4 s with f = 0.5
    NORMALISED = "normalised"  # f times the last, plus 1 - f times that of the period


class DecayPause(Enum):
    """How many decay periods count after the process was stopped for a while."""

    EVERY_PERIOD = "every-period"  # all of them, as in Hadoop
    ONCE = "once"  # at most three


class CapacityRemainder(Enum):
    """Which levels get the places that remain after a division by weights."""

    FIRST = "first"  # all of them level 0, as in Hadoop
    LARGEST_FRACTION = "largest-fraction"  # one each, largest loss by rounding first


class WithinLevel(Enum):
    """The order in which requests of one level are served."""

    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"  # one of each identity in turn


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWeights:
    """The cost of a microsecond in each phase, with Hadoop's phases and defaults (``WeightedTimeCostProvider``)."""

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
    """Which requests go to a broker first. Defaults are Hadoop's; each departure from Hadoop is an option.

    Tuples have an element for each level, ``thresholds`` one less; level 0 is served first. The defaults are for four
    levels and ``mode: improved``.
    """

    mode: FairCallQueueMode = FairCallQueueMode.IMPROVED
    callqueue_impl: CallQueueImpl = CallQueueImpl.FAIR
    scheduler_impl: SchedulerImpl = SchedulerImpl.DECAY
    levels: int = 4
    capacity: int = 1_024  # requests that wait, over all levels
    capacity_weights: tuple[int, ...] = (1, 1, 1, 1)
    capacity_remainder: CapacityRemainder = CapacityRemainder.LARGEST_FRACTION
    overflow_trigger_failover: bool = False
    multiplexer_weights: tuple[int, ...] = (8, 4, 2, 1)  # turns of each level in a round
    # A new identity is level 0 until the next sweep: in FIFO order its first burst would delay the others there.
    within_level: WithinLevel = WithinLevel.ROUND_ROBIN
    backoff_enable: bool = False
    identity_provider: IdentityProvider | OwnIdentityProvider = IdentityProvider.USER
    fold: tuple[Fold, ...] = ()  # those of Principals: folded ones are one identity
    cost_provider: CostProvider = CostProvider.DEFAULT
    cost_weights: CostWeights = field(default_factory=CostWeights)
    period_ms: int = 5_000
    decay_factor: float = 0.5  # above 0, below 1
    thresholds: tuple[float, ...] = (0.125, 0.25, 0.5)  # shares of the cost of all; from the i-th on level i + 1
    pause: DecayPause = DecayPause.ONCE
    utilisation_floor: float = 0.5  # of the slots: below it all requests are level 0; 0: never
    backoff_responsetime_enable: bool = False  # only with backoff_enable
    backoff_responsetime_thresholds_ms: tuple[int, ...] = (10_000, 20_000, 30_000, 40_000)
    backoff_responsetime_inclusive: bool = False  # True: a level that is slow itself is backed off as well
    backoff_responsetime_min_calls: int = 10  # with fewer in a period, the mean of a level is ignored
    average: ResponseTimeAverage = ResponseTimeAverage.NORMALISED
    top_user_count: int = 10
    service_users: frozenset[str] = frozenset()  # always level 0, not part of the total cost
    max_identities: int | None = 10_000  # at a time, all others share one; None: any number
    max_in_flight: int | None = None  # requests at a broker at a time; None: derived from its latency
    min_in_flight: int = 4  # the least, if it is derived
    most_in_flight: int = 500  # the most, if it is derived; a broker's queued.max.requests
