"""Growth, and forecasts of the week in which a limit is reached, on made-up series whose future is known."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from statistics import median

import numpy as np
import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.capacity import byte_usage, hours
from kafka_quota_proxy.pipeline.growth import Reach, Trend, daily, limit_reached, trends
from tests.pipeline.support import START_MS, frame, record, rows

DAY_S = 86_400
WEEKDAYS = (1.0, 1.05, 1.0, 1.02, 0.98, 0.4, 0.35)
# In a usual week without noise, the busiest day has this rate. With noise, some day is above its own rate.
NOISE = 0.1
LEVEL = float(
    np.median(np.max(np.asarray(WEEKDAYS) * (1 + NOISE * np.random.default_rng(1).normal(size=(40_000, 7))), axis=1))
)


def made_up(count: int, *, weeks: int, growth: float, weekdays: Sequence[float] = WEEKDAYS) -> list[dict[int, float]]:
    """Return series of daily rates that grow by the part ``growth`` of today's rate each week, with noise."""
    chance = np.random.default_rng(7)
    back = np.arange(7 * weeks)
    line = 1 - growth / 7 * back
    season = np.asarray([weekdays[-1 - day % 7] for day in range(7 * weeks)])
    noise = 1 + NOISE * chance.normal(size=(count, len(back)))
    return [dict(zip(back.tolist(), (1e6 * season * line * one).tolist(), strict=True)) for one in noise]


@pytest.mark.parametrize(
    ("weeks", "growth", "reached"),
    [(13, 0.02, 20.0), (13, 0.02, 4.0), (13, 0.04, 12.0), (13, 0.05, 10.0), (8, 0.04, 8.0)],
)
def test_nine_of_ten_intervals_contain_the_true_week(weeks: int, growth: float, reached: float) -> None:
    """The series are independent. So the part that hits has a standard deviation of 1 %."""
    limit = 1e6 * LEVEL * (1 + growth * reached)

    found = [limit_reached(trend, limit) for trend in trends(made_up(800, weeks=weeks, growth=growth))]

    told = [one for one in found if one.weeks is not None]
    hits = sum(one.low <= reached <= one.high for one in told)
    assert len(told) >= 0.97 * len(found)
    assert 0.85 <= hits / len(told) <= 0.95
    assert median(one.weeks or 0 for one in told) == pytest.approx(reached, rel=0.12, abs=0.4)
    # An interval would also contain the truth if it contained everything.
    assert median(one.high - one.low for one in told) < 1.3 * reached + 5


def test_series_that_do_not_grow_hardly_ever_reach_a_limit() -> None:
    found = [limit_reached(trend, 1.5e6 * LEVEL) for trend in trends(made_up(3_000, weeks=13, growth=0))]

    # An interval of 90 % lies above 0 in 5 of 100 cases.
    assert sum(one.weeks is not None for one in found) <= 0.065 * len(found)
    assert sum(one.words.startswith(("in ", "reached")) for one in found) <= 0.05 * len(found)
    assert sum(one.words == "no clear growth" for one in found) >= 0.86 * len(found)


def test_a_weekend_that_grows_otherwise_does_not_count() -> None:
    """The weekend is far below the limit, and grows by the same bytes as the busy days: three times as fast."""
    quiet = (*WEEKDAYS[:5], 0.15, 0.15)
    series = [
        {back: rate + 1e6 * 0.02 / 7 * (91 - back) * (quiet[-1 - back % 7] < 0.5) for back, rate in one.items()}
        for one in made_up(300, weeks=13, growth=0.02, weekdays=quiet)
    ]

    found = [limit_reached(trend, 1e6 * LEVEL * 1.2) for trend in trends(series)]

    hits = sum(one.low <= 10 <= one.high for one in found)
    assert 0.83 <= hits / len(found) <= 0.96


@pytest.mark.parametrize(
    ("trend", "limit", "words"),
    [
        (Trend(91, 45.0, 0.01, 0.008, 0.012, 100.0, 1.0), 200.0, "in 8 weeks (5 to 11 weeks)"),
        (Trend(91, 0.0, 0.01, 0.009, 0.011, 100.0, 0.0), 107.0, "in 1 week (1 to 1 week)"),
        (Trend(91, 45.0, 0.01, 0.001, 0.019, 100.0, 1.0), 400.0, "in 36 weeks (16 to over 2 years)"),
        (Trend(91, 0.0, 0.001, 0.0005, 0.0015, 100.0, 1.0), 150.0, "in 48 weeks or more"),
        (Trend(91, 0.0, 0.001, 0.0009, 0.0011, 100.0, 1.0), 300.0, "not within a year"),
        (Trend(91, 0.0, -0.01, -0.012, -0.008, 100.0, 1.0), 200.0, "shrinks"),
        (Trend(91, 0.0, 0.001, -0.001, 0.003, 100.0, 1.0), 200.0, "no clear growth"),
        (Trend(91, 0.0, 0.001, -0.001, 0.003, 100.0, 1.0), 99.0, "reached"),
        (Trend(91, 0.0, 0.01, 0.009, 0.011, 100.0, 1.0), 50.0, "reached"),
        (Trend(20, 0.0, 0.01, 0.009, 0.011), 50.0, ""),
        (Trend(3, 0.0), 50.0, ""),
    ],
)
def test_a_forecast_in_words(trend: Trend, limit: float, words: str) -> None:
    assert limit_reached(trend, limit).words == words


def test_a_higher_limit_is_reached_later_and_a_longer_error_gives_a_longer_interval() -> None:
    trend = Trend(91, 45.0, 0.01, 0.008, 0.012, 100.0, 5.0)

    found = [limit_reached(trend, limit) for limit in (200, 250, 300)]
    sure, unsure = (limit_reached(trend._replace(error=error), 200) for error in (1.0, 10.0))

    assert all(one.weeks < other.weeks for one, other in pairwise(found))  # type: ignore[operator]
    assert all(one.low <= one.weeks <= one.high for one in found)  # type: ignore[operator]
    assert unsure.high - unsure.low > sure.high - sure.low


def test_nothing_is_forecast_from_less_than_six_weeks() -> None:
    five, six = (trends(made_up(1, weeks=weeks, growth=0.1))[0] for weeks in (5, 6))

    assert five.growth is not None
    assert limit_reached(five, 1e7) == Reach("", None, inf, inf)
    assert limit_reached(six, 1e7).weeks is not None


def test_growth_is_the_median_of_slopes_and_one_odd_day_does_not_move_it() -> None:
    steady = {back: 1_130.0 - 10 * back for back in range(14)}
    odd = steady | {9: 50 * steady[9]}
    gaps = {back: rate for back, rate in steady.items() if back not in (0, 7)}

    found = trends([steady, odd, gaps, {}, {3: 5.0}, dict.fromkeys(range(14), 0.0)])

    # The rate grows by 10 B/s each day, and is 1,065 B/s in the middle of the period.
    for trend in found[:3]:
        assert trend.percent_in_30_days == pytest.approx(10 * 30 * 100 / 1_065, rel=0.02)
    assert [trend.days for trend in found] == [14, 14, 12, 0, 1, 14]
    assert [trend.percent_in_30_days for trend in found[3:]] == [None] * 3


def test_weekends_are_compared_with_weekends() -> None:
    """Otherwise a log from a Monday to a Sunday would show a falling trend."""
    days = {13 - day: (1_000 + 10 * day) * (1.0, 1.3, 0.8, 1.1, 0.9, 0.3, 0.3)[day % 7] for day in range(14)}

    (found,) = trends([days])

    assert found.percent_in_30_days == pytest.approx(10 * 30 * 100 / 1_065, rel=0.02)


def test_thousands_of_entities_are_divided_into_parts() -> None:
    series = made_up(2_500, weeks=3, growth=0.05)

    assert trends(series)[2_100:2_400] == trends(series[2_100:2_400])


def test_a_day_has_the_mean_rate_of_its_busiest_hour_on_the_busiest_broker(spark: SparkSession) -> None:
    log = [record(at_s=day * DAY_S + hour * 3_600, amount=3_600 * 10 * (hour + 1)) for day in (0, 2) for hour in (4, 5)]
    log += [record(at_s=5 * 3_600 + 7, amount=3_600), record(at_s=5 * 3_600, broker=2, amount=3_600 * 40)]
    log += [record(at_s=-90 * DAY_S, amount=9_000_000), record(at_s=0, client_id="other", amount=7_200)]

    found = rows(daily(hours(byte_usage(frame(spark, log))), START_MS + 2 * DAY_S * 1_000), "client_id")

    assert [(row["client_id"], row["days"]) for row in found] == [("etl", {2: 61.0, 0: 60.0}), ("other", {2: 2.0})]
