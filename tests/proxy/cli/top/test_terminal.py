"""Tests of ``proxy.cli.top.terminal``."""

import io
import os
import pty
import sys
import termios
from functools import partial
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.cli.top.terminal import (
    Column,
    Keys,
    Line,
    Screen,
    Text,
    cells_of,
    codes,
    cut,
    drawn,
    split_keys,
    table,
)


def test_cells_of_wide_and_combining_characters_are_counted() -> None:
    assert [cells_of(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]
    assert [cut("日本語", width) for width in (0, 1, 2, 3, 5, 6)] == ["", "…", "…", "日…", "日本…", "日本語"]


@pytest.mark.parametrize("width", [0, 5, 17, 80])
def test_columns_that_grow_share_what_is_left(width: int) -> None:
    columns = [Column("name", 2, grows=True), Column("rate", 4, is_number=True), Column("rule", 1, grows=True)]
    rows = [[Text("日本語" * 20), Text("1"), Text("r" * 90)], [Text("a"), Text("12345"), Text("b")]]

    lines = [drawn(line, width=width, codes={}) for line in table(columns, rows, width=width)]

    assert {cells_of(line) for line in lines} == {width}
    if width == 80:
        assert lines[2] == f"{'a':<49} 123… {'b':<25}"


def test_the_screen_is_drawn_when_it_changes_and_the_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    def red(text: str, width: int, height: int) -> list[Line]:
        assert (width, height) == (4, 2)
        return [(Text(text, "red"),)]

    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    for name, value in (("COLUMNS", "4"), ("LINES", "2"), ("NO_COLOR", "")):
        monkeypatch.setenv(name, value)
    with Screen() as screen:
        for text in ("one", "one", "two"):
            screen.show(partial(red, text))
        screen.show(lambda width, height: [(Text("x" * width),)] * (height + 1))

    assert out.getvalue() == (
        "\x1b[?1049h\x1b[?25l"
        "\x1b[H\x1b[K\x1b[31mone\x1b[0m\n\x1b[J"
        "\x1b[H\x1b[K\x1b[31mtwo\x1b[0m\n\x1b[J"
        "\x1b[H\x1b[Kxxxx\n\x1b[Kxxxx"
        "\x1b[?25h\x1b[?1049l"
    )
    monkeypatch.setenv("NO_COLOR", "1")
    assert drawn([Text("a", "bold red")], width=9, codes=codes(is_terminal=True)) == "\x1b[1ma\x1b[0m"


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("s", ["s"]),
        ("\x1b[A\x1bOB\x1b[5~\x1b[6~", ["up", "down", "page up", "page down"]),
        ("\x1b", ["esc"]),
        ("\r\n\x7f\x08 ", ["enter", "enter", "backspace", "backspace", " "]),
        ("/ä\x1b[1;5Cq", ["/", "ä", "q"]),
        ("\x01\x1b[", []),
    ],
)
def test_keys_have_names(sent: str, keys: list[str]) -> None:
    assert split_keys(sent) == keys


def test_keys_are_read_without_a_line_end_and_the_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = pty.openpty()
    try:
        with open(inner, closefd=False) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            before = termios.tcgetattr(inner)
            with Keys() as keys:
                assert keys.read(0.01) == []
                os.write(outer, b"p\x1b[B")
                assert keys.read(5) == ["p", "down"]
                assert not termios.tcgetattr(inner)[3] & termios.ECHO
            assert termios.tcgetattr(inner) == before
    finally:
        os.close(outer)
        os.close(inner)


def test_without_a_terminal_there_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with Keys() as keys:
            assert keys.read(0.01) == []
