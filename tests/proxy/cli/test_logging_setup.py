"""Tests that each record is one line in the log, as text and as JSON, whatever the record contains."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import Log, LogFormat
from kafka_quota_proxy.proxy.cli.logging_setup import JsonFormatter, TextFormatter, configure_logging

TEXT, JSON = TextFormatter(), JsonFormatter()


def record(message: object, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {
            "name": "kafka_quota_proxy.proxy.server.server",
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "created": 1767225600.25,
        }
    )
    made.msg, made.args = message, args
    vars(made).update(extra)
    return made


@pytest.fixture(autouse=True)
def root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:], root.level, logging.raiseExceptions = handlers, level, raises


def test_json_is_one_object_with_the_fields_of_extra() -> None:
    line = JSON.format(record("no %s", "broker", user="alice", delay_ms=3, time="never", level="none"))

    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "server.server",
        "message": "no broker",
        "user": "alice",
        "delay_ms": 3,
    }


def test_an_exception_is_a_string_in_json_and_indented_in_text() -> None:
    try:
        int("broken")
    except ValueError:
        failed = record("it failed", exc_info=sys.exc_info())

    assert json.loads(JSON.format(failed))["exception"].endswith(
        "ValueError: invalid literal for int() with base 10: 'broken'"
    )
    first, *others = TEXT.format(failed).splitlines()
    assert first.endswith("it failed")
    assert others[-1] == "  ValueError: invalid literal for int() with base 10: 'broken'"
    assert all(line.startswith("  ") for line in others)


@given(st.text())
def test_a_message_is_one_line_and_unchanged_in_json(message: str) -> None:
    assert "\n" not in TEXT.format(record("%s", message))
    assert json.loads(JSON.format(record("%s", message)))["message"] == message


@pytest.mark.parametrize("formatter", [TEXT, JSON])
def test_wrong_arguments_still_give_a_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record("%d files", "no"))

    assert "server.server" in line
    assert "'%d files' ('no',) (TypeError while formatting)" in line


def test_the_log_goes_to_stderr_from_its_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Log())
    configure_logging(Log(format=LogFormat.JSON, level="warning"))

    logging.getLogger("proxy.test").info("a detail")
    logging.getLogger("proxy.test").warning("a warning", extra={"client_id": "etl"})

    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["message"] for line in err.splitlines()] == ["a warning"]


def test_a_closed_stderr_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    configure_logging(Log())

    logging.getLogger("proxy.test").warning("unread")
