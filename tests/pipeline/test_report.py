"""The HTML report is a single file that a browser can show, and contains the measured values."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from kafka_quota_proxy.pipeline.report import Section, duration, figure, keys, page, plots, shown, size, table


class Elements(HTMLParser):
    """Collects the resources that a page would fetch, and the scripts and event handlers that it would run."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.scripts = 0
        self.handlers = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.handlers += any(name.startswith("on") for name, _ in attrs)
        self.fetched += [
            f"{tag} {name}"
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "srcset", "data") and not (value or "").startswith("#")
        ]


def read(text: str) -> Elements:
    """Return the elements of a page."""
    found = Elements()
    found.feed(text)
    return found


HOSTILE = "<script>alert(1)</script><b onclick='x'>&\"\x00\n\u202e$\\frac{"


def test_names_of_clients_are_escaped() -> None:
    body = (
        plots([figure(HOSTILE, HOSTILE, "<svg></svg>")])
        + table([HOSTILE], [[HOSTILE]], label=HOSTILE)
        + keys({"use": HOSTILE})
    )

    found = page(
        HOSTILE,
        [("1", HOSTILE)],
        [Section(HOSTILE, HOSTILE, body)],
        words=HOSTILE,
        notes=[HOSTILE],
        verdict=(HOSTILE, False),
        warnings=[HOSTILE],
    )

    assert read(found).fetched == []
    # The page's own script is the only one.
    assert (read(found).scripts, read(found).handlers) == (1, 0)
    assert "<b onclick" not in found
    assert "\x00" not in found
    assert found.count("&lt;script&gt;alert(1)") == 17


def test_a_page_fetches_nothing_and_fits_dark_mode_and_phones() -> None:
    found = page("T", [], [], verdict=("Well.", True), words="", notes=[])

    assert read(found).fetched == []
    assert not re.search(r"url\(|@import|https?:", found)
    dark = found.partition("prefers-color-scheme: dark")[2]
    assert {"--ink", "--paper", "--use", "--limit", "--faint"} <= set(re.findall(r"--\w+(?=:)", dark[:300]))
    assert 'name="viewport" content="width=device-width' in found
    assert "color-scheme: light dark" in found


def test_the_policy_allows_the_script_of_the_page_and_no_other() -> None:
    found = page("T", [], [], verdict=("Well.", True), words="", notes=[])

    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', found)
    (script,) = re.findall(r"<script>(.*?)</script>", found, re.DOTALL)
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    assert len(policy) == 1
    assert f"default-src 'none'; script-src 'sha256-{allowed}';" in policy[0]
    assert "unsafe" not in policy[0].partition("style-src")[0]


@pytest.mark.parametrize(("is_good", "kind"), [(True, "good"), (False, "bad")])
def test_the_verdict_comes_first(is_good: bool, kind: str) -> None:
    found = page("T", [("1", "fact")], [], verdict=("Do <it>.", is_good), words="", notes=[], warnings=["Mind."])

    assert f'<h1>T</h1><p class="verdict {kind}">Do &lt;it&gt;.</p><p class="warning"' in found


def test_a_plot_has_a_description_for_screen_readers() -> None:
    found = figure("alice, produce", 'limit "2" MB/s', "<svg><path/></svg>")

    assert '<svg role="img" aria-label="alice, produce: limit &quot;2&quot; MB/s">' in found
    assert "<b>alice, produce</b><span>limit" in found


def test_further_notes_are_folded() -> None:
    found = page("T", [], [], verdict=("Well.", True), words="", notes=[f"note {at}" for at in range(20)])

    assert "<summary>12 more</summary>" in found
    assert found.count("<li>") == 20


def test_invisible_characters_are_marked() -> None:
    assert shown("a\x00b\nc\u202ed\ud800e ü 漢") == "a\ufffdb\ufffdc\ufffdd\ufffde ü 漢"


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.7, "1 kB"),
        (1_500, "1.5 kB"),
        (999_600, "1 MB"),
        (12_345_678, "12.3 MB"),
        (5e15, "5,000 TB"),
        (-1_500, "-1.5 kB"),
    ],
)
def test_sizes_in_words(amount: float, words: str) -> None:
    assert size(amount) == words


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0, "0 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (7_200_000, "2 h"), (7_200_000_000, "2,000 h")],
)
def test_times_in_words(ms: float, words: str) -> None:
    assert duration(ms) == words
