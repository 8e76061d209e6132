"""Reads files with the rules of early versions, which did not use SQLite yet. The rules are imported once.

The changes of a store were numbered, and the name of each file contains the number of a change::

    NUMBER.snapshot   all rules as they were after the change with this number
    NUMBER.journal    the changes after the one with this number, in their order

A line is ``CHECKSUM SPACE JSON NEWLINE``. The checksum is a CRC-32, in hexadecimal digits, over the JSON of this line
and of all lines before it in the file. The JSON of a line is one of these::

    {"kafka-quota-store":1,"file":"journal","after":100}                a journal begins
    {"kafka-quota-store":1,"file":"snapshot","after":100,"rules":2}     a snapshot begins
    {"n":101,"changes":[[ENTITY,RULE],[ENTITY,null]]}                   change 101, in a journal
    [ENTITY,RULE]                                                       one rule, in a snapshot

A RULE has limits and terms in one object: ``{"producer_byte_rate":5242880.0,"terms":{"expires":…}}``.

Changes that were never acknowledged are skipped: an unfinished last line of the last journal, and changes whose number
is above the NUMBER of the next journal.
"""

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import JsonFormError
from kafka_quota_proxy.proxy.client_quotas.formats.stored_rule import read_entity, read_rule
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change, apply
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule

_NAME: Final = re.compile(r"\d{20}\.(?:journal|snapshot)")
_CHECKSUM_BYTES: Final = 9  # eight digits and a space


class OldFormatError(Exception):
    """Raised if a quota file of an early proxy version is damaged, or if this version does not understand it."""


def old_files(directory: Path) -> list[Path]:
    """Return the quota files of early proxy versions (journals and snapshots) in a directory, in their order."""
    return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))


def read_old_files(directory: Path) -> dict[Entity, StoredRule]:
    """Return the rules in the journals and snapshots of a directory, as they were after the last acknowledged change.

    Raises:
        OldFormatError: A file is damaged or missing, or this version does not understand it.
    """
    files = old_files(directory)
    snapshots = [path for path in files if path.suffix == ".snapshot"]
    rules: dict[Entity, StoredRule] = {}
    number = 0
    if snapshots:
        number = int(snapshots[-1].stem)
        lines = _File(snapshots[-1], number)
        apply(rules, [lines.change(lines.next()) for _ in range(lines.header.get("rules", 0))])
    journals = [path for path in files if path.suffix == ".journal" and int(path.stem) >= number]
    for index, path in enumerate(journals):
        if int(path.stem) != number:
            raise OldFormatError(f"{path.name}: changes are missing between {number} and {int(path.stem)}")
        lines = _File(path, number)
        last = int(journals[index + 1].stem) if index + 1 < len(journals) else None
        while number != last and (last is not None or not lines.is_at_end()):
            number += 1
            apply(rules, lines.changes(lines.next(), number))
    return rules


class _Line(NamedTuple):
    content: Any
    checksum: int


class _File:
    """Reads one journal or snapshot, line by line.

    ``header`` is the content of the file's first line. ``after`` is the number in the file's name.
    """

    def __init__(self, path: Path, after: int) -> None:
        self._name = path.name
        self._data = path.read_bytes()
        self._at = self._checksum = 0
        self.header = self.next()
        expected = {"kafka-quota-store": 1, "file": path.suffix[1:], "after": after}
        if not isinstance(self.header, dict) or not expected.items() <= self.header.items():
            raise self.fault(f"the first line is {self.header!r}, where {expected} is expected")

    def next(self) -> Any:  # noqa: ANN401 - it is JSON
        end = self._data.find(b"\n", self._at)
        found = None if end < 0 else self._read(self._data[self._at : end])
        if found is None:
            raise self.fault("a line is damaged or missing")
        self._at, self._checksum = end + 1, found.checksum
        return found.content

    def is_at_end(self) -> bool:
        """Return whether all complete lines of the file have been read."""
        rest = self._data[self._at :]
        # A last line with a valid checksum is not unfinished. Only its newline is damaged, and its change was perhaps
        # acknowledged.
        return b"\n" not in rest and self._read(rest[:-1]) is None

    def changes(self, line: object, number: int) -> list[Change]:
        pairs = line.get("changes") if isinstance(line, dict) and line.get("n") == number else None
        if not isinstance(pairs, list):
            raise self.fault(f"a line is not change {number}")
        return [self.change(pair) for pair in pairs]

    def change(self, pair: object) -> Change:
        if not isinstance(pair, list) or len(pair) != 2:
            raise self.fault("a line is not an entity and its rule")
        try:
            entity = read_entity(pair[0])
            if pair[1] is None:
                return Change(entity, None)
            limits = dict(pair[1])
            return Change(entity, read_rule(entity, limits, limits.pop("terms", {})))
        except (JsonFormError, TypeError, ValueError) as error:
            raise self.fault(str(error)) from None

    def fault(self, reason: str) -> OldFormatError:
        return OldFormatError(f"{self._name}, byte {self._at}: {reason}")

    def _read(self, line: bytes) -> _Line | None:
        text = line[_CHECKSUM_BYTES:]
        checksum = crc32(text, self._checksum)
        if line[:_CHECKSUM_BYTES] != b"%08x " % checksum:
            return None
        try:
            return _Line(json.loads(text), checksum)
        except (ValueError, RecursionError):
            raise self.fault("a line is not JSON") from None
