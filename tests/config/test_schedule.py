"""Tests that a schedule is open by the local time of its zone, also on days when clocks change."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.schedule import (
    DAY_MINUTES,
    DAYS,
    EVERY_DAY,
    Schedule,
    days_of,
    is_open,
    next_change_ms,
    written_days,
    zone,
)
from tests.support.cases import each_case

MINUTE_MS = 60_000
# Zones whose clocks change by an hour, half an hour or two hours, at midnight, to an earlier winter time, or never.
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "America/Havana",
    "Europe/Dublin",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "UTC",
]
SEARCHED_DAYS = 2


def oracle(schedule: Schedule, unix_ms: int) -> bool:
    """Return whether the schedule is open, by the day and the time that a local clock shows."""
    wall = datetime.fromtimestamp(unix_ms // 1_000, tz=ZoneInfo(schedule.time_zone)).replace(tzinfo=None)
    time = wall.strftime("%H:%M")
    begin, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (schedule.begin_minute, schedule.end_minute))
    today, yesterday = (day.strftime("%a").lower() for day in (wall, wall - timedelta(days=1)))
    days = {DAYS[day] for day in schedule.days}
    if begin < end:
        return today in days and begin <= time < end
    return (today in days and begin <= time) or (yesterday in days and time < end)


@lru_cache
def jumps(name: str, year: int) -> list[int]:
    """Return the times at which a zone's clock changes in a year, or the start of the year if it never changes."""
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000
    hours = [begin + hour * 60 * MINUTE_MS for hour in range(366 * 24)]
    offsets = [datetime.fromtimestamp(hour // 1_000, tz=ZoneInfo(name)).utcoffset() for hour in hours]
    return [hours[n] for n in range(1, len(hours)) if offsets[n] != offsets[n - 1]] or [begin]


@st.composite
def instants(draw: st.DrawFn) -> tuple[str, int]:
    """Draw a time zone, and a minute within two days of a change of its clock."""
    name, year, nth = draw(st.sampled_from(ZONES)), draw(st.sampled_from([2025, 2026, 2027])), draw(st.integers(0, 9))
    found = jumps(name, year)
    return name, found[nth % len(found)] + draw(st.integers(-2 * DAY_MINUTES, DAY_MINUTES)) * MINUTE_MS


# Many of these times of day are near the hours at which clocks change.
minutes = st.integers(0, 4 * 60) | st.integers(0, DAY_MINUTES - 1)
hours = st.tuples(minutes, minutes | st.just(DAY_MINUTES)).filter(lambda pair: pair[0] != pair[1])


@settings(max_examples=20, deadline=None)
@given(instants(), st.sets(st.integers(0, 6), min_size=1), hours)
@example(("Pacific/Apia", 1_325_152_800_000), {4}, (0, DAY_MINUTES))  # 2011-12-29 was followed by the 31st, a Saturday
@example(("America/Sao_Paulo", 1_518_912_000_000), {6}, (0, 60))  # 2018-02-18 began an hour before its midnight
def test_a_schedule_is_open_at_the_local_times_within_its_hours(
    at: tuple[str, int], days: set[int], hours: tuple[int, int]
) -> None:
    name, now_ms = at
    begin, end = hours
    schedule = Schedule(time_zone=name, days=frozenset(days), begin_minute=begin, end_minute=end)
    ahead = [now_ms + minute * MINUTE_MS for minute in range(SEARCHED_DAYS * DAY_MINUTES)]

    was_open = is_open(schedule, now_ms=now_ms)
    change_ms = next_change_ms(schedule, now_ms=now_ms)

    wanted = [oracle(schedule, minute) for minute in ahead]
    assert was_open is wanted[0]
    first = next((minute for minute, is_open_then in zip(ahead, wanted, strict=True) if is_open_then != was_open), None)
    assert change_ms == first or (first is None and (change_ms is None or change_ms > ahead[-1]))
    if change_ms is not None:
        assert is_open(schedule, now_ms=change_ms - 1) is was_open
        assert is_open(schedule, now_ms=change_ms) is not was_open


def changes(schedule: Schedule, begin: str, end: str) -> list[str]:
    """Return each opening and closing from ``begin`` to ``end``, in local time with the zone's offset."""
    now_ms, last_ms = (int(datetime.fromisoformat(text).timestamp()) * 1_000 for text in (begin, end))
    found: list[str] = []
    while True:
        next_ms = next_change_ms(schedule, now_ms=now_ms)
        if next_ms is None or next_ms > last_ms:
            return found
        now_ms = next_ms
        wall = datetime.fromtimestamp(now_ms // 1_000, tz=ZoneInfo(schedule.time_zone))
        found.append(f"{'opens' if is_open(schedule, now_ms=now_ms) else 'closes'} {wall.strftime('%d. %H:%M %z')}")


FROM_HALF_PAST_TWO = Schedule(time_zone="Europe/Berlin", begin_minute=150, end_minute=240)
TO_HALF_PAST_TWO = Schedule(time_zone="Europe/Berlin", begin_minute=60, end_minute=150)


def test_a_begin_or_end_in_the_skipped_hour_is_at_the_jump() -> None:
    day = ("2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00")

    assert changes(FROM_HALF_PAST_TWO, *day) == ["opens 29. 03:00 +0200", "closes 29. 04:00 +0200"]
    assert changes(TO_HALF_PAST_TWO, *day) == ["opens 29. 01:00 +0100", "closes 29. 03:00 +0200"]
    within = Schedule(time_zone="Europe/Berlin", begin_minute=125, end_minute=150)
    assert changes(within, *day) == []


def test_the_repeated_hour_counts_twice() -> None:
    day = ("2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00")

    assert changes(FROM_HALF_PAST_TWO, *day) == [
        "opens 25. 02:30 +0200", "closes 25. 02:00 +0100", "opens 25. 02:30 +0100", "closes 25. 04:00 +0100",
    ]  # fmt: skip
    assert changes(TO_HALF_PAST_TWO, *day) == [
        "opens 25. 01:00 +0200", "closes 25. 02:30 +0200", "opens 25. 02:00 +0100", "closes 25. 02:30 +0100",
    ]  # fmt: skip


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin() -> None:
    fridays = Schedule(time_zone="UTC", days=frozenset({4}), begin_minute=22 * 60, end_minute=6 * 60)

    # 2026-11-20 is a Friday.
    assert changes(fridays, "2026-11-18T00:00+00:00", "2026-11-25T00:00+00:00") == [
        "opens 20. 22:00 +0000", "closes 21. 06:00 +0000",
    ]  # fmt: skip


def test_a_schedule_that_is_always_open_never_changes() -> None:
    assert next_change_ms(Schedule(time_zone="Europe/Berlin"), now_ms=1_800_000_000_000) is None


@each_case(
    "text, days",
    [("mon", {0}), ("Mon-Fri", {0, 1, 2, 3, 4}), ("sat-mon", {5, 6, 0}), ("sun", {6}), (" tue - wed ", {1, 2})],
)
def test_days_are_names_and_ranges(text: str, days: set[int]) -> None:
    assert days_of(text) == days


@given(st.frozensets(st.integers(0, 6), min_size=1))
def test_days_are_written_as_they_are_read(days: frozenset[int]) -> None:
    assert frozenset().union(*map(days_of, written_days(days))) == days


def test_all_seven_days_are_every_day() -> None:
    assert days_of("mon-sun") == EVERY_DAY
    assert written_days(EVERY_DAY) == ["mon-sun"]


@each_case(
    "name",
    ["", "Europe", "Europe/Nowhere", "../etc/passwd", "/etc/localtime", "localtime", "right/UTC", "a\0b", "x" * 9999],
)
def test_an_unknown_zone_is_a_value_error(name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the name is all that it says
        zone(name)
