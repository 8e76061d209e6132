"""Builds the parts of the fair call queue from the ``fair_call_queue`` section of the configuration file."""

from functools import lru_cache
from math import inf
from typing import Final

from kafka_quota_proxy.config.fair_call_queue import (
    CallQueueImpl,
    CapacityRemainder,
    CostProvider,
    FairCallQueue,
    FairCallQueueMode,
    IdentityProvider,
    OwnIdentityProvider,
    ResponseTimeAverage,
    SchedulerImpl,
)
from kafka_quota_proxy.config.fair_call_queue import WithinLevel as Order
from kafka_quota_proxy.config.identity_function import load_identity_function
from kafka_quota_proxy.config.principals import ANONYMOUS, Principals
from kafka_quota_proxy.proxy.fair_queue.call_queue import QueueOptions, Remainder, WithinLevel
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, Limit, VegasLimit
from kafka_quota_proxy.proxy.fair_queue.connection_queue import Identify
from kafka_quota_proxy.proxy.fair_queue.cost import CostModel, Phases, RequestCount, TrafficCost, WeightedTimeCost
from kafka_quota_proxy.proxy.fair_queue.decay import Average, DecayOptions, Pause
from kafka_quota_proxy.proxy.fair_queue.dispatcher import DispatcherOptions
from kafka_quota_proxy.proxy.quota.broker import PrincipalRules
from kafka_quota_proxy.proxy.quota.entity import bounded

# A sweep truncates costs to integers. Without a scale, a cost of 1 would become 0, and its user would be forgotten.
_COST_SCALE: Final = 1_000
# Hadoop's identity for a request if the identity provider returns no name.
UNKNOWN: Final = "IdentityProvider.Unknown"
# How many identities are cached, so that most requests neither match patterns nor call the operator's own function.
_REMEMBERED: Final = 10_000


def dispatcher_options(settings: FairCallQueue) -> DispatcherOptions:
    """Return the options for the dispatchers, which decide when each request may be forwarded to a broker."""
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
    """Return the options for the decay scheduler of a listener, which assigns users to priority levels."""
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
        # With an infinite floor all users stay in level 0.
        utilisation_floor=settings.utilisation_floor if is_decay else inf,
        is_backoff_by_response_time=settings.backoff_responsetime_enable,
        response_time_thresholds_ms=settings.backoff_responsetime_thresholds_ms,
        average=Average.HADOOP if settings.average is ResponseTimeAverage.HADOOP else Average.NORMALISED,
        is_backoff_inclusive=settings.backoff_responsetime_inclusive,
        min_samples=settings.backoff_responsetime_min_calls,
    )


def limit(settings: FairCallQueue) -> Limit:
    """Return a new limit on how many requests may be at a broker at a time. It is fixed or adaptive, as configured."""
    if settings.max_in_flight is not None:
        return FixedLimit(settings.max_in_flight)
    return control_limit(settings)


def control_limit(settings: FairCallQueue) -> Limit:
    """Return a new limit on how many control requests may be at a broker at a time. It is always adaptive.

    Otherwise a fixed number for other requests would have to be large enough for the heartbeats of all groups, too.
    """
    return VegasLimit(minimum=settings.min_in_flight, maximum=settings.most_in_flight)


def identities(settings: FairCallQueue) -> Identify:
    """Return the function that determines the identity to which the cost of a request is charged.

    An identity is a user, a user with a client-id, or whatever a function of the operator returns, if the configuration
    names one. If the configuration maps several principals to one user, they share an identity. Unless the operator has
    such a function, a client without a login is identified by its client-id and its host, because it may claim any
    client-id.

    Raises:
        ValueError: If the configuration names a function that cannot be imported.
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


def cost(settings: FairCallQueue) -> CostModel:
    """Return the model that computes what a request costs. Users with high total costs get a low priority."""
    match settings.cost_provider:
        case CostProvider.DEFAULT:
            return RequestCount(0 if settings.mode is FairCallQueueMode.HADOOP else 1)
        case CostProvider.WEIGHTED:
            weights = settings.cost_weights
            return WeightedTimeCost(Phases(**{phase: getattr(weights, phase) for phase in Phases._fields}))
        case CostProvider.TRAFFIC:
            return TrafficCost()
