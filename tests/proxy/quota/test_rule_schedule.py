"""Tests that a schedule returns the current form of each rule, and looks only at rules that are due."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.config.ramp import Ramp
from kafka_quota_proxy.config.schedule import Schedule
from kafka_quota_proxy.config.term_values import parse_instant_ms
from kafka_quota_proxy.proxy.quota.rule_schedule import Rule, RuleSchedule
from kafka_quota_proxy.proxy.quota.rule_terms import in_force

START_MS = parse_instant_ms("2026-03-29T00:00:00Z")  # an hour before daylight saving time begins in Berlin
MINUTE_MS = 60_000


def rule(*, expires_ms: int | None = None, ramp: Ramp | None = None, schedule: Schedule | None = None) -> QuotaRule:
    return QuotaRule(user="u", producer_byte_rate=1.0, expires_ms=expires_ms, ramp=ramp, schedule=schedule)


instants = st.integers(START_MS - 300 * MINUTE_MS, START_MS + 300 * MINUTE_MS)
timed = st.builds(
    rule,
    expires_ms=st.none() | instants,
    ramp=st.none()
    | st.builds(
        Ramp,
        start=st.just((("producer_byte_rate", 9.0),)),
        begins_ms=instants,
        over_ms=st.integers(10, 10_000_000),
        steps=st.integers(1, 9),
    ),
    schedule=st.none()
    | st.builds(
        Schedule,
        time_zone=st.just("Europe/Berlin"),
        begin_minute=st.integers(0, 200),
        end_minute=st.integers(201, 400),
    ),
)
keys = st.sampled_from("abcd")
steps = st.lists(
    st.tuples(keys, st.none() | timed) | st.integers(-200 * MINUTE_MS, 200 * MINUTE_MS) | st.just("again"), max_size=25
)


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(1, 3))
def test_schedule_equals_in_force_after_each_step(
    steps: list[tuple[str, QuotaRule | None] | int | str], most: int
) -> None:
    table, now_ms = RuleSchedule[str](now_ms=START_MS), START_MS
    rules: dict[str, Rule] = {}
    current: dict[str, Rule | None] = {}
    for step in steps:
        if isinstance(step, int):
            now_ms += step
        elif isinstance(step, str):
            table.repeat_all()
            current = dict.fromkeys(rules)  # all current forms are unknown
        else:
            key, one = step
            current[key] = table.put(key, one, now_ms=now_ms)
            rules.pop(key, None)
            if one is not None:
                rules[key] = one

        current |= table.due(most, now_ms=now_ms)
        while (next_ms := table.next_ms) is not None and next_ms <= now_ms:
            current |= table.due(most, now_ms=now_ms)

        for key, timed_rule in rules.items():
            # Rules without times are returned only when they are put.
            if key in table.rules():
                assert current[key] == in_force(timed_rule, now_ms=now_ms)


def test_untimed_rules_are_not_kept() -> None:
    table = RuleSchedule[int](now_ms=START_MS)

    for key in range(1_000):
        table.put(key, rule(), now_ms=START_MS)

    assert len(table) == 0
    assert table.next_ms is None
    assert table.due(10, now_ms=START_MS + 1) == {}


def test_replaced_rules_do_not_accumulate() -> None:
    table = RuleSchedule[str](now_ms=START_MS)

    for number in range(10_000):
        table.put("a", rule(expires_ms=START_MS + 1_000_000 + number), now_ms=START_MS)

    assert len(table._heap) < 200
    assert table.next_ms == START_MS + 1_000_000 + 9_999


def test_clock_set_back_restores_expired_rules() -> None:
    table = RuleSchedule[str](now_ms=START_MS)
    one = rule(expires_ms=START_MS + 10)
    assert table.put("a", one, now_ms=START_MS) is one

    assert table.due(9, now_ms=START_MS + 10) == {"a": None}
    assert table.due(9, now_ms=START_MS + 9) == {"a": one}
    assert table.next_ms == START_MS + 10


def test_due_looks_only_at_due_rules() -> None:
    table = RuleSchedule[int](now_ms=START_MS)
    for key in range(1_000):
        table.put(key, rule(expires_ms=START_MS + 1 + key), now_ms=START_MS)
    looked = table._number

    assert table.due(250, now_ms=START_MS + 3) == {0: None, 1: None, 2: None}

    assert table._number - looked == 3
