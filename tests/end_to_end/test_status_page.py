"""The status page in a real Chromium: it is live, readable for everybody, and shows hostile names as text."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from kafka_quota_proxy.proxy.admin.status.event_streams import MAX_STREAMS
from tests.end_to_end.support.chromium import Browser, chromium
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import scratch
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.status_scene import administered, change_quota, proxy_before_broker, scene

# The names of clients, and how the page shows them.
HOSTILE: Final = {
    '<img src=x onerror="window.hacked = 1">': '<img src=x onerror="window.hacked = 1">',
    "\"'></td><script>window.hacked = 1</script>": "\"'></td><script>window.hacked = 1</script>",
    "\u202egnp.exe": "\\u202egnp.exe",
    "line\nbreak\x1b[2J": "line\\nbreak\\x1b[2J",
    "${window.hacked=1}": "${window.hacked=1}",
}
LONG: Final = "W" * 5_000
ROWS: Final = "#throttled tbody tr"
WIDTHS: Final = (1280, 390, 1101, 1100, 320)
# At this limit, a client waits for ten minutes after a request of 64 KiB.
RULE: Final = {"client-id": "<default>", "producer_byte_rate": 100}
# A limit as the file has it, and as the page shows it.
UNITS: Final = {"0.5kB": "0.5 kB/s", "0.5KiB": "0.5 KiB/s"}
SETTINGS: Final = {"quotas": [RULE, *({"client-id": f"in-{one}", "producer_byte_rate": one} for one in UNITS)]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """A proxy in front of an embedded broker, with hostile clients that are throttled all the time."""
    with proxy_before_broker(SETTINGS) as proxy, throttled(proxy, *HOSTILE, LONG):
        yield proxy


@contextmanager
def throttled(proxy: Proxy, *names: str) -> Iterator[None]:
    """Connect clients with these client-ids, each of which has written far too much."""
    with ExitStack() as stack:
        for name in names:
            client = stack.enter_context(raw_client(proxy.port("clients"), client_id=name))
            assert client.produce("orders", batch_of(64 * KIB)).throttle_time_ms == 25_000
        yield


def open_page(browser: Browser, proxy: Proxy, *, rows: int = 0, width: int = 1280) -> None:
    """Open the page, and wait until it shows this many rows of throttled clients, or more."""
    browser.show(width)
    browser.errors()
    browser.driver.get(f"http://{proxy.admin_address}/")
    wait_for_rows(browser, rows)
    browser.run("window.isSamePage = true")


def wait_for_rows(browser: Browser, count: int) -> None:
    browser.wait_for(
        f"document.querySelector('#verdict.well') && document.querySelectorAll('{ROWS}').length >= arguments[0]",
        count,
        what=f"{count} rows",
    )


def names(browser: Browser) -> set[str]:
    """Return the names of the clients in the table of throttled ones, as text."""
    script = (
        "return [...document.querySelectorAll('#throttled tbody tr')].map(row => row.cells[0].firstChild.textContent)"
    )
    return set(browser.run(script))


def test_hostile_names_are_shown_as_text(browser: Browser, proxy: Proxy) -> None:
    open_page(browser, proxy, rows=len(HOSTILE) + 1)

    shown = names(browser)

    assert shown > set(HOSTILE.values())
    assert any(name.startswith("WWWW") for name in shown)
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
    assert browser.errors() == []


def test_limits_have_the_units_in_which_they_were_written(browser: Browser, proxy: Proxy) -> None:
    script = "return [...document.querySelectorAll('#throttled tbody tr')].map(row => [row.cells[0], row.cells[4]]"
    script += ".map(cell => cell.firstChild.textContent))"
    with throttled(proxy, *(f"in-{one}" for one in UNITS)):
        open_page(browser, proxy, rows=len(HOSTILE) + 1 + len(UNITS))
        limits = {name: limit for name, limit in browser.run(script) if name.startswith("in-")}

    assert limits == {f"in-{written}": shown for written, shown in UNITS.items()}


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_never_scrolls_sideways(browser: Browser, proxy: Proxy, width: int) -> None:
    open_page(browser, proxy, rows=len(HOSTILE) + 1, width=width)

    assert browser.run("return document.documentElement.scrollWidth") <= width
    # Nothing is cut off either: each cell lies within the window.
    rights = "return Math.max(...[...document.querySelectorAll('td')].map(cell => cell.getBoundingClientRect().right))"
    assert browser.run(rights) <= width
    # Long names are broken into lines.
    cut = "return [...document.querySelectorAll('td .main')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert browser.run(cut) == 0


def test_every_section_is_accessible_in_light_and_dark(browser: Browser) -> None:
    with scene() as proxy:
        open_page(browser, proxy, rows=0)
        browser.wait_for(
            "document.querySelectorAll('#throttled tbody tr').length >= 2", what="the clients are throttled"
        )
        browser.wait_for("document.querySelectorAll('#near tbody tr').length >= 1", what="a client is near its limit")
        sections = browser.run("return [...document.querySelectorAll('section:not([hidden]) h2')].map(one => one.id)")
        faults = {}
        for width in WIDTHS[:2]:
            for dark in (False, True):
                browser.show(width, dark=dark)
                back = browser.run("return getComputedStyle(document.body).backgroundColor")
                faults[width, dark, back] = browser.axe()
        changes, queue = browser.text("#changes"), browser.text("#queues")

    assert sections == ["h-throttled", "h-near", "h-brokers", "h-reload", "h-changes", "h-queues"]
    assert set(map(tuple, faults.values())) == {()}, faults
    assert len({back for _, _, back in faults}) == 2
    assert "producer_byte_rate: 1MB → 2MB, request_percentage: none → 50" in changes
    assert "of 4" in queue


def test_rows_come_and_change_without_a_reload(browser: Browser, proxy: Proxy) -> None:
    open_page(browser, proxy, rows=len(HOSTILE) + 1)
    before = browser.text("#link")
    since = browser.run("return document.querySelector('#throttled td.bad .main').textContent")

    with throttled(proxy, "newcomer"):
        browser.wait_for("document.querySelector('#throttled').innerText.includes('newcomer')", what="the newcomer")
        shown, verdict = names(browser), browser.text("#verdict")
        rows = browser.run(f"return [...document.querySelectorAll('{ROWS}')].map(row => row.innerText)")
        (row,) = (text for text in rows if text.startswith("newcomer"))

    assert "newcomer" in shown
    assert re.fullmatch(r"Well: (\d+) clients, \1 throttled, 1 broker reached", verdict)
    assert "client-id <default>" in row
    assert "proxy.yaml:" in row
    assert browser.text("#link") != before
    assert browser.run("return document.querySelector('#throttled td.bad .main').textContent") != since
    assert browser.run("return window.isSamePage") is True


def test_filter_and_pause_work_by_keyboard(browser: Browser, proxy: Proxy) -> None:
    open_page(browser, proxy, rows=len(HOSTILE) + 1)

    def press(*keys: str) -> None:
        ActionChains(browser.driver).send_keys(*keys).perform()

    def focused() -> str:
        return str(browser.run("return document.activeElement.id"))

    press(Keys.TAB)
    first = focused()
    press("GNP")
    found = names(browser)
    press(Keys.TAB)
    second = focused()
    press(Keys.SPACE)
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    pressed = browser.run("return document.activeElement.getAttribute('aria-pressed')")
    said = browser.text("#link")
    with throttled(proxy, "gnp-2"):
        time.sleep(5)  # two events
        paused, still = names(browser), browser.text("#link")
        press(Keys.SPACE)
        wait_for_rows(browser, 2)

    assert (first, second, outline) == ("filter", "pause", "solid")
    assert found == paused == {"\\u202egnp.exe"}
    assert pressed == "true"
    assert said == still
    assert said.startswith("Paused at ")


def test_a_screen_reader_hears_the_verdict_and_no_flood(browser: Browser, proxy: Proxy) -> None:
    open_page(browser, proxy, rows=len(HOSTILE) + 1)
    browser.run(
        "window.said = 0; window.events = 0;"
        "new MutationObserver(() => window.said++).observe(document.getElementById('said'), {childList: true});"
        "new MutationObserver(() => window.events++).observe(document.getElementById('link'), {childList: true});"
    )
    before = browser.text("#verdict")
    with throttled(proxy, "another"):
        browser.wait_for("document.getElementById('verdict').innerText !== arguments[0]", before, what="a new verdict")
        browser.wait_for("window.events >= 2", what="two events")

    assert browser.run("return window.said") == 0
    live = "[...document.querySelectorAll('[aria-live],[role=status],[role=alert],[role=log],output')]"
    assert browser.run(f"return {live}.map(one => one.id)") == ["said"]
    assert browser.run("return document.getElementById('said').textContent").startswith("Well: ")


def test_the_page_asks_only_the_proxy(browser: Browser, proxy: Proxy) -> None:
    open_page(browser, proxy, rows=len(HOSTILE) + 1)

    asked = set(browser.run("return performance.getEntriesByType('resource').map(one => one.name)"))
    origin = f"http://{proxy.admin_address}"
    blocked = browser.driver.execute_async_script(
        "const done = arguments[0]; fetch('http://127.0.0.2:1/').then(() => done(false), () => done(true))"
    )

    assert {f"{origin}/status.css", f"{origin}/status.js"} <= asked
    assert all(one.startswith(f"{origin}/") for one in asked)
    assert blocked
    assert any("Content Security Policy" in error for error in browser.errors())


def test_a_page_without_room_for_its_stream_waits_for_some(browser: Browser, proxy: Proxy) -> None:
    host, _, port = proxy.admin_address.partition(":")
    browser.driver.get("about:blank")  # no page has a stream
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            stream = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            stream.sendall(b"GET /clients/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert stream.recv(16_384).startswith(b"HTTP/1.0 200 ")
        browser.driver.get(f"http://{proxy.admin_address}/")
        browser.wait_for(
            "document.getElementById('link').textContent.startsWith('No connection')", what="it is refused"
        )
    wait_for_rows(browser, len(HOSTILE) + 1)


def test_the_page_says_that_the_proxy_is_gone_and_comes_back_with_it(browser: Browser) -> None:
    with scratch("restart") as directory:
        settings = administered(directory) | {"quotas": [RULE]}
        with proxy_before_broker(settings) as proxy:
            open_page(browser, proxy)
            proxy.stop()
            browser.wait_for("document.getElementById('link').className === 'lost'", what="the page sees that")
            lost, said = browser.text("#link"), browser.run("return document.getElementById('said').textContent")
            browser.wait_for(
                "/ (3|4|5|6) s old/.test(document.getElementById('link').textContent)", what="the age grows"
            )
            proxy.start()
            browser.wait_for("document.getElementById('link').textContent.startsWith('Live')", what="the page is live")
            assert browser.text("#changes") == ""
            change_quota(proxy, "alice", {"producer_byte_rate": 3_000_000})
            browser.wait_for("document.querySelectorAll('#changes tbody tr').length === 1", what="the change is shown")
            change = browser.text("#changes tbody tr")

    assert lost.startswith("Connection lost. The data is ")
    assert said == "Connection to the proxy lost"
    assert "producer_byte_rate: none → 3MB" in change
    assert browser.run("return window.isSamePage") is True
