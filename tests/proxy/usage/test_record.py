"""Tests of ``proxy.usage.record``."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.usage.record import Batch, Span, Timeline, UsageCounts, UsageKey

USED = UsageCounts(
    amount=5_242_880, requests=41, throttled_requests=40, throttle_time_ms=310, is_enforced=True, limit=5_242_880.0,
    rule_user="alice", rule_client_id="<default>", connections=3,
)  # fmt: skip


def a_batch(identity: UsageKey, used: UsageCounts = USED) -> Batch:
    return Batch("p1", 1_767_225_600_000, 1_000, ((identity, used),))


def test_a_line_has_all_fields() -> None:
    (line,) = a_batch(UsageKey(3, "produce", "alice", "etl")).lines()

    assert line == (
        b'{"start_ms":1767225600000,"interval_ms":1000,"proxy":"p1","broker":3,"kind":"produce","user":"alice",'
        b'"client_id":"etl","rule_user":"alice","rule_client_id":"<default>","limit":5242880.0,"amount":5242880,'
        b'"requests":41,"throttled_requests":40,"throttle_time_ms":310,"enforced":true,"connections":3}'
    )


def test_unknown_fields_are_null_and_any_name_is_one_line_of_ascii() -> None:
    used = UsageCounts(amount=1, requests=1, throttled_requests=0, throttle_time_ms=0, is_enforced=True)
    name = 'a"b\\c\n\r\u2028\x00é😀'

    (line,) = a_batch(UsageKey(None, "produce", "ANONYMOUS", name), used).lines()

    assert line.isascii()
    assert b"\n" not in line
    found = json.loads(line)
    assert found["client_id"] == name
    assert [key for key, value in found.items() if value is None] == [
        "broker", "rule_user", "rule_client_id", "limit", "connections",
    ]  # fmt: skip


def test_a_key_identifies_the_bucket() -> None:
    with_listener = a_batch(UsageKey(3, "connection", "", "", "clients"))

    assert list(a_batch(UsageKey(3, "produce", "alice", "etl")).keys()) == [
        b'{"proxy":"p1","broker":3,"kind":"produce","user":"alice","client_id":"etl"}'
    ]
    assert list(with_listener.keys()) == [
        b'{"proxy":"p1","broker":3,"kind":"connection","user":"","client_id":"","listener":"clients"}'
    ]


def test_the_cluster_is_a_part_of_the_record_and_of_its_key_once_it_is_known() -> None:
    batch = a_batch(UsageKey(3, "produce", "alice", "etl", cluster="c-1"))

    (line,), (key,) = batch.lines(), batch.keys()
    assert json.loads(line)["cluster"] == json.loads(key)["cluster"] == "c-1"


def test_connections_through_two_listeners_are_added() -> None:
    one, other, unknown = (USED._replace(connections=count) for count in (2, 3, None))

    assert one.plus(other).connections == 5
    assert one.plus(unknown).connections == unknown.plus(one).connections == 2
    assert unknown.plus(unknown).connections is None


WALL_MS = 1_767_225_600_000


def a_timeline() -> Timeline:
    return Timeline(wall_ms=WALL_MS, now_ms=5_000)


def test_intervals_follow_each_other_on_the_wall_clock() -> None:
    timeline = a_timeline()

    # The clocks differ a little, because they are read one after the other and one of them is slewed.
    spans = [
        timeline.roll(wall_ms=WALL_MS + wall, now_ms=5_000 + now)
        for wall, now in ((400, 400), (1_400, 1_401), (2_403, 2_400), (3_400, 3_400))
    ]

    assert spans == [
        Span(WALL_MS, 400),
        Span(WALL_MS + 400, 1_000),
        Span(WALL_MS + 1_400, 1_003),
        Span(WALL_MS + 2_403, 997),
    ]


def test_after_a_step_back_starts_continue_at_half_speed() -> None:
    timeline = a_timeline()
    timeline.roll(wall_ms=WALL_MS + 1_000, now_ms=6_000)

    stepped_ms = 3_000
    spans = [
        timeline.roll(wall_ms=WALL_MS + 1_000 - stepped_ms + 1_000 * second, now_ms=6_000 + 1_000 * second)
        for second in range(1, 9)
    ]

    assert [span.start_ms - WALL_MS for span in spans] == [500, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000]
    assert [span.interval_ms for span in spans] == [1_000] * 8


def test_no_start_repeats_one_of_an_earlier_process() -> None:
    timeline = a_timeline()
    timeline.start_after(WALL_MS + 10_000)

    first = timeline.roll(wall_ms=WALL_MS + 1_000, now_ms=6_000)
    second = timeline.roll(wall_ms=WALL_MS + 2_000, now_ms=7_000)

    assert first == Span(WALL_MS + 10_001, 1_000)
    assert second == Span(WALL_MS + 10_501, 1_000)


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.one_of(st.just(0), st.integers(-7_200_000, 7_200_000))), max_size=30)
)
def test_starts_are_unique_and_cover_all_time(rolls: list[tuple[int, int]]) -> None:
    """Each roll has the time that passed, and by how much the wall clock was set meanwhile."""
    timeline, wall_ms, now_ms = a_timeline(), WALL_MS, 5_000
    spans: list[Span] = []
    for passed_ms, step_ms in rolls:
        now_ms += passed_ms
        wall_ms += passed_ms + step_ms
        spans.append(timeline.roll(wall_ms=wall_ms, now_ms=now_ms))
        assert spans[-1].interval_ms >= 1
        # Small differences of the clocks are ignored, and two rolls in one millisecond need two starts.
        assert abs(spans[-1].interval_ms - passed_ms) <= 20

    starts = [span.start_ms for span in spans]
    assert starts == sorted(set(starts))
