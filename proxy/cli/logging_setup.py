"""Sets up logging to stderr, as text for people or as JSON lines for machines.

    2026-01-01T12:00:00.000Z WARNING server.server cannot reach upstream ...
    {"time": "2026-01-01T12:00:00.000Z", "level": "warning", "logger": "server.server", "message": "..."}

Times are UTC. Line feeds in messages are escaped, so that text from clients (such as a client-id) cannot forge a
record.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from kafka_quota_proxy.config.model import Log, LogFormat

# The attributes that every record has. A record has its other attributes from ``extra``.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FIELDS: Final = frozenset({"time", "level", "logger", "message", "exception"})


def configure_logging(log: Log) -> None:
    """Make the root logger write to stderr, with the format and level of ``log``. May be called again."""
    handler = _StderrHandler()
    handler.setFormatter(JsonFormatter() if log.format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    for old in [known for known in root.handlers if isinstance(known, _StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(log.level.upper())
    # A full disk or a closed pipe behind stderr must not become tracebacks in the middle of the data path.
    logging.raiseExceptions = False


def announce(log: Log, message: str) -> None:
    """Write a message to stdout at any level, since scripts wait for it. In JSON it has the fields of a record."""
    if log.format is LogFormat.JSON:
        record = logging.makeLogRecord({"name": "server.server", "levelname": "INFO", "msg": message})
        message = JsonFormatter().format(record)
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


class TextFormatter(logging.Formatter):
    """Formats a record as time, level, logger and message on one line. An exception follows on indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        line = f"{_time(record)} {record.levelname} {_logger(record)} {_one_line(_message(record))}"
        exception = _exception(record)
        return f"{line}\n  {exception.replace(chr(10), chr(10) + '  ')}" if exception else line


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line, with any exception and with the fields passed as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": _logger(record),
            "message": _message(record),
        }
        exception = _exception(record)
        if exception:
            fields["exception"] = exception
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD | _FIELDS}
        return json.dumps(fields, default=str)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """The handler that ``configure_logging`` installs. Its class lets the next call find and replace it."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1_000:03d}Z"


def _logger(record: logging.LogRecord) -> str:
    return record.name.removeprefix("kafka_quota_proxy.proxy.")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - wrong arguments are a bug, but the line is written
        return f"{record.msg!r} {record.args!r} ({type(error).__name__} while formatting)"


def _exception(record: logging.LogRecord) -> str:
    if record.exc_info:
        return logging.Formatter().formatException(record.exc_info)
    return record.exc_text or ""


def _one_line(message: str) -> str:
    if "\n" in message or "\r" in message:
        return message.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return message
