"""Tests that any number of connections share one quota, with a simulated clock that makes bytes exact.

In Kafka, many connections get several times the quota. ``docs/explanation/throttling.md`` promises the bounds.
"""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from kafka_quota_proxy.config.model import Enforcement, QuotaRule, Shaping
from tests.support.crowd import MAX_WAIT_MS, START_MS, Crowd
from tests.support.rules_in_force import update

LIMIT = 256 * 1024.0
ROLES = ("consumer", "producer")
# The most bytes that may pass in any minute, in multiples of the quota. A sampled quota of producers has the windows of
# Kafka, and six of these begin in some minutes.
MOST = {
    ("consumer", Shaping.SAMPLED): 1.11,
    ("consumer", Shaping.PACED): 1.05,
    ("producer", Shaping.SAMPLED): 1.13,
    ("producer", Shaping.PACED): 1.02,
}
LEAST = 0.90
AFTER_S = 15
CASES = [pytest.param(role, shaping, id=f"{role}-{shaping.value}") for role, shaping in product(ROLES, Shaping)]
# Each role and each shaping once, for what depends on one of them at most.
TWO_CASES = [("consumer", Shaping.SAMPLED), ("producer", Shaping.PACED)]
OTHER_CASES = [("consumer", Shaping.PACED), ("producer", Shaping.SAMPLED)]


def check_minutes(crowd: Crowd, role: str, shaping: Shaping, *, least: float = LEAST, late: float = 0.0) -> None:
    """Compare the bytes of each minute with the bounds. ``late`` is what may be in flight when a minute begins."""
    minutes = crowd.minutes(after_s=AFTER_S)
    assert max(minutes) <= MOST[role, shaping] + late, max(minutes)
    assert min(minutes) >= least, min(minutes)


@pytest.mark.parametrize(("role", "shaping"), CASES)
@pytest.mark.parametrize(
    "number", [1, 1_000, pytest.param(5, marks=pytest.mark.kafka), pytest.param(120, marks=pytest.mark.kafka)]
)
def test_any_number_of_connections_has_one_quota(role: str, shaping: Shaping, number: int) -> None:
    crowd = Crowd(number, role, shaping, limit=LIMIT)
    crowd.run(150)

    # A thousand consumers take their turns in bursts, ten seconds apart, some of which lie just outside a minute.
    is_bursty = number == 1_000 and (role, shaping) == ("consumer", Shaping.SAMPLED)
    check_minutes(crowd, role, shaping, least=0.85 if is_bursty else LEAST)
    if len(crowd.passed) >= 10 * number:
        assert crowd.fairness() >= 0.5
    if role == "consumer":
        assert max(member.longest_answer_ms for member in crowd.members) <= MAX_WAIT_MS + 10


@pytest.mark.long
@pytest.mark.parametrize(("role", "shaping"), CASES)
def test_ten_thousand_connections_have_one_quota(role: str, shaping: Shaping) -> None:
    crowd = Crowd(10_000, role, shaping, limit=32 * LIMIT)
    crowd.run(80)

    check_minutes(crowd, role, shaping)


@pytest.mark.parametrize(
    ("role", "shaping", "enforcement"),
    [
        *((*case, Enforcement.RESPOND) for case in TWO_CASES),
        *((*case, Enforcement.DELAY) for case in OTHER_CASES),
    ],
)
def test_clients_that_ignore_throttle_time_get_no_more(role: str, shaping: Shaping, enforcement: Enforcement) -> None:
    crowd = Crowd(30, role, shaping, limit=LIMIT, enforcement=enforcement, obeys=lambda number: number % 2 == 0)
    crowd.run(150)

    check_minutes(crowd, role, shaping)
    heeding = sum(member.passed_bytes for member in crowd.members[::2])
    ignoring = sum(member.passed_bytes for member in crowd.members[1::2])
    assert ignoring <= 1.25 * heeding


@pytest.mark.parametrize(("role", "shaping"), OTHER_CASES)
def test_requests_of_mixed_sizes_have_one_quota(role: str, shaping: Shaping) -> None:
    crowd = Crowd(
        60, role, shaping, limit=LIMIT, request_bytes=lambda random: random.choice([1_000, 4_000, 16_384, 65_536])
    )
    crowd.run(200)

    check_minutes(crowd, role, shaping)


@pytest.mark.parametrize(("role", "shaping"), TWO_CASES)
def test_huge_requests_are_paid_in_full(role: str, shaping: Shaping) -> None:
    """Ten minutes, because one request is a large part of a minute's quota."""
    crowd = Crowd(30, role, shaping, limit=LIMIT, request_bytes=lambda random: 1 << 20)
    crowd.run(600)

    assert 0.95 * 600 * LIMIT <= sum(crowd.passed) <= 1.05 * 600 * LIMIT


@pytest.mark.parametrize(("role", "shaping"), TWO_CASES)
def test_a_slow_broker_changes_no_quota(role: str, shaping: Shaping) -> None:
    crowd = Crowd(30, role, shaping, limit=LIMIT, answer_ms=lambda random: random.randint(300, 900))
    crowd.run(150)

    check_minutes(crowd, role, shaping, least=0.8, late=0.02)


@pytest.mark.parametrize(("shaping", "stall_s"), [(Shaping.SAMPLED, 20), (Shaping.PACED, 200)])
def test_late_answers_of_a_stalled_broker_are_paid_in_full(shaping: Shaping, stall_s: int) -> None:
    """The broker answers no fetch for a while, and then all of them within two seconds: up to a batch for each."""
    begin_ms, end_ms = START_MS + 30_000, START_MS + 30_000 + stall_s * 1_000

    def answer_ms(random: Random) -> int:
        return max(0, end_ms - crowd.now_ms) * (crowd.now_ms >= begin_ms) + random.randint(1, 20)

    crowd = Crowd(300, "consumer", shaping, limit=LIMIT, request_bytes=lambda random: 1 << 16, answer_ms=answer_ms)
    crowd.run(30 + stall_s)
    before_bytes = sum(crowd.passed)
    crowd.run(12)
    assert sum(crowd.passed) - before_bytes <= 300 * (1 << 16) + 12 * LIMIT
    crowd.run(108)

    seconds = 30 + stall_s + 120
    assert sum(crowd.passed) <= 1.1 * seconds * LIMIT


@pytest.mark.parametrize(("role", "shaping"), OTHER_CASES)
def test_reload_keeps_debt_and_applies_the_new_limit_to_waiting_requests(role: str, shaping: Shaping) -> None:
    crowd = Crowd(30, role, shaping, limit=LIMIT)
    for _ in range(60):
        crowd.run(1)
        update(crowd.listening.quotas, crowd.config)
    assert sum(crowd.passed) <= (60 + 11) * LIMIT

    before_bytes = sum(crowd.passed)
    raised = QuotaRule(client_id="etl", producer_byte_rate=8 * LIMIT, consumer_byte_rate=8 * LIMIT)
    update(crowd.listening.quotas, replace(crowd.config, quotas=(raised,)))
    crowd.run(60)

    # Clients still wait for the throttle times of earlier responses, up to 25 s.
    assert sum(crowd.passed) - before_bytes >= 0.5 * 8 * 60 * LIMIT


@pytest.mark.parametrize("shaping", Shaping)
def test_stalled_request_blocks_others_no_longer_than_its_charge(shaping: Shaping) -> None:
    crowd = Crowd(30, "producer", shaping, limit=LIMIT, answer_ms=lambda random: 2)
    crowd.run(30)
    crowd.members[0].is_stalled = True
    before_bytes = sum(crowd.passed)
    crowd.run(110)

    assert sum(crowd.passed) - before_bytes >= LEAST * 110 * LIMIT


def test_closed_connections_leave_the_line() -> None:
    crowd = Crowd(200, "consumer", Shaping.PACED, limit=LIMIT)
    crowd.run(20)
    (bucket,) = crowd.listening.quotas.fetch
    assert bucket.line is not None
    assert len(bucket.line) > 100

    for member in crowd.members[1:]:
        member.leave()
    crowd.run(30)
    before_bytes = sum(crowd.passed)
    crowd.run(30)

    assert len(bucket.line) <= 1
    assert bucket.holders == 1
    assert sum(crowd.passed) - before_bytes >= LEAST * 30 * LIMIT


@pytest.mark.parametrize(("role", "shaping"), TWO_CASES)
@pytest.mark.parametrize("number", [1, pytest.param(30, marks=pytest.mark.long)])
def test_observed_throttle_time_matches_enforcement(role: str, shaping: Shaping, number: int) -> None:
    """Throttle times that overlap count once, also if the quota is only observed."""
    times_ms = []
    answer_ms = 4 if number == 1 else 40  # clients that are only observed are as fast as their broker
    for enforcement in (Enforcement.RESPOND, Enforcement.OBSERVE):
        crowd = Crowd(number, role, shaping, limit=LIMIT, enforcement=enforcement, answer_ms=lambda random: answer_ms)
        crowd.run(60)
        quotas = crowd.listening.quotas
        (bucket,) = quotas.fetch if role == "consumer" else quotas.produce
        times_ms.append(bucket.usage.throttling.time_ms + bucket.usage.throttling.observed_time_ms)

    enforced_ms, observed_ms = times_ms
    assert enforced_ms > 40_000
    assert observed_ms == pytest.approx(enforced_ms, rel=0.1)
