"""Tests the table and the lines that ``demo --serve`` prints."""

from dataclasses import replace

import pytest
from rich.console import Console

from kafka_quota_proxy.proxy.cli.demo.serve_display import PlainClients, client_line, clients_table
from kafka_quota_proxy.proxy.cli.demo.served_clients import Client, ServedClient

MIB = 1024 * 1024
APP = ServedClient(
    client=Client("ANONYMOUS", "my-app"),
    produce_rate=MIB,
    produce_limit=2 * MIB,
    fetch_rate=0,
    fetch_limit=None,
    other_limits=(),
    throttle_time_ms=1_200,
    on_demand_ms=0,
)


def _printed(*clients: ServedClient, width: int = 80) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(clients_table(clients))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_row_has_rates_limits_and_throttle_time_in_80_columns_and_others_if_there_are_any() -> None:
    heading, row = _printed(APP)
    assert heading.split() == ["user", "client-id", "produce", "limit", "fetch", "limit", "throttled"]
    assert row.split() == ["ANONYMOUS", "my-app", "1.0", "MiB/s", "2.0", "MiB/s", "0", "B/s", "-", "1.2", "s"]

    heading, row = _printed(replace(APP, on_demand_ms=300, other_limits=("request_rate 5",)), width=100)
    assert heading.endswith("throttled  on demand  other limits")
    assert row.endswith("  1.2 s      0.3 s  request_rate 5")
    assert _printed()[-1] == "No client has connected yet."


def test_the_busiest_of_many_clients_are_shown_in_the_order_of_names() -> None:
    clients = [
        replace(APP, client=Client("ANONYMOUS", f"app-{number:02}"), produce_rate=number) for number in range(23)
    ]

    lines = _printed(*reversed(clients))

    assert [line.split()[1] for line in lines[1:21]] == [f"app-{number:02}" for number in range(3, 23)]
    assert lines[21:] == ["and 3 quieter clients"]


def test_names_cannot_control_the_terminal() -> None:
    client = replace(APP, client=Client("ANONYMOUS", "\x1b[2J[red]"))

    assert "\x1b" not in client_line(client) + "".join(_printed(client))
    assert "[red]" in "".join(_printed(client))


def test_plain_lines_are_printed_when_they_change(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainClients()

    display.show_clients([APP])
    display.show_clients([APP])
    display.show_clients([APP, replace(APP, client=Client("ANONYMOUS", "b"))])
    display.show_clients([replace(APP, throttle_time_ms=2_000)])

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[1] for line in lines] == ["my-app", "b", "my-app"]
    assert "throttled 2.0 s" in lines[-1]
    assert client_line(replace(APP, other_limits=("request_rate 5",), on_demand_ms=300)) == (
        "client-id my-app (user ANONYMOUS): produce 1.0 MiB/s of 2.0 MiB/s, fetch 0 B/s, request_rate 5, "
        "throttled 1.2 s, on demand 0.3 s"
    )
