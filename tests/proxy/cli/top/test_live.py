"""Tests ``top`` on a terminal."""

import os
import pty
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_quota_proxy.proxy.cli.admin_client import AdminPortError
from kafka_quota_proxy.proxy.cli.top.live import show, trouble
from kafka_quota_proxy.proxy.cli.top.poller import Answer, Page, Query
from kafka_quota_proxy.proxy.cli.top.view import View
from tests.support.client_rows import page, row

URL = "http://127.0.0.1:9308"


class Terminal:
    """A terminal of which a test reads the screen and presses the keys."""

    def __init__(self) -> None:
        self.outer, self.inner = pty.openpty()
        self._drawn: list[str] = []  # only the reader appends
        self._seen = 0  # how many of these the test has seen
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                self._drawn.append(os.read(self.outer, 65_536).decode(errors="replace"))
            except OSError:
                return

    def press(self, keys: str) -> None:
        os.write(self.outer, keys.encode())

    def wait_for(self, text: str) -> str:
        """Wait until ``text`` has been drawn since the last call. Return all that was drawn."""
        until_s = time.monotonic() + 20
        while text not in "".join(self._drawn[self._seen :]):
            assert time.monotonic() < until_s, f"{text!r} is not in {''.join(self._drawn)[-2_000:]!r}"
            time.sleep(0.01)
        drawn, self._seen = "".join(self._drawn[self._seen :]), len(self._drawn)
        return drawn


@contextmanager
def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Run the block on a terminal of 80 columns. A fixture would not do, because pytest changes stdout after it."""
    one = Terminal()
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(name, value)
    with (
        open(one.inner, closefd=False) as typed,
        open(one.inner, "w", closefd=False) as drawn,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", typed)
        patch.setattr(sys, "stdout", drawn)
        yield one
    os.close(one.inner)
    os.close(one.outer)


def test_trouble_says_since_when_and_why() -> None:
    away = Answer(trouble=f"{URL}: refused", lost_s=time.monotonic() - 12)

    assert trouble(away, URL) == "no answer for 12 s, trying again: refused"
    assert trouble(Answer(), URL) == ""


def test_it_shows_clients_reacts_to_keys_and_outlives_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    is_away = False

    def ask(query: Query) -> Page:
        if is_away:
            raise AdminPortError(f"{URL}: refused")
        if "details" in query:
            return page(row("etl", rules=[], last_throttles=[]))
        return page(row("etl"), row("reports"))

    with terminal_of(monkeypatch) as terminal:
        showing = threading.Thread(target=show, args=(ask, View()), kwargs={"url": URL}, daemon=True)
        showing.start()
        try:
            terminal.wait_for("reports")
            terminal.press("s")
            terminal.wait_for("by utilisation")
            terminal.press("/rep")
            terminal.wait_for("filter 'rep'")
            terminal.press("\x1b")
            terminal.wait_for("2 of 2 clients")
            terminal.press("\r")
            terminal.wait_for("51.2 s throttled")
            terminal.press("\x1b")
            terminal.wait_for("2 of 2 clients")
            is_away = True
            terminal.wait_for("trying again: refused")
            is_away = False
            while "trying again" in terminal.wait_for("q quit"):
                pass
        finally:
            terminal.press("q")
            showing.join(10)

    assert not showing.is_alive()
