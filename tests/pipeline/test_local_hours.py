"""Hours of the week and of the day, with hours without records, in time zones, and with daylight saving time."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from kafka_quota_proxy.pipeline.local_hours import (
    QUARTER_MS,
    DayHour,
    hours_of_day,
    quarters,
)
from tests.pipeline.support import START_MS

UTC, BERLIN = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS


def at(text: str, zone: ZoneInfo) -> int:
    """Return a local time as milliseconds since the epoch."""
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1_000)


def office_hours(zone: ZoneInfo, from_ms: int, until_ms: int) -> dict[int, int]:
    """Return 900 bytes for each quarter of an hour from Monday to Friday, 08:00 to 20:00."""
    found = {}
    for start_ms in range(from_ms, until_ms, QUARTER_MS):
        local = datetime.fromtimestamp(start_ms / 1_000, zone)
        if local.weekday() < 5 and 8 <= local.hour < 20:
            found[start_ms] = 900
    return found


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns"])
def test_office_hours_are_found_in_their_own_time_zone_over_changes_of_the_clock(zone: str) -> None:
    """In the five weeks, the clocks of Berlin, Lord Howe and St. John's change. Kolkata is half an hour off."""
    local = ZoneInfo(zone)
    from_ms, until_ms = at("2026-10-01T00:00", local), at("2026-11-05T00:00", local)
    amounts = office_hours(local, from_ms, until_ms)

    found = hours_of_day(amounts, quarters(from_ms, until_ms, local))

    # Of 35 days, 25 are from Monday to Friday.
    used = {hour: (rate.peak, round(35 * rate.mean, 6)) for hour, rate in found.items() if rate.peak}
    assert used == dict.fromkeys(range(8, 20), (1, 25))


def test_an_hour_that_occurs_twice_counts_twice_and_one_left_out_does_not_count() -> None:
    """On 2026-10-25 in Berlin, 02:00 to 03:00 occurs twice, and on 2026-03-29 not at all."""
    autumn, spring = (at(f"{day}T00:00", BERLIN) for day in ("2026-10-25", "2026-03-29"))
    twice = {autumn + quarter * QUARTER_MS: 900 for quarter in range(8, 16)}

    long_day = hours_of_day(twice, quarters(autumn, at("2026-10-26T00:00", BERLIN), BERLIN))
    short_day = hours_of_day({}, quarters(spring, at("2026-03-30T00:00", BERLIN), BERLIN))

    assert len(long_day) == 24
    assert long_day[2] == DayHour(peak=1, mean=1)
    assert long_day[3] == DayHour(peak=0, mean=0)
    assert set(range(24)) - set(short_day) == {2}


def test_the_mean_of_an_hour_of_the_day_includes_days_without_records() -> None:
    until_ms = START_MS + 4 * 24 * HOUR_MS
    amounts = {START_MS + 7 * HOUR_MS: 3_600, START_MS + (24 + 7) * HOUR_MS + QUARTER_MS: 7_200}

    found = hours_of_day(amounts, quarters(START_MS, until_ms, UTC))

    assert found[7] == DayHour(peak=2, mean=0.75)
    assert found[8] == DayHour(peak=0, mean=0)


def test_only_the_covered_part_of_the_first_and_the_last_hour_counts() -> None:
    from_ms, until_ms = START_MS + 50 * 60_000, START_MS + HOUR_MS + 5 * 60_000

    covered = quarters(from_ms, until_ms, UTC)
    found = hours_of_day({START_MS + 3 * QUARTER_MS: 600, START_MS + HOUR_MS: 300}, covered)

    assert sum(one.covered_ms for one in covered) == until_ms - from_ms
    assert {hour: rate.mean for hour, rate in found.items()} == {0: 1, 1: 1}


def test_quarters_are_in_order_and_have_the_local_day() -> None:
    midnight_ms = at("2026-09-08T00:00", BERLIN)

    before, after = quarters(midnight_ms - QUARTER_MS, midnight_ms + QUARTER_MS, BERLIN)

    assert (before.day + timedelta(days=1), before.hour) == (after.day, 23)
    assert after.hour == 0
