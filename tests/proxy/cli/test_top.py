"""Tests what ``top`` prints and draws, on terminals of 80 and 200 columns."""

import asyncio
import json
import os
import pty
import subprocess
import sys
import time

import pytest

from kafka_quota_proxy.config.model import Admin, QuotaRule
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.admin.clients import rows as query
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.cli.clients_table import cells_of, cut, duration, lines, printable, rate
from kafka_quota_proxy.proxy.cli.top import SORTS
from tests.support.client_rows import page, row, unlimited
from tests.support.quota_page import LOOPBACK
from tests.support.reloads import Reloads
from tests.support.stub_broker import on_uvloop
from tests.support.throttled_clients import connect, server_with

NOWHERE = "http://127.0.0.1:1"
HOSTILE = "evil\x1b[2J\n\u202e</b>[red]"
BY_RATE = {"sort": "rate"}


async def run(*arguments: str) -> int:
    """Run ``top`` against a proxy with the throttled client ``etl`` and the calm client ``free``."""
    server = server_with(QuotaRule(client_id="etl", producer_byte_rate=1_000.0, source="proxy.yaml:7"))
    now_ms = time.monotonic_ns() // 1_000_000
    for name in ("free", "etl"):
        connect(server, name, now_ms=now_ms).charge(5_000, now_ms=now_ms)
    connect(server, "etl", now_ms=now_ms).throttled(30_000, now_ms=now_ms)
    with AdminServer(Admin(bind=LOOPBACK), server, Reloads()) as admin:
        return await asyncio.to_thread(main, ["top", "--url", f"http://127.0.0.1:{admin.port}", *arguments])


@on_uvloop
async def test_json_is_what_the_admin_port_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("--json", "--limit", "1") == 0

    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert told["total"] == 2
    assert [(one["client_id"], one["throttled"]) for one in told["clients"]] == [("etl", True)]


@on_uvloop
async def test_without_a_terminal_a_table_is_printed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert await run("--kind", "produce", "--sort", "client_id") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "2 of 2 clients, 1 throttled, ordered by client_id, produce only"
    assert [line.split()[1] for line in shown[1:]] == ["client", "etl", "free"]
    assert shown[2].endswith("proxy.yaml:7")
    assert not any("\x1b" in line for line in shown)

    monkeypatch.delenv("COLUMNS")
    assert await run("--once") == 0
    assert capsys.readouterr().out.splitlines()[2].split()[-2:] == ["2", "10.0.0.5"], "names are whole in a pipe"


def test_a_proxy_that_is_away_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--once"], ["--json"]):
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


def test_on_a_terminal_it_outlives_the_proxy_and_restores_the_screen() -> None:
    program = (
        "import sys\n"
        "from kafka_quota_proxy.proxy.cli import top\n"
        "from kafka_quota_proxy.proxy.__main__ import main\n"
        "from tests.support.client_rows import page, row\n"
        "answers = [page(row('one')), top.AdminPortError('refused\\n'), page(row('two'))]\n"
        "def clients(self, query):\n"
        "    if not answers:\n"
        "        raise KeyboardInterrupt\n"
        "    answer = answers.pop(0)\n"
        "    if isinstance(answer, Exception):\n"
        "        raise answer\n"
        "    return answer\n"
        "top.AdminClient.clients = clients\n"
        "top.INTERVAL_S = 0\n"
        "sys.exit(main(['top']))\n"
    )
    outer, inner = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": ""}
    ended = subprocess.run([sys.executable, "-c", program], stdout=inner, env=environment, timeout=60, check=False)
    os.close(inner)
    drawn = os.read(outer, 65_536).decode()
    os.close(outer)

    assert ended.returncode == 130
    opened, first, away, last = drawn.split("\x1b[H")
    assert opened == "\x1b[?1049h\x1b[?25l"
    assert "one" in first
    assert "\x1b[31mproduce" in first, "a throttled client is red"
    assert "one" in away
    assert "no answer for 0.0 s, trying again: refused\\n" in away
    assert "no answer" not in last
    assert "two" in last
    assert last.endswith("\x1b[J\x1b[?25h\x1b[?1049l")


def test_orders_are_those_of_the_admin_port() -> None:
    assert query.SORTS == SORTS


def test_a_table_has_what_counts_and_a_wide_one_more() -> None:
    _, heading, line, free = lines(page(row(), unlimited("free", user="bob")), BY_RATE, width=80)
    assert heading.split() == ["kind", "client", "broker", "rate/s", "limit/s", "used", "throttled", "1min", "rule"]
    assert line.split() == [
        "produce", "etl", "1", "10.0", "MiB", "10.0", "MiB", "100%", "81", "s", "85%", "proxy.yaml:7",
    ]  # fmt: skip
    assert free.split() == ["produce", "bob", "free", "1", "10.0", "MiB", "-"]

    _, heading, line = lines(page(row()), BY_RATE, width=200)
    assert heading.split()[1:3] == ["user", "client-id"]
    assert "ANONYMOUS" in line
    assert line.endswith("10.0.0.5, 10.0.0.6")


@pytest.mark.parametrize("width", [0, 1, 40, 117, 118, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = row("日" * 300, user="u" * 300, addresses=["1" * 300], rate=1e15, throttled_for_ms=1e12)

    shown = lines(page(long, row(HOSTILE)), BY_RATE, width=width)

    assert len(shown) == 4
    assert max(map(cells_of, shown)) <= width


def test_hostile_names_are_written_as_escapes() -> None:
    for width in (80, 200):
        shown = lines(page(row(HOSTILE, user=HOSTILE)), BY_RATE, width=width)
        assert not any("\x1b[2J" in line or "\u202e" in line for line in shown)
    assert printable(HOSTILE) == "evil\\x1b[2J\\n\\u202e</b>[red]"


def test_the_head_says_who_goes_past_the_proxy() -> None:
    bypassed = {**page(total=0), "bypassed": [{"broker": "b:9092", "advertises": "b:9092"}]}

    assert lines(bypassed, BY_RATE, width=80)[0] == "past the proxy: b:9092 sends clients to b:9092"


@pytest.mark.parametrize(
    ("kind", "value", "written", "text"),
    [
        ("produce", 0.0, None, "0 B"),
        ("fetch", 1_024.0, None, "1.0 KiB"),
        ("fetch", 310_000.0, "1MiB", "303 KiB"),
        ("fetch", 310_000.0, "1MB", "310 kB"),
        ("request", 45.04, "50", "45.0 %"),
        ("mutation", 3.0, "5", "3.0"),
        ("produce", None, None, "-"),
    ],
)
def test_rates_and_limits_have_the_kind_of_unit_in_which_the_limit_is_written(
    kind: str, value: float | None, written: str | None, text: str
) -> None:
    assert rate(row(kind=kind, limit=value, limit_written=written), "limit") == text


def test_durations_are_short() -> None:
    given = (0, 812, 12_345, 119_900, 185_000, 9_000_000)

    assert [duration(one) for one in given] == ["0.0 s", "0.8 s", "12 s", "120 s", "3 min", "2.5 h"]


def test_texts_are_cut_by_the_cells_that_they_take() -> None:
    assert [cells_of(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]
    assert [cut("日本語", width) for width in (0, 1, 2, 3, 5, 6)] == ["", "…", "…", "日…", "日本…", "日本語"]
    assert cut("quotas.yaml:17", 6, keeps_end=True) == "…ml:17"
    assert cut("", 0) == ""
