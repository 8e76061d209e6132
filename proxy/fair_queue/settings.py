"""Builds the parts of the fair call queue from the ``fair_call_queue`` section of the configuration file."""

from functools import lru_cache
from typing import Final

from kafka_quota_proxy.config.fair_call_queue import CostProvider, FairCallQueue, IdentityProvider
from kafka_quota_proxy.config.principals import ANONYMOUS, Principals
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, Limit, VegasLimit
from kafka_quota_proxy.proxy.fair_queue.connection_queue import Identify
from kafka_quota_proxy.proxy.fair_queue.cost import CostModel, RequestCount, WeightedTimeCost
from kafka_quota_proxy.proxy.quota.broker import PrincipalRules

# How many identities are cached, so that most requests match no patterns.
_REMEMBERED: Final = 10_000


def limit(settings: FairCallQueue) -> Limit:
    """Return a new limit on how many requests may be at a broker at a time. It is fixed or adaptive, as configured."""
    if settings.max_in_flight is not None:
        return FixedLimit(settings.max_in_flight)
    return VegasLimit()


def identities(settings: FairCallQueue) -> Identify:
    """Return the function that determines the identity to which the cost of a request is charged.

    An identity is a user, or a user with a client-id. If the configuration maps several principals to one user, they
    share an identity. A client without a login is identified by its client-id and its host, because it may claim any
    client-id.
    """
    rules = PrincipalRules(Principals(fold=settings.fold))
    has_client_ids = settings.identity_provider is IdentityProvider.USER_CLIENT_ID

    @lru_cache(_REMEMBERED)
    def identity(principal: str, client_id: str, host: str) -> str:
        user, _ = rules.charged_user(principal)
        if user == ANONYMOUS:
            return f"{client_id}@{host}"
        return f"{user}/{client_id}" if has_client_ids else user

    return identity


def cost(settings: FairCallQueue) -> CostModel:
    """Return the model that computes what a request costs. Users with high total costs get a low priority."""
    if settings.cost_provider is CostProvider.WEIGHTED:
        return WeightedTimeCost(settings.cost_weights)
    return RequestCount()
