"""The page: one file that a browser can read, with what was measured in it."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from pipeline.report import Section, bars, duration, heat_maps, page, rates_over_time, size, table


class Elements(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            f"{tag} {name}" for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")
        ]


def svgs(text: str) -> list[ElementTree.Element]:
    """Return the plots of a page, parsed."""
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]  # noqa: S314  (ours)


def test_a_page_escapes_what_clients_call_themselves_and_fetches_nothing() -> None:
    plot = rates_over_time([0, 1], {"<b>evil</b> & co": ([1e6, None], 2e6)})
    text = page(
        "T", {"bytes": "1 GB"}, [Section("Who?", "<i>", plot + table(["a", "b"], [("<script>", "1")]))], ["note"]
    )

    found = Elements()
    found.feed(text)

    assert found.fetched == []
    assert "<script>" not in text
    assert "<b>evil" not in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_a_plot_is_drawn_in_the_colour_of_the_page_and_is_the_same_each_time() -> None:
    maps = heat_maps({"produce": {(0, 0): 1e6, (6, 23): 5e6}})
    both = bars(["1", "2"], {"limits": [1.0, 2.0], "peak": [0.5, None]}, unit="MB/s")

    assert len(svgs(maps)) == len(svgs(both)) == 1
    assert "currentColor" in maps
    assert "#010203" not in maps
    assert maps == heat_maps({"produce": {(0, 0): 1e6, (6, 23): 5e6}})
    assert ">Sun<" in maps
    assert ">limits<" in both


def test_a_limit_is_written_beside_its_line() -> None:
    assert ">limit 2 MB/s<" in rates_over_time([0, 1], {"etl": ([1e6, 3e6], 2e6)})


@pytest.mark.parametrize(
    ("amount", "words"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (12_345_678, "12.3 MB"), (5e15, "5,000 TB")]
)
def test_sizes_in_words(amount: float, words: str) -> None:
    assert size(amount) == words


@pytest.mark.parametrize(("ms", "words"), [(0, "0 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (7_200_000, "2 h")])
def test_times_in_words(ms: float, words: str) -> None:
    assert duration(ms) == words
