"""The quotas in force, compared with what entities need."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.pipeline.quota_comparison import (
    FITS,
    NO_LIMIT,
    TOO_LOOSE,
    TOO_TIGHT,
    InForce,
    Unused,
    Use,
    compare,
    limits_in_force,
)

A, B, C = (("produce", "alice", name) for name in "abc")


def current(*rules: QuotaRule, exempt: frozenset[str] = frozenset()) -> ProxyConfig:
    return ProxyConfig(listeners=(), quotas=rules, principals=Principals(exempt=exempt))


@pytest.mark.parametrize(
    ("limit", "state"),
    [(99.0, TOO_TIGHT), (100.0, FITS), (359.0, FITS), (361.0, TOO_LOOSE)],
)
def test_a_limit_is_between_the_need_and_three_times_the_need_with_headroom(limit: float, state: str) -> None:
    quotas = current(QuotaRule(user="alice", client_id="a", producer_byte_rate=limit))

    found = compare(quotas, {A: Use(100, None, 0.9), B: Use(100, None, 0)}, headroom=1.2, share=0.01)

    assert found.states == {A: state, B: NO_LIMIT}
    assert found.in_force == {A: InForce(("alice", "a"), limit, "user alice, client-id a")}


@pytest.mark.parametrize(
    ("limit", "state"),
    [(99.0, TOO_TIGHT), (110.0, FITS), (540.0, FITS), (541.0, TOO_LOOSE)],
)
def test_a_shared_limit_is_for_the_largest_need_alone_and_for_all_together(limit: float, state: str) -> None:
    quotas = current(QuotaRule(user="alice", producer_byte_rate=limit))

    found = compare(quotas, {A: Use(100, None, 0), B: Use(80, None, 0)}, headroom=1, share=0.01)

    assert found.states == {A: state, B: state}
    assert {one.name for one in found.in_force.values()} == {("alice", "")}


def test_without_a_file_the_limits_of_the_log_are_in_force() -> None:
    uses = {A: Use(100, 120.0, 0.01), B: Use(100, 120.0, 0.011), C: Use(100, None, 0.5)}

    found = compare(None, uses, headroom=1, share=0.01)

    assert found.states == {A: FITS, B: TOO_TIGHT, C: NO_LIMIT}
    assert found.in_force == {A: InForce(("alice", "a"), 120.0), B: InForce(("alice", "b"), 120.0)}
    assert found.unused == []


def test_throttling_in_the_log_says_nothing_about_another_limit() -> None:
    quotas = current(QuotaRule(user="alice", client_id=DEFAULT, producer_byte_rate=120.0))

    found = compare(quotas, {A: Use(100, 120.0, 0.5), B: Use(100, 110.0, 0.5)}, headroom=1, share=0.01)

    assert found.states == {A: TOO_TIGHT, B: FITS}


def test_rules_that_no_client_has_are_unused() -> None:
    quotas = current(
        QuotaRule(user="alice", producer_byte_rate=9.0, consumer_byte_rate=8.0),
        QuotaRule(user="alice", client_id="a", producer_byte_rate=7.0),
        QuotaRule(user=DEFAULT, client_id="b", producer_byte_rate=6.0),
        QuotaRule(user="root", producer_byte_rate=5.0),
        exempt=frozenset({"root"}),
    )

    found, unused = limits_in_force(quotas, [A, B, ("produce", "root", "x"), ("fetch", "", "b")])

    assert {entity: one.limit for entity, one in found.items()} == {A: 7.0, B: 9.0}
    assert unused == [Unused("fetch", "alice", "", 8.0), Unused("produce", "<default>", "b", 6.0)]
