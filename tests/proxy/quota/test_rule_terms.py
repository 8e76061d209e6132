"""Tests the form of a rule at a given time, when this form may change, and the schedule of all rules."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import IpRule, QuotaRule
from kafka_quota_proxy.config.schedule import Ramp, Schedule, step_of
from kafka_quota_proxy.config.term_values import parse_instant_ms
from kafka_quota_proxy.proxy.quota.rule_terms import in_force, limits_of, next_change_ms
from kafka_quota_proxy.proxy.rules.effective import Rule, RuleSchedule

MONDAY_MS = parse_instant_ms("2026-11-23T00:00:00Z")
HOUR_MS = 3_600_000
OFFICE_HOURS = Schedule(time_zone="UTC", begin_minute=8 * 60, end_minute=18 * 60)
RULE = QuotaRule(user="u", producer_byte_rate=1_000.0, connections=10)


def at(hour: float) -> int:
    return MONDAY_MS + int(hour * HOUR_MS)


def test_rule_ends_at_the_instant_of_its_expiry() -> None:
    rule = replace(RULE, expires_ms=MONDAY_MS)

    assert in_force(rule, now_ms=MONDAY_MS - 1) is rule
    assert next_change_ms(rule, now_ms=MONDAY_MS - 1) == MONDAY_MS
    assert in_force(rule, now_ms=MONDAY_MS) is None
    assert next_change_ms(rule, now_ms=MONDAY_MS) is None


def test_otherwise_applies_outside_the_schedule() -> None:
    schedule = replace(OFFICE_HOURS, otherwise=(("consumer_byte_rate", 7.0), ("connections", 2)))
    rule = replace(RULE, schedule=schedule, expires_ms=at(40), source="f.yaml:3")

    night = in_force(rule, now_ms=at(7))

    # Outside the schedule, limits that ``otherwise`` lacks do not exist.
    assert night == QuotaRule(user="u", consumer_byte_rate=7.0, connections=2, source="f.yaml:3")
    assert in_force(rule, now_ms=at(9)) is rule
    assert in_force(rule, now_ms=at(41)) is None


def test_ramp_has_equal_steps_to_the_new_limit() -> None:
    ramp = Ramp(
        start=(("producer_byte_rate", 5_000.0), ("connections", 13)), begins_ms=at(0), over_ms=4 * HOUR_MS, steps=4
    )
    rule = replace(RULE, limits={**RULE.limits, "consumer_byte_rate": 9.0}, ramp=ramp)

    held = [in_force(rule, now_ms=at(hour)) for hour in (-100, 0, 0.99, 1, 2, 3, 4, 100)]

    assert [
        (one.limits.get("producer_byte_rate"), one.limits.get("connections"), one.limits.get("consumer_byte_rate"))
        for one in held
        if one
    ] == [
        (5_000.0, 13, 9.0),
        (5_000.0, 13, 9.0),
        (5_000.0, 13, 9.0),
        (4_000.0, 12, 9.0),  # 12.25 connections are rounded down
        (3_000.0, 11, 9.0),
        (2_000.0, 10, 9.0),
        (1_000.0, 10, 9.0),
        (1_000.0, 10, 9.0),
    ]
    assert held[-1] is rule


def test_ramp_ignores_a_removed_limit() -> None:
    ramp = Ramp(start=(("producer_byte_rate", 5.0), ("consumer_byte_rate", 5.0)), begins_ms=at(0), over_ms=10, steps=2)
    rule = QuotaRule(user="u", producer_byte_rate=1.0, ramp=ramp)

    held = in_force(rule, now_ms=at(0))

    assert held is not None
    assert limits_of(held) == {"producer_byte_rate": 5.0}


def test_address_rules_have_times() -> None:
    rule = IpRule(ip="10.0.0.7", connection_creation_rate=0.0, source="f.yaml:3")
    ramp = Ramp(start=(("connection_creation_rate", 8.0),), begins_ms=at(0), over_ms=HOUR_MS, steps=2)
    otherwise = replace(OFFICE_HOURS, otherwise=(("connection_creation_rate", 3.0),))

    assert in_force(replace(rule, expires_ms=at(0)), now_ms=at(0)) is None
    assert in_force(replace(rule, ramp=ramp), now_ms=at(0.5)) == replace(rule, connection_creation_rate=4.0)
    assert in_force(replace(rule, schedule=otherwise), now_ms=at(0)) == replace(rule, connection_creation_rate=3.0)


@given(st.integers(1, 50), st.integers(1, 300), st.integers(-50, 400))
def test_ramp_step_begins_at_its_instant(steps: int, over_ms: int, since_ms: int) -> None:
    ramp = Ramp(start=(), begins_ms=1_000, over_ms=over_ms, steps=steps)

    begun = [step for step in range(1, steps + 1) if Fraction(step * over_ms, steps) <= since_ms]

    assert step_of(ramp, now_ms=1_000 + since_ms) == max(begun, default=0)


# These ramps are so short that the test can look at every millisecond.
SHORT_RAMPS = st.builds(
    Ramp,
    start=st.just((("producer_byte_rate", 9.0),)),
    begins_ms=st.integers(MONDAY_MS - 50, MONDAY_MS + 200),
    over_ms=st.integers(10, 200),
    steps=st.integers(1, 10),
)
SCHEDULES = st.sampled_from(
    [
        Schedule(time_zone="UTC", days=frozenset({0})),
        Schedule(time_zone="UTC", days=frozenset({6}), otherwise=(("producer_byte_rate", 3.0),)),
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.none() | st.integers(MONDAY_MS - 100, MONDAY_MS + 300), st.none() | SCHEDULES, st.none() | SHORT_RAMPS)
def test_nothing_changes_before_the_next_change(
    expires_ms: int | None, schedule: Schedule | None, ramp: Ramp | None
) -> None:
    rule = QuotaRule(user="u", producer_byte_rate=1.0, expires_ms=expires_ms, schedule=schedule, ramp=ramp)
    times = range(MONDAY_MS - 100, MONDAY_MS + 300)

    next_ms: int | None = times[0]
    for now_ms in times:
        if now_ms == next_ms:
            held = in_force(rule, now_ms=now_ms)
            next_ms = next_change_ms(rule, now_ms=now_ms)
            assert next_ms is None or next_ms > now_ms
        assert in_force(rule, now_ms=now_ms) == held


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
            if key in table.timed:
                assert current[key] == in_force(timed_rule, now_ms=now_ms)


def test_untimed_rules_are_not_kept() -> None:
    table = RuleSchedule[int](now_ms=START_MS)

    for key in range(1_000):
        table.put(key, rule(), now_ms=START_MS)

    assert not table.timed
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
