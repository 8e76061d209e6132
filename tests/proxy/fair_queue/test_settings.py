"""Tests how options are made from the settings of the fair call queue."""

from dataclasses import fields

import pytest

from kafka_quota_proxy.config.fair_call_queue import (
    CostProvider,
    CostWeights,
    FairCallQueue,
    IdentityProvider,
)
from kafka_quota_proxy.config.principals import Fold
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, VegasLimit
from kafka_quota_proxy.proxy.fair_queue.cost import CompletedRequest, Phases
from kafka_quota_proxy.proxy.fair_queue.settings import cost, identities, limit

FETCH = CompletedRequest(ApiKey.FETCH, queue_us=3, elapsed_us=12, service_us=7)
PRODUCE = FETCH._replace(api_key=ApiKey.PRODUCE)
OTHER = FETCH._replace(api_key=ApiKey.DESCRIBE_CONFIGS)


def test_the_limit_is_fixed_or_vegas() -> None:
    fixed, found = limit(FairCallQueue(max_in_flight=7)), limit(FairCallQueue())

    assert isinstance(fixed, FixedLimit)
    assert fixed.limit == 7
    assert isinstance(found, VegasLimit)
    assert (found.minimum, found.maximum, found.limit) == (4, 500, 4)


def test_by_default_a_request_costs_one() -> None:
    made = cost(FairCallQueue())

    assert (made.flat, made.on_completion(FETCH), made.on_refusal) == (1, 1, 1)


def test_by_time_each_phase_has_its_weight() -> None:
    """Hadoop gives a weight of 10 to time under a shared lock, and 100 to time under an exclusive lock."""
    made = cost(FairCallQueue(cost_provider=CostProvider.WEIGHTED))

    assert [made.on_completion(done) for done in (OTHER, FETCH, PRODUCE)] == [7, 70, 700]
    queued = cost(FairCallQueue(cost_provider=CostProvider.WEIGHTED, cost_weights=CostWeights(queue=1_000, lockwait=1)))
    assert queued.on_completion(OTHER) == 3_000 + 5 + 7


def test_each_phase_has_a_weight_in_the_file() -> None:
    assert {field.name for field in fields(CostWeights)} == set(Phases._fields)


# -- identities --

APPS = (Fold(match="app-([a-z]+)-[0-9]+", to=r"app-\1"),)


@pytest.mark.parametrize(
    ("provider", "found"),
    [
        (IdentityProvider.USER, ["app-etl", "alice", "etl@10.0.0.7"]),
        (IdentityProvider.USER_CLIENT_ID, ["app-etl/etl", "alice/etl", "etl@10.0.0.7"]),
    ],
)
def test_an_identity_is_the_folded_user_or_an_address(provider: IdentityProvider, found: list[str]) -> None:
    identity = identities(FairCallQueue(identity_provider=provider, fold=APPS))

    assert [identity(principal, "etl", "10.0.0.7") for principal in ("app-etl-7", "alice", "ANONYMOUS")] == found
