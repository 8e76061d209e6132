"""Builds the parts of the fair call queue from the ``fair_call_queue`` section of the configuration file."""

from functools import lru_cache
from typing import Final

from kafka_quota_proxy.config.fair_call_queue import (
    CostProvider,
    FairCallQueue,
    IdentityProvider,
    OwnIdentityProvider,
    load_identity_function,
)
from kafka_quota_proxy.config.principals import ANONYMOUS, Principals
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, Limit, VegasLimit
from kafka_quota_proxy.proxy.fair_queue.connection_queue import Identify
from kafka_quota_proxy.proxy.fair_queue.cost import CostModel, RequestCount, TrafficCost, WeightedTimeCost
from kafka_quota_proxy.proxy.quota.broker import PrincipalRules
from kafka_quota_proxy.proxy.quota.entity import bounded

# Hadoop's identity for a request if the identity provider returns no name.
UNKNOWN: Final = "IdentityProvider.Unknown"
# How many identities are cached, so that most requests neither match patterns nor call the operator's own function.
_REMEMBERED: Final = 10_000


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
            return RequestCount()
        case CostProvider.WEIGHTED:
            return WeightedTimeCost(settings.cost_weights)
        case CostProvider.TRAFFIC:
            return TrafficCost()
