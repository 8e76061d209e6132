"""What the file says of the fair call queue, in the terms of those who do it."""

from functools import lru_cache
from math import inf
from typing import Final

from kafka_quota_proxy.config.identity_function import load_identity_function
from kafka_quota_proxy.config.model import (
    ANONYMOUS,
    CallQueueImpl,
    CapacityRemainder,
    CostProvider,
    FairCallQueue,
    FairCallQueueMode,
    IdentityProvider,
    OwnIdentityProvider,
    Principals,
    ResponseTimeAverage,
    SchedulerImpl,
)
from kafka_quota_proxy.config.model import WithinLevel as Order
from kafka_quota_proxy.proxy.fair_queue.call_queue import QueueOptions, Remainder, WithinLevel
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, Limit, VegasLimit
from kafka_quota_proxy.proxy.fair_queue.connection_queue import EXCLUSIVE, SHARED, Cost, Done, Identify
from kafka_quota_proxy.proxy.fair_queue.cost import Phases, TrafficCost, WeightedTimeCost
from kafka_quota_proxy.proxy.fair_queue.decay import Average, DecayOptions, Pause
from kafka_quota_proxy.proxy.fair_queue.dispatcher import DispatcherOptions
from kafka_quota_proxy.proxy.quota.broker import PrincipalRules
from kafka_quota_proxy.proxy.quota.entity import bounded

# A sweep cuts fractions off what is left of a cost: of 1 nothing is left, and its user is new again.
_COST_SCALE: Final = 1_000
# Hadoop's name for all that a provider has no name for.
UNKNOWN: Final = "IdentityProvider.Unknown"
# Identities that are remembered, so that neither patterns nor a function of the operator's cost a request anything.
_REMEMBERED: Final = 10_000


def dispatcher_options(settings: FairCallQueue) -> DispatcherOptions:
    """Return how requests wait for a broker."""
    is_hadoop = settings.mode is FairCallQueueMode.HADOOP
    is_fair = settings.callqueue_impl is CallQueueImpl.FAIR
    goes_first = settings.capacity_remainder is CapacityRemainder.FIRST
    queue = QueueOptions(
        levels=settings.levels if is_fair else 1,
        capacity=settings.capacity,
        capacity_weights=settings.capacity_weights if is_fair else None,
        multiplexer_weights=settings.multiplexer_weights if is_fair else None,
        remainder=Remainder.FIRST if goes_first else Remainder.LARGEST_FRACTION,
        within_level=WithinLevel.FIFO if settings.within_level is Order.FIFO else WithinLevel.ROUND_ROBIN,
        is_failover=settings.overflow_trigger_failover,
        waits_for_last=is_hadoop,
    )
    return DispatcherOptions(queue=queue, is_backoff_enabled=settings.backoff_enable, disconnects_when_slow=is_hadoop)


def decay_options(settings: FairCallQueue) -> DecayOptions:
    """Return how users get their levels."""
    is_decay = settings.scheduler_impl is SchedulerImpl.DECAY
    return DecayOptions(
        levels=settings.levels,
        period_ms=settings.period_ms,
        decay_factor=settings.decay_factor,
        thresholds=settings.thresholds,
        service_users=settings.service_users,
        cost_scale=1 if settings.mode is FairCallQueueMode.HADOOP else _COST_SCALE,
        max_identities=settings.max_identities,
        pause=Pause(settings.pause.value),
        # Never so much in use that anybody is in another level than the first.
        utilisation_floor=settings.utilisation_floor if is_decay else inf,
        is_backoff_by_response_time=settings.backoff_responsetime_enable,
        response_time_thresholds_ms=settings.backoff_responsetime_thresholds_ms,
        average=Average.HADOOP if settings.average is ResponseTimeAverage.HADOOP else Average.NORMALISED,
        is_backoff_inclusive=settings.backoff_responsetime_inclusive,
        min_samples=settings.backoff_responsetime_min_calls,
    )


def limit(settings: FairCallQueue) -> Limit:
    """Return how many requests a broker is given at a time."""
    if settings.max_in_flight is not None:
        return FixedLimit(settings.max_in_flight)
    return VegasLimit(minimum=settings.min_in_flight, maximum=settings.most_in_flight)


def identities(settings: FairCallQueue) -> Identify:
    """Return whose cost a request adds to. Principals that are folded are one.

    A client without a login may have any number of client-ids, and is another identity with each. Without them all
    clients of an address were one; the address keeps it from being an identity of another address.

    Raises:
        ValueError: The operator's function cannot be imported.
    """
    rules = PrincipalRules(Principals(fold=settings.fold))
    provider = settings.identity_provider
    own = load_identity_function(provider) if isinstance(provider, OwnIdentityProvider) else None

    @lru_cache(_REMEMBERED)
    def identity(principal: str, client_id: str, host: str) -> str:
        user, _ = rules.charged_user(principal)
        if own is not None:
            found = own(user, client_id, host)
            return bounded(found) if isinstance(found, str) else UNKNOWN
        if user == ANONYMOUS:
            return f"{client_id}@{host}"
        return f"{user}/{client_id}" if provider is IdentityProvider.USER_CLIENT_ID else user

    return identity


def cost(settings: FairCallQueue) -> Cost:
    """Return what is charged to users."""
    match settings.cost_provider:
        case CostProvider.DEFAULT:
            return _Count(0 if settings.mode is FairCallQueueMode.HADOOP else 1)
        case CostProvider.WEIGHTED:
            weights = settings.cost_weights
            return _Weighted(Phases(**{phase: getattr(weights, phase) for phase in Phases._fields}))
        case CostProvider.TRAFFIC:
            return _Traffic()


class _Count:
    """One for each request, when it is over. Hadoop does not count those that it refuses."""

    on_arrival: None = None
    flat = 1

    def __init__(self, on_refusal: int) -> None:
        self.on_refusal = on_refusal

    def on_completion(self, done: Done) -> int:
        return 1


class _Weighted:
    """The time of each phase with its weight, when a request is over."""

    on_refusal = 0
    on_arrival = flat = None

    def __init__(self, weights: Phases) -> None:
        self._cost = WeightedTimeCost(weights)

    def on_completion(self, done: Done) -> int:
        is_shared, is_exclusive = done.api_key in SHARED, done.api_key in EXCLUSIVE
        return self._cost(
            Phases(
                queue=done.queue_us,
                processing=done.elapsed_us,
                lockwait=done.elapsed_us - done.service_us,
                lockfree=0 if is_shared or is_exclusive else done.service_us,
                lockshared=done.service_us if is_shared else 0,
                lockexclusive=done.service_us if is_exclusive else 0,
            )
        )


class _Traffic:
    """Bytes and service time; what is known on arrival then."""

    flat = None

    def __init__(self) -> None:
        self._cost = TrafficCost()
        self.on_arrival = self._cost.on_arrival
        self.on_refusal = self._cost.per_refusal

    def on_completion(self, done: Done) -> int:
        return self._cost.on_completion(response_bytes=done.response_bytes, service_us=done.service_us)
