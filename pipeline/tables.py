"""Reads small input tables: capacities, owners, sizes. CSV or YAML, every fault with FILE:LINE."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kafka_quota_proxy.config.document import parse
from kafka_quota_proxy.config.errors import ConfigError, UnitError
from kafka_quota_proxy.config.units import parse_rate
from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.record import BYTE_KINDS


class Line(NamedTuple):
    """A line of a table: its place as FILE:LINE, and its values by column."""

    where: str
    values: dict[str, str]


class Reader:
    """Collects the faults of a file, so that all are reported at once."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def value(self, line: Line, column: str, read: Callable[[str], object]) -> object | None:
        """Return a value as ``read`` parses it; None, with a fault, if it is wrong."""
        try:
            return read(line.values[column])
        except (ValueError, UnitError) as error:
            self.faults.append(f"{line.where}: {column}: {error}")
            return None

    def end(self) -> None:
        """Report the faults.

        Raises:
            InputError: something was.
        """
        if self.faults:
            raise InputError(self.faults)


def text_of(path: str) -> str:
    """Return a file of UTF-8.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise InputError([f"{path}: byte {error.object[error.start]:#04x} is not UTF-8"]) from error


def csv_lines(path: str, *, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Line]:
    """Yield the lines of a CSV file with a header, values stripped; without empty lines and those that begin with #.

    Raises:
        InputError: a column is missing or unknown, or a line has more or fewer values than the header.
    """
    reader = csv.reader(text_of(path).splitlines(), skipinitialspace=True)
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
    faults += [f"{path}:{first}: {name}: is no column here" for name in header if name not in (*columns, *optional)]
    faults += [
        f"{path}:{number}: has {len(row)} values, the header has {len(header)} columns"
        for number, row in rest
        if len(row) != len(header)
    ]
    if faults:
        raise InputError(faults)
    for number, row in rest:
        yield Line(f"{path}:{number}", dict.fromkeys(optional, "") | dict(zip(header, row, strict=True)))


def yaml_lines(path: str, *, columns: Sequence[str]) -> Iterator[Line]:
    """Yield the elements of a YAML list of mappings.

    Raises:
        InputError: it is something else, or has other keys.
    """
    try:
        document = parse(text_of(path), file=path)
    except ConfigError as error:
        raise InputError(str(error).splitlines()) from error
    faults = [str(fault) for fault in document.faults]
    if not isinstance(document.data, list):
        raise InputError([*faults, f"{path}:1: is no list; write elements such as - {{{': …, '.join(columns)}: …}}"])
    found = []
    for index, element in enumerate(document.data):
        where = f"{path}:{document.line((index,))}"
        if not isinstance(element, dict) or set(element) != set(columns):
            faults.append(f"{where}: has to have exactly the keys {', '.join(columns)}")
        else:
            found.append(Line(where, {name: document.text((index, name)).strip() for name in columns}))
    if faults:
        raise InputError(faults)
    yield from found


def whole(text: str) -> int:
    """Return a whole number of 0 or more.

    Raises:
        ValueError: it is none.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def capacities(path: str) -> dict[tuple[int, str], float]:
    """Return the capacity of each broker in bytes per second, by node id and kind.

    Raises:
        InputError: with every fault.
    """
    columns = ("broker", *BYTE_KINDS)
    is_yaml = path.endswith((".yaml", ".yml"))
    reader = Reader()
    found: dict[tuple[int, str], float] = {}
    seen: dict[object, str] = {}
    for line in yaml_lines(path, columns=columns) if is_yaml else csv_lines(path, columns=columns):
        broker = reader.value(line, "broker", whole)
        if broker in seen:
            reader.faults.append(f"{line.where}: broker {broker} has a line already: {seen[broker]}")
        seen[broker] = line.where
        for kind in BYTE_KINDS:
            rate = reader.value(line, kind, parse_rate)
            if isinstance(broker, int) and isinstance(rate, float):
                found[broker, kind] = rate
    reader.end()
    return found
