"""Tests the table, the lines and the bars that the demo prints."""

import pytest
from rich.console import Console

from kafka_quota_proxy.proxy.cli.demo.display import (
    HISTORY_S,
    ClientView,
    PlainDisplay,
    format_rate,
    plain_line,
    sparkline,
    table,
)

MIB = 1024 * 1024


def _view(*, rate: float | None = 9.9 * MIB) -> ClientView:
    return ClientView(
        name="producer",
        quota=10 * MIB,
        rate_now=1_023.9 * 1024,
        rate=rate,
        throttle_time_ms=12_345.6,
        history=(20.0 * MIB,) * HISTORY_S,
    )


@pytest.mark.parametrize(
    ("bytes_per_second", "text"),
    [(0, "0 B/s"), (1_023, "1023 B/s"), (1_024, "1.0 KiB/s"), (10 * MIB, "10.0 MiB/s"), (3 * 1024 * MIB, "3.0 GiB/s")],
)
def test_a_rate_has_the_unit_that_fits(bytes_per_second: float, text: str) -> None:
    assert format_rate(bytes_per_second) == text


def test_the_highest_second_is_a_full_bar_and_silence_an_empty_one() -> None:
    assert sparkline((0, 50, 100)) == " ▄█"
    assert sparkline((0, 0)) == "  "
    assert sparkline(()) == ""


def test_a_line_has_rate_quota_average_and_throttle_time() -> None:
    assert plain_line(_view()) == "producer 1023.9 KiB/s of 10.0 MiB/s, average 9.9 MiB/s (99.0%), throttled 12.3 s"


def test_a_line_without_an_average_shows_none() -> None:
    assert plain_line(_view(rate=None)) == "producer 1023.9 KiB/s of 10.0 MiB/s, throttled 12.3 s"


def test_the_table_fits_into_80_columns_whole() -> None:
    console = Console(width=80, force_terminal=False)

    with console.capture() as capture:
        console.print(table([_view()], elapsed_s=3.2, planned_s=15))

    lines = capture.get().splitlines()
    assert lines[0].rstrip() == "kafka-quota-proxy demo, 3 of 15 s"
    for part in ("producer", "10.0 MiB/s", "1023.9 KiB/s", "9.9 MiB/s 99.0%", "12.3 s", "█" * HISTORY_S):
        assert part in lines[2]


def test_plain_progress_is_one_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay()

    for quarter in range(13):
        display.show([_view()], elapsed_s=quarter / 4, planned_s=15)

    assert [line.split(" s ")[0] for line in capsys.readouterr().out.splitlines()] == ["  1/15", "  2/15", "  3/15"]
