"""The settings of a fair call queue: Hadoop's, and the options in which this program differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kafka_quota_proxy.config.principals import Fold


class CallQueueImpl(Enum):
    """What requests wait in (Hadoop's ``callqueue.impl``)."""

    FAIR = "fair"  # a queue for each level of priority
    FIFO = "fifo"  # one for all


class SchedulerImpl(Enum):
    """Who says which level a request has (Hadoop's ``scheduler.impl``)."""

    DECAY = "decay"  # by the share of the cost that its identity had of late
    DEFAULT = "default"  # all of them level 0


class IdentityProvider(Enum):
    """Whose cost is added up (Hadoop's ``identity-provider.impl``)."""

    USER = "user"  # the principal; the client-id and the address of who has none
    USER_CLIENT_ID = "user-client-id"


@dataclass(frozen=True, slots=True)
class OwnIdentityProvider:
    """An operator's function that names the identity a request is charged to: ``MODULE:FUNCTION`` in the file."""

    module: str
    function: str


class CostProvider(Enum):
    """What a request costs (Hadoop's ``cost-provider.impl``)."""

    DEFAULT = "default"  # 1
    WEIGHTED = "weighted"  # its time in each phase, times the weight of the phase
    TRAFFIC = "traffic"  # ours: its bytes and the broker's time, the request's part of it on arrival


class FairCallQueueMode(Enum):
    """Whose behaviour it is where no option says otherwise."""

    HADOOP = "hadoop"
    IMPROVED = "improved"


class ResponseTimeAverage(Enum):
    """How the mean response time of a level goes on from one period to the next; f is the decay factor."""

    HADOOP = "hadoop"  # f times the last, plus that of the period: a constant 2 s becomes 4 s with f = 0.5
    NORMALISED = "normalised"  # f times the last, plus 1 - f times that of the period


class DecayPause(Enum):
    """What becomes of the periods that a process did not see, as when it was stopped."""

    EVERY_PERIOD = "every-period"  # all of them decay what was counted, as in Hadoop
    ONCE = "once"  # at most three do


class CapacityRemainder(Enum):
    """Which levels get the places that the weights do not divide evenly."""

    FIRST = "first"  # all of them level 0, as in Hadoop
    LARGEST_FRACTION = "largest-fraction"  # one each, whoever lost most by rounding


class WithinLevel(Enum):
    """In which order the requests of one level are taken."""

    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"  # one of each identity in turn


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWeights:
    """What a microsecond of each phase costs, with Hadoop's phases and defaults (``WeightedTimeCostProvider``)."""

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
    """Which requests go to a broker first where not all can. Hadoop's defaults; all that is unlike Hadoop is an option.

    Tuples have an element for each level, ``thresholds`` one less; level 0 is served first. The defaults here are those
    of four levels and of ``mode: improved``.
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
    # Whoever is new is level 0 until the next sweep: all that he sends at once would be ahead of the others there.
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
    utilisation_floor: float = 0.5  # of the slots: below it everybody is level 0; 0: never
    backoff_responsetime_enable: bool = False  # only with backoff_enable
    backoff_responsetime_thresholds_ms: tuple[int, ...] = (10_000, 20_000, 30_000, 40_000)
    backoff_responsetime_inclusive: bool = False  # True: a level that is slow itself is backed off as well
    backoff_responsetime_min_calls: int = 10  # below it in a period, a level's mean says nothing
    average: ResponseTimeAverage = ResponseTimeAverage.NORMALISED
    top_user_count: int = 10
    service_users: frozenset[str] = frozenset()  # always level 0, not part of the cost of all
    max_identities: int | None = 10_000  # told apart at a time, the rest share one; None: any number
    max_in_flight: int | None = None  # requests at a broker at a time; None: found from the broker's latency
    min_in_flight: int = 4  # where it is found: the least
    most_in_flight: int = 500  # and the most; a broker's queued.max.requests
