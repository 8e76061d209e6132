"""Tests the lines that the demo prints."""

import pytest

from kafka_quota_proxy.proxy.cli.demo.display import Display


def test_progress_is_one_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display()

    for quarter in range(13):
        display.show(["producer", "consumer"], elapsed_s=quarter / 4, planned_s=18)

    assert capsys.readouterr().out.splitlines() == [f"  {second}/18 s  producer  |  consumer" for second in (1, 2, 3)]


def test_a_quiet_display_has_notes_on_standard_error_and_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(is_quiet=True)

    display.note("starting")
    display.show(["producer"], elapsed_s=2, planned_s=18)

    assert tuple(capsys.readouterr()) == ("", "starting\n")
