"""Reads what Kafka's JmxTool prints, as samples of Kafka's client metrics. Does no I/O.

With ``--report-format csv`` (or ``tsv``) each reading is a block of lines: ``time,"1767225600000"``, and then
``OBJECT_NAME:ATTRIBUTE,"VALUE"`` for each attribute. With the default format a header names the attributes, and each
reading is a line of values. JmxTool does not escape the quotes and commas within a name. It looks for MBeans only when
it starts, so a file may contain the output of many runs.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from kafka_quota_proxy.pipeline.client_metrics import ClientMetric, of_mbean

_BLOCK_LINE: Final = re.compile(r'(?P<name>.*)(?:,"(?P<csv>[^"]*)"|\t(?P<tsv>[^\t]*))')
_HEADER: Final = '"time"'
_MOST_NAMES: Final = 1 << 16

_metric: Final = lru_cache(_MOST_NAMES)(of_mbean)


class Reading(NamedTuple):
    """The client metrics that one reading contains, at a Unix time in milliseconds."""

    at_ms: int
    values: list[tuple[ClientMetric, float]]


class FormatError(Exception):
    """Raised for a line that JmxTool does not write. The message begins with the number of the line."""


def readings(lines: Iterable[str]) -> Iterator[Reading]:
    """Yield each reading. A last line without a line end is incomplete and is left out. Raises FormatError."""
    columns: list[ClientMetric | None] = []
    at_ms: int | None = None
    values: list[tuple[ClientMetric, float]] = []
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            break
        text = line.rstrip("\r\n")
        if text.startswith(_HEADER):
            columns = [_metric(name) for name in text[1:-1].split('","')[1:]]
        elif text[:1].isdigit() and columns:
            yield _row(number, text.split(","), columns)
        elif found := _BLOCK_LINE.fullmatch(text):
            value = found["csv"] if found["csv"] is not None else found["tsv"]
            if found["name"] == "time":
                if at_ms is not None:
                    yield Reading(at_ms, values)
                at_ms, values = _time(number, value), []
            elif at_ms is None:
                raise FormatError(f"{number}: an attribute comes before the first time")
            elif (metric := _metric(found["name"])) is not None:
                values.append((metric, _number(number, value)))
        elif text.strip() and not text.startswith("Trying to connect"):
            raise FormatError(f"{number}: is no line of JmxTool")
    if at_ms is not None:
        yield Reading(at_ms, values)


def _row(number: int, cells: list[str], columns: list[ClientMetric | None]) -> Reading:
    if len(cells) != len(columns) + 1:
        raise FormatError(f"{number}: has {len(cells)} values, and the header {len(columns) + 1}")
    pairs = zip(columns, cells[1:], strict=True)
    values = [(metric, _number(number, cell)) for metric, cell in pairs if metric is not None]
    return Reading(_time(number, cells[0]), values)


def _time(number: int, text: str) -> int:
    if not re.fullmatch(r"\d{12,14}", text):
        raise FormatError(f"{number}: the time {text!r} is not in milliseconds; run JmxTool without --date-format")
    return int(text)


def _number(number: int, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise FormatError(f"{number}: {text!r} is not a number") from None
