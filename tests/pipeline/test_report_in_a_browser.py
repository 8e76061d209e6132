"""The report in a real browser, on a desktop and a phone, in the light and the dark colour scheme."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.capacity_report import capacity_page
from tests.pipeline.browser import Browser, browser
from tests.pipeline.support import START_MS

pytestmark = pytest.mark.pipeline

LOOKS = [(width, scheme) for width in (360, 390, 1_280) for scheme in ("light", "dark")]
HOUR_MS = 3_600_000


def report() -> str:
    """Return a page with every section, and with names of all lengths."""
    chance = random.Random(1)  # noqa: S311  (made up, and the same each time)
    names = [f"app-{at}-{'with-a-long-name-' * (at % 5)}" for at in range(40)] + [
        "x" * 500,
        "漢字" * 40,
        "$\\frac{$ <b>",
    ]
    suggested = [
        Suggestion(
            kind,
            "team",
            name,
            10**7,
            3 * 10**7,
            10**5,
            2 * 10**7,
            "was throttled while this was measured, and may need more",
            "delay",
        )
        for name in names
        for kind in ("produce", "fetch")
    ]
    return capacity_page(
        suggestions=suggested,
        top=[
            {**dict(zip(("kind", "user", "client_id"), one[:3], strict=True)), "hour_ms": START_MS + at * HOUR_MS,
             "peak": 3e7 * chance.random()}
            for one in suggested[-6:]
            for at in range(24 * 14)
        ],
        seasons=[
            {"kind": kind, "weekday": day, "hour": hour, "rate": 1e8 * chance.random()}
            for kind in ("produce", "fetch")
            for day in range(7)
            for hour in range(24)
        ],
        brokers=[
            {"proxy": f"proxy-{broker}", "broker": broker, "kind": kind, "peak": 4e8 * chance.random(), "limits": 9e8,
             "capacity": 3e8, "oversubscription": 3.0}
            for broker in range(12)
            for kind in ("produce", "fetch")
        ],
        throttled={
            one[:3]: {"throttle_time_ms": int(4e7 * chance.random()), "throttled_share": 0.01 * chance.random(),
             "longest_delay_ms": int(3e4 * chance.random())}
            for one in suggested
        },
        growth={one[:3]: 100 * chance.random() for one in suggested},
        log="From 12,345,678 records, 60.4 TB from 2026-09-07 00:00 to 2026-09-21 00:00 UTC.",
        warnings=["broker 1 (produce) cannot bear what its clients need: limits of 9 GB/s, 12 times its capacity"],
        notes=["17 bad lines were ignored: see quarantine/", *(f"No limit for {name}." for name in names)],
        percentile=99.0,
        max_delay_ms=30_000,
        timezone="Europe/Berlin",
    )  # fmt: skip


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start a browser that shows the page."""
    directory = tmp_path_factory.mktemp("browser")
    page = directory / "report.html"
    page.write_text(report(), encoding="utf-8")
    with browser(directory) as window:
        window.open(page)
        yield window


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_only_a_scrolling_table_is_wider_than_the_window(shown: Browser, width: int, scheme: str) -> None:
    shown.look(width=width, scheme=scheme)

    assert shown.run("return document.documentElement.scrollWidth") <= width
    beyond = shown.run(
        "return [...document.querySelectorAll('body *:not(.wide *):not(svg *)')]"
        ".filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"
    )
    assert beyond == []


@pytest.mark.parametrize("width", [360, 390, 1_280])
def test_text_in_plots_is_readable_and_does_not_overlap(shown: Browser, width: int) -> None:
    shown.look(width=width, scheme="light")

    texts: list[list[Any]] = shown.run(
        "return [...document.querySelectorAll('svg')].map(svg => {"
        "  const frame = svg.getBoundingClientRect();"
        "  return [...svg.querySelectorAll('text')].map(text => { const box = text.getBoundingClientRect(); return {"
        "    words: text.textContent, left: box.left - frame.left, right: box.right - frame.left, top: box.top,"
        "    bottom: box.bottom, width: frame.width, height: box.height } }) })"
    )

    assert sum(map(len, texts)) > 100
    for plot in texts:
        for text in plot:
            assert text["height"] >= 10, text
            assert text["left"] >= -1, text
            assert text["right"] <= text["width"] + 1, text
        for at, one in enumerate(plot):
            for other in plot[at + 1 :]:
                across = min(one["right"], other["right"]) - max(one["left"], other["left"])
                down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
                # Boxes may overlap a little, because the box of a line of text is higher than its letters.
                assert across <= 0 or down <= 0.4 * one["height"], (one, other)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_plots_stand_out_from_the_page(shown: Browser, scheme: str) -> None:
    """WCAG requires a contrast of 4.5 for text and 3 for graphics."""
    shown.look(width=1_280, scheme=scheme)

    colours = shown.run(
        "const of = name => { document.body.style.outlineColor = `var(--${name})`;"
        "  return getComputedStyle(document.body).outlineColor.match(/[\\d.]+/g).map(Number) };"
        "return Object.fromEntries(['ink', 'faint', 'paper', 'use', 'limit'].map(name => [name, of(name)]))"
    )
    text = shown.run("return getComputedStyle(document.querySelector('svg text')).fill.match(/[\\d.]+/g).map(Number)")

    assert text == colours["ink"]
    paper = luminance(colours["paper"])
    assert (paper > 0.5) == (scheme == "light")
    for name, least in {"ink": 4.5, "faint": 4.5, "use": 3, "limit": 3}.items():
        low, high = sorted((paper, luminance(colours[name])))
        assert (high + 0.05) / (low + 0.05) >= least, name


def luminance(colour: list[float]) -> float:
    """Return the relative luminance of a colour (WCAG 2.1). Red, green and blue are 0 to 255."""
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in (c / 255 for c in colour[:3])
    ]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def test_the_page_loads_nothing_and_runs_no_script(shown: Browser) -> None:
    assert shown.run("return performance.getEntriesByType('resource').map(one => one.name)") == []
    assert shown.run("return document.scripts.length") == 0
    assert shown.run("return document.querySelectorAll('td b, figcaption b b').length") == 0
