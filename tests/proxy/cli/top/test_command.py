"""Tests of ``proxy.cli.top.command``."""

import asyncio
import json
import os
import pty
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_quota_proxy.config.model import Admin, QuotaRule
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.cli.admin_client import AdminClient, AdminPortError
from kafka_quota_proxy.proxy.cli.top import command
from kafka_quota_proxy.proxy.cli.top.command import show, trouble
from kafka_quota_proxy.proxy.cli.top.poller import Answer, Page, Query
from kafka_quota_proxy.proxy.cli.top.view import View
from tests.support.client_rows import page, row
from tests.support.quota_page import LOOPBACK
from tests.support.reloads import Reloads
from tests.support.stub_broker import on_uvloop
from tests.support.throttled_clients import connect, server_with

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


NOWHERE = "http://127.0.0.1:1"


async def top(*arguments: str) -> int:
    """Run ``top`` against a proxy with the throttled client ``etl`` and the calm client ``free``."""
    server = server_with(QuotaRule(client_id="etl", producer_byte_rate=1_000.0, source="proxy.yaml:7"))
    now_ms = time.monotonic_ns() // 1_000_000
    for name in ("free", "etl"):
        connect(server, name, now_ms=now_ms).charge(5_000, now_ms=now_ms)
    connect(server, "etl", now_ms=now_ms).throttled(30_000, now_ms=now_ms)
    with AdminServer(Admin(bind=LOOPBACK), server, Reloads()) as admin:
        return await asyncio.to_thread(main, ["top", "--url", f"http://127.0.0.1:{admin.port}", *arguments])


@on_uvloop
async def test_json_once_is_what_the_admin_port_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert await top("--once", "--json", "--limit", "1") == 0

    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert told["total"] == 2
    assert [(one["client_id"], one["throttled"]) for one in told["clients"]] == [("etl", True)]


@on_uvloop
async def test_without_a_terminal_a_table_is_printed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert await top("--kind", "produce", "--sort", "client_id") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 of 2 clients, 1 throttled, ordered by client_id, produce only"
    assert [line.split()[1] for line in lines[1:]] == ["client", "etl", "free"]
    assert lines[2].rstrip().endswith("proxy.yaml:7")
    assert not any("\x1b" in line for line in lines)

    monkeypatch.delenv("COLUMNS")
    assert await top("--once") == 0
    first = capsys.readouterr().out.splitlines()[2]
    assert "proxy.yaml:7 client-id etl " in first, "names are whole in a pipe"
    assert first.split()[-2:] == ["10.0.0.5", "clients"]


def test_a_proxy_that_is_away_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--once"], ["--once", "--json"]):
        assert main(["top", "--url", NOWHERE, *arguments]) == 1
        assert capsys.readouterr().err.startswith(f"kafka-quota-proxy top: {NOWHERE}: ")
    assert main(["top", "--url", "ftp://x"]) == 1
    assert "must be http://HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit", "0"], "argument --limit: must be a whole number from 1 to 10000, not '0'"),
        (["--sort", "name"], "argument --sort: invalid choice: 'name' (choose from"),
        (["--kind", "Produce"], "argument --kind: invalid choice: 'Produce' (choose from"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", *arguments])

    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_json_is_a_line_each_second_and_waits_for_the_proxy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [page(row("one")), AdminPortError("away"), AdminPortError("away"), page(row("two"))]

    def clients(self: AdminClient, query: dict[str, str]) -> Any:  # noqa: ANN401 - as it is read
        if not answers:
            raise KeyboardInterrupt
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(AdminClient, "clients", clients)
    monkeypatch.setattr(command, "INTERVAL_S", 0.0)

    assert main(["top", "--json"]) == 130
    told = capsys.readouterr()
    assert [json.loads(line)["clients"][0]["client_id"] for line in told.out.splitlines()] == ["one", "two"]
    assert told.err == ("kafka-quota-proxy top: away; trying again\nkafka-quota-proxy top: the proxy answers again\n")
