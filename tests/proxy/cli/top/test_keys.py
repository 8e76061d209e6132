"""Tests how keys are read from a terminal."""

import os
import pty
import sys
import termios
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.cli.top.keys import Keys, split_keys


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
