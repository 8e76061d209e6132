"""Tests what ``top`` draws, on terminals of 80 and 200 columns."""

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.cli.top import terminal
from kafka_quota_proxy.proxy.cli.top.screen import clients_table, details, duration, limit, printable, rate, screen
from kafka_quota_proxy.proxy.cli.top.terminal import Line
from kafka_quota_proxy.proxy.cli.top.view import View, identity
from tests.support.client_rows import page, row, unlimited

HOSTILE = "evil\x1b[2J\n\u202e</b>[red]"


def drawn(what: Sequence[Line], width: int = 80, *, has_color: bool = False) -> list[str]:
    return [terminal.drawn(line, width=width, codes=terminal.codes(is_terminal=has_color)).rstrip() for line in what]


def whole(view: View, *rows: dict[str, Any], width: int = 80, height: int = 24, trouble: str = "") -> list[str]:
    answer = page(*rows, total=7)
    return drawn(screen(view, answer, width=width, height=height, url="http://h:1", trouble=trouble), width)


def test_a_table_has_what_counts_and_a_wide_one_all_fields() -> None:
    heading, line, free = drawn(clients_table([row(), unlimited("free", user="bob")], width=80))
    assert heading.split() == ["kind", "client", "rate/s", "limit/s", "used", "throttled", "1min", "rule"]
    assert line.split() == [
        "produce", "etl", "10.0", "MiB", "10", "MiB", "█████", "100%", "81", "s", "85%", "proxy.yaml:7",
    ]  # fmt: skip
    assert free.split() == ["produce", "bob", "free", "10.0", "MiB", "-"]

    heading, line = drawn(clients_table([row()], width=200), 200)
    assert heading.split()[1:3] == ["user", "client-id"]
    assert "ANONYMOUS" in line
    assert "proxy.yaml:7 client-id etl" in line
    assert line.endswith("10.0.0.5, 10.0.0.6     clients")


def test_rows_of_one_client_at_several_brokers_name_the_broker() -> None:
    rows = [row("etl", broker=broker) for broker in (1, 2, None)]

    heading, *lines = drawn(clients_table(rows, width=80))

    assert "broker" in heading.split()
    assert len(set(lines)) == 3
    # The column stays while the rows of one broker are drawn.
    assert "broker" in drawn(clients_table(rows, width=80, shown=slice(2, 3)))[0]


@pytest.mark.parametrize("width", [40, 117, 118, 169, 170, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = row("c" * 300, user="u" * 300, addresses=["1" * 300], listener="l" * 300, rate=1e15, throttled_for_ms=1e12)

    lines = drawn(clients_table([long, row(HOSTILE)], width=width), width)

    assert len(lines) == 3
    assert max(map(len, lines)) <= width


def test_hostile_names_are_written_as_escapes() -> None:
    for width in (80, 200):
        lines = drawn(clients_table([row(HOSTILE, user=HOSTILE)], width=width), width, has_color=True)
        assert not any("\x1b[2J" in line or "\u202e" in line for line in lines)
    assert printable(HOSTILE) == "evil\\x1b[2J\\n\\u202e</b>[red]"
    line = drawn(details(row(HOSTILE)), 200)[0]
    assert line == "producer_byte_rate of user ANONYMOUS, client-id evil\\x1b[2J\\n\\u202e</b>[red]"


def test_a_terminal_without_color_shows_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    colored = drawn(clients_table([row()], width=80), has_color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = drawn(clients_table([row()], width=80), has_color=True)

    assert any("31m" in line for line in colored)  # red
    assert not any("31m" in line for line in plain)
    assert "81 s" in plain[1]


def test_the_head_says_what_is_shown_that_the_proxy_is_away_and_who_goes_past_it() -> None:
    lines = whole(View(filter="etl", sort="rate", kind="produce", is_paused=True), row(), unlimited("free"))
    assert lines[0] == "kafka-quota-proxy top  http://h:1  2026-11-22T16:00:01.000Z"
    expected = "1 of 7 clients, 1 throttled, ordered by rate, produce only, filter 'etl' in the first 2,"
    assert lines[1][:79] == expected[:79]
    assert lines[-1].startswith("s sort")

    lines = whole(View(), row(), trouble="no answer for 12 s, trying again: refused")
    assert lines[1] == "no answer for 12 s, trying again: refused"
    assert "etl" in lines[4]
    first = drawn(screen(View(), None, width=80, height=24, url="http://h:1", trouble="refused"))
    assert first == ["kafka-quota-proxy top  http://h:1", "refused", "", "q quit"]
    bypassed = {**page(total=0), "bypassed": [{"broker": "b:9092", "advertises": "b:9092"}]}
    lines = drawn(screen(View(), bypassed, width=80, height=24, url="http://h:1"))
    assert lines[1] == "past the proxy: b:9092 sends clients to b:9092"


def test_a_low_terminal_scrolls_to_the_selected_client() -> None:
    rows = [row(f"client-{number:02}", utilisation=0.5) for number in range(30)]
    view = View(sort="client_id", selected=identity(rows[20]))

    lines = whole(view, *rows, height=10)

    assert len(lines) == 10
    assert "client-20" in lines[-2]
    assert "client-15" in lines[3]


def test_details_say_which_rules_lost_and_why() -> None:
    won = {"level": 7, "says": "client-id", "rule": row()["rule"], "limit": 10_485_760.0, "limit_written": "10MiB"}
    lost = {
        "level": 8,
        "says": "default client-id",
        "rule": {"user": None, "client-id": "<default>", "source": "p.yaml:9"},
        "limit": 1_000_000.0,
        "limit_written": "1MB",
    }
    reason = "level 7 (client-id) is more specific"
    rules = [won | {"wins": True, "reason": "best"}, lost | {"wins": False, "reason": reason}]
    throttles = [{"time": "2026-11-22T16:00:00.120Z", "throttle_time_ms": 617}]
    one = row(rules=rules, last_throttles=throttles)
    view = View(has_details=True, selected=identity(one))

    lines = whole(view, one, width=120)

    assert lines[1:-1] == [
        "producer_byte_rate of user ANONYMOUS, client-id etl",
        "  rate         10465092 bytes (9.98 MiB) per second, 100% of the limit",
        "  throttled    81 s",
        "  last minute  51.2 s throttled",
        "  connections  3, at listener clients, broker 1",
        "  waits for    throttle time (2 of 3 connections)",
        "  addresses    10.0.0.5, 10.0.0.6",
        "  manner       respond, paced",
        "  rule         client-id etl, 10485760 bytes (10 MiB) per second (/etc/kafka-quota-proxy/proxy.yaml:7)",
        "               level 7 of 8 (client-id): best",
        "  lost         client-id <default>, 1000000 bytes (1 MB) per second (p.yaml:9)",
        "               level 8 of 8 (default client-id): level 7 (client-id) is more specific",
        "  throttle     16:00:00.120, for 617 ms",
    ]
    assert whole(view)[1] == "the client is no longer active"
    assert len(whole(view, one, height=6)) == 6


@pytest.mark.parametrize(
    ("kind", "value", "written", "text"),
    [
        (QuotaKind.PRODUCE, 0.0, None, "0 B"),
        (QuotaKind.FETCH, 1_024.0, None, "1.0 KiB"),
        (QuotaKind.FETCH, 310_000.0, "1MiB", "303 KiB"),
        (QuotaKind.FETCH, 310_000.0, "1MB", "310 kB"),
        (QuotaKind.REQUEST, 45.04, "50", "45.0 %"),
        (QuotaKind.MUTATION, 3.0, "5", "3.0"),
    ],
)
def test_rates_have_the_kind_of_unit_of_their_limit(
    kind: QuotaKind, value: float, written: str | None, text: str
) -> None:
    assert rate(kind, value, like=written) == text


@pytest.mark.parametrize(
    ("kind", "value", "written", "text"),
    [
        ("fetch", 512e3, "512kB", "512 kB"),
        ("fetch", 512e3, "500KiB", "500 KiB"),
        ("produce", 1_234_944.0, "1234.944kB", "1.2 MB"),
        ("request", 50.0, "50", "50.0 %"),
        ("produce", None, None, "-"),
    ],
)
def test_limits_have_the_unit_in_which_they_were_written(
    kind: str, value: float | None, written: str | None, text: str
) -> None:
    assert limit(row(kind=kind, limit=value, limit_written=written)) == text


def test_durations_are_short() -> None:
    given = (0, 812, 12_345, 119_900, 185_000, 9_000_000)

    assert [duration(one) for one in given] == ["0.0 s", "0.8 s", "12 s", "120 s", "3 min", "2.5 h"]
