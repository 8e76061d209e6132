"""Reads the input files of commands: capacities, owners, partition sizes and reassignment plans.

If a file is faulty, each function raises an InputError that lists all faults of the file. Each fault begins with the
place where it is, as FILE:LINE.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.units import parse_rate, parse_size
from kafka_quota_proxy.pipeline.chargeback import ALWAYS_UNTIL, Owner, overlaps
from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.rebalance import Partition
from kafka_quota_proxy.pipeline.record import BYTE_KINDS

_T = TypeVar("_T")
_SIZES: Final = ("topic", "partition", "leader", "replicas", "size_bytes", "incoming_byte_rate")
_PLAN: Final = '{"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}, …]}'


class _Line(NamedTuple):
    """A line of a CSV file: where it is, as FILE:LINE, and its values by column."""

    where: str
    values: dict[str, str]


class _Reader:
    """Parses the values of an input file, and collects messages about invalid values to report them all at once."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def value(self, line: _Line, column: str, read: Callable[[str], _T]) -> _T | None:
        """Parse the value in a column with ``read``. If the value is invalid, add a fault and return None."""
        try:
            return read(line.values[column])
        except (ValueError, UnitError) as error:
            self.faults.append(f"{line.where}: {column}: {error}")
            return None

    def end(self) -> None:
        """Raise an InputError that lists all faults found in the file. Do nothing if there are none."""
        if self.faults:
            raise InputError(self.faults)


def capacities(path: str) -> dict[tuple[int, str], float]:
    """Read each broker's capacity from a CSV file. Return bytes per second, keyed by node id and kind."""
    reader = _Reader()
    found: dict[tuple[int, str], float] = {}
    lines: dict[int | None, str] = {}
    for line in _csv_lines(path, columns=("broker", *BYTE_KINDS)):
        broker = reader.value(line, "broker", _whole)
        if broker in lines:
            reader.faults.append(f"{line.where}: broker {broker} has a line already: {lines[broker]}")
        lines[broker] = line.where
        for kind in BYTE_KINDS:
            rate = reader.value(line, kind, parse_rate)
            if broker is not None and rate is not None:
                found[broker, kind] = rate
    reader.end()
    return found


def owners(path: str) -> list[Owner]:
    """Read owners.csv, whose lines say which team is billed for a user or client-id, from which day until which."""
    reader = _Reader()
    found: list[tuple[str, Owner]] = []
    for line in _csv_lines(path, columns=("user", "client_id", "owner"), optional=("from", "until")):
        from_ms, until_ms = (reader.value(line, column, _day_ms) for column in ("from", "until"))
        values = line.values
        if not values["owner"]:
            reader.faults.append(f"{line.where}: owner: is empty")
        if not (values["user"] or values["client_id"]):
            reader.faults.append(f"{line.where}: user: is empty, and client_id too; give one of them")
        if from_ms is not None and until_ms is not None:
            if 0 <= until_ms <= max(from_ms, 0):
                fault = "must be a later day than from; the line no longer applies on that day"
                reader.faults.append(f"{line.where}: until: {fault}")
            until_ms = ALWAYS_UNTIL if until_ms < 0 else until_ms
            names = (values["user"] or None, values["client_id"] or None)
            found.append((line.where, Owner(*names, values["owner"], max(from_ms, 0), until_ms)))
    reader.faults += overlaps(found)
    reader.end()
    return [owner for _, owner in found]


def reassignment_plan(path: str) -> dict[tuple[str, int], list[int]]:
    """Read a reassignment plan, in the JSON format of kafka-reassign-partitions.sh.

    Return the node ids of each partition's new replicas, keyed by topic and partition number.
    """
    try:
        return {
            (str(one["topic"]), int(one["partition"])): [int(node) for node in one["replicas"]]
            for one in json.loads(_text_of(path))["partitions"]
        }
    except json.JSONDecodeError as error:
        raise InputError([f"{path}:{error.lineno}: is not JSON: {error.msg}"]) from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError([f"{path}:1: is not a plan: {_PLAN}"]) from error


def partition_sizes(path: str) -> dict[tuple[str, int], Partition]:
    """Read the sizes and replicas of partitions from a CSV file, and return them keyed by topic and partition number.

    The column ``replicas`` contains node ids, with spaces between them.
    """
    reader = _Reader()
    found = {}
    for line in _csv_lines(path, columns=_SIZES):
        partition, leader = (reader.value(line, name, _whole) for name in ("partition", "leader"))
        size, incoming = (reader.value(line, name, parse_size) for name in ("size_bytes", "incoming_byte_rate"))
        replicas = reader.value(line, "replicas", lambda text: frozenset(map(_whole, text.split())))
        if replicas is not None and leader not in replicas:
            reader.faults.append(f"{line.where}: leader: {leader} is not one of the replicas")
        if None not in (partition, leader, size, incoming, replicas):
            found[line.values["topic"], partition] = Partition(leader, replicas, size, incoming)  # type: ignore[arg-type]
    reader.end()
    return found  # type: ignore[return-value]


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise InputError([f"{path}: byte {error.object[error.start]:#04x} is not UTF-8"]) from error


def _csv_lines(path: str, *, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[_Line]:
    """Yield the lines of a CSV file after its header. Skips empty lines and lines that begin with #."""
    reader = csv.reader(_text_of(path).splitlines(), skipinitialspace=True)
    rows = [(reader.line_num, [value.strip() for value in row]) for row in reader]
    rows = [(number, row) for number, row in rows if any(row) and not row[0].startswith("#")]
    if not rows:
        raise InputError([f"{path}:1: is empty; its first line names the columns: {', '.join((*columns, *optional))}"])
    (first, header), *rest = rows
    faults = [
        f"{path}:{first}: {name}: is missing; the columns are {', '.join(columns)}"
        for name in columns
        if name not in header
    ]
    faults += [f"{path}:{first}: {name}: is an unknown column" for name in header if name not in (*columns, *optional)]
    faults += [
        f"{path}:{number}: has {len(row)} values, the header has {len(header)} columns"
        for number, row in rest
        if len(row) != len(header)
    ]
    if faults:
        raise InputError(faults)
    for number, row in rest:
        yield _Line(f"{path}:{number}", dict.fromkeys(optional, "") | dict(zip(header, row, strict=True)))


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _day_ms(text: str) -> int:
    """Return the start of a day (UTC) in ms since the epoch, or -1 if ``text`` is empty."""
    if not text:
        return -1
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1_000)
    except ValueError:
        raise ValueError(f"{text!r} is not a day; write one such as 2026-10-01") from None
