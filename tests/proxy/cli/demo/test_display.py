"""Tests the lines and the chart that the demo prints."""

import pytest

from kafka_quota_proxy.proxy.cli.demo.display import (
    BARS,
    ClientView,
    Display,
    Progress,
    chart,
    client_line,
    format_rate,
    sparkline,
)

MIB = 1024 * 1024


HISTORY = (40.0 * MIB,) * 9 + (10.0 * MIB,) * (BARS - 9)


def _progress(elapsed_s: float) -> Progress:
    return Progress(elapsed_s=elapsed_s, planned_s=18, free_s=3)


def _view(
    *, rate: float | None = 9.9 * MIB, is_limited: bool = True, history: tuple[float, ...] = HISTORY
) -> ClientView:
    return ClientView(
        name="producer",
        quota=10 * MIB,
        rate_now=1_023.9 * 1024,
        rate=rate,
        throttle_time_ms=12_345.6,
        is_limited=is_limited,
        history=history,
    )


def test_a_rate_has_the_unit_that_fits() -> None:
    rates = (0, 1_023, 1_024, 3 * 1024 * MIB)

    assert [format_rate(rate) for rate in rates] == ["0 B/s", "1023 B/s", "1.0 KiB/s", "3.0 GiB/s"]


def test_the_highest_rate_is_a_full_bar_and_only_silence_an_empty_one() -> None:
    rates = ((0, 50, 100), (0.1, 100), (0, 0), ())

    assert [sparkline(each) for each in rates] == [" ▄█", "▁█", "  ", ""]


def test_a_line_has_rate_quota_average_and_throttle_time_as_far_as_there_are_any() -> None:
    assert [client_line(view) for view in (_view(), _view(rate=None), _view(rate=None, is_limited=False))] == [
        "producer 1023.9 KiB/s of 10.0 MiB/s, average 9.9 MiB/s (99.0%), throttled 12.3 s",
        "producer 1023.9 KiB/s of 10.0 MiB/s, throttled 12.3 s",
        "producer 1023.9 KiB/s without a limit",
    ]


def test_the_chart_keeps_its_scale_and_shows_both_phases() -> None:
    begun = chart([_view(history=HISTORY[:10])], _progress(18 * 10 / BARS)).splitlines()
    ended = chart([_view()], _progress(18.2)).splitlines()

    assert ended == [
        "producer  " + "█" * 9 + "▂" * (BARS - 9) + "  █ 40.0 MiB/s",
        "          no limit  with the quota",
    ]
    assert (_progress(18.9).bar_s, _progress(27).bar_s) == (18 / BARS, 27 / BARS)
    assert begun[0] == "producer  " + "█" * 9 + "▂" + " " * (BARS - 10) + "  █ 40.0 MiB/s"
    assert max(map(len, begun + ended)) <= 80


def test_plain_progress_is_one_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display()

    for quarter in range(13):
        display.show([_view()], _progress(quarter / 4))

    assert [line.split(" s ")[0] for line in capsys.readouterr().out.splitlines()] == ["  1/18", "  2/18", "  3/18"]


def test_a_quiet_display_has_notes_on_standard_error_and_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(is_quiet=True)

    display.note("starting")
    display.show([_view()], _progress(2))
    display.end([_view()], _progress(18))

    assert tuple(capsys.readouterr()) == ("", "starting\n")
