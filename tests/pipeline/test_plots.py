"""Plots are valid SVG in the colours of the page, for any numbers."""

import re
from xml.etree import ElementTree

import pytest

from kafka_quota_proxy.pipeline.plots import rate_over_time
from tests.pipeline.support import START_MS

HOUR_MS = 3_600_000


def words(svg: str) -> list[str]:
    """Return the texts in a plot. Raises ParseError if the plot is not valid XML."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314  (ours)


PLOTS = {
    "rate": lambda: rate_over_time(START_MS, HOUR_MS, [1e6, None, 5e6] * 20, 2e6),
    "rate without a limit": lambda: rate_over_time(START_MS, HOUR_MS, [1e6, None], None),
}


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS.keys())
def test_a_plot_has_the_colours_and_the_width_of_the_page_and_is_the_same_each_time(plot) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    svg = plot()

    assert plot() == svg
    root = ElementTree.fromstring(svg)  # noqa: S314  (ours)
    assert "viewBox" in root.attrib
    assert not {"width", "height"} & set(root.attrib)
    assert "currentColor" in svg
    assert "#0102" not in svg
    ids = re.findall(r' id="([^"]+)"', svg)
    assert all(f"#{one}" in svg for one in ids)
    assert len(set(ids)) == len(ids)


def test_the_axes_of_a_rate_have_units_and_days() -> None:
    found = words(rate_over_time(START_MS, HOUR_MS, [1e6] * 24 * 14, 2e6))

    assert {"0", "1 MB/s", "2 MB/s"} <= set(found)
    assert "09 Sep" in found


def test_a_rate_above_the_limit_has_the_colour_of_limits() -> None:
    def above(rates: list[float | None], limit: float | None) -> int:
        return rate_over_time(START_MS, HOUR_MS, rates, limit).count("var(--limit)")

    assert above([1e6, 3e6], None) == 0
    assert above([1e6, 3e6], 2e6) > above([1e6, 1e6], 2e6) - 1 > 0


def test_a_rate_of_years_has_as_many_points_as_a_plot_shows_and_its_highest() -> None:
    rates: list[float | None] = [1e6] * 50_000
    rates[31_234] = 9e6

    svg = rate_over_time(START_MS, HOUR_MS, rates, None)

    assert len(svg) < 150_000
    assert {"5 MB/s", "10 MB/s"} & set(words(svg))


@pytest.mark.parametrize("rates", [[], [None], [0.0], [5e-324], [9e18]])
def test_extreme_rates_give_a_plot(rates: list[float | None]) -> None:
    assert "0" in words(rate_over_time(START_MS, HOUR_MS, rates, None))
