"""Numbered records of a kilobyte, and how they are read: each client's consumer takes the same notes.

The key is the number in decimal. The value is the number as int64, bytes that count up from it, and the CRC-32 of both.
``SoakClient.java`` and ``soak_client.js`` use the same bytes.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

VALUE_BYTES: Final = 1_000
_FILLER_BYTES: Final = VALUE_BYTES - 8 - 4
_COUNTING: Final = bytes(range(256)) * 5


class Jump(NamedTuple):
    """At ``offset`` there is ``number``, although ``last`` + 1 was next."""

    offset: int
    last: int
    number: int


class WrongRecordError(Exception):
    """The bytes of a record are not those that were sent."""


def key(number: int) -> bytes:
    return b"%d" % number


def value(number: int) -> bytes:
    start = number & 255
    head = struct.pack(">q", number) + _COUNTING[start : start + _FILLER_BYTES]
    return head + struct.pack(">I", zlib.crc32(head))


def number_of(got_key: bytes | None, got_value: bytes | None) -> int:
    """Return a record's number. Raises WrongRecordError if any byte is wrong."""
    if got_key is None or got_value is None or len(got_value) != VALUE_BYTES:
        raise WrongRecordError(f"key {got_key!r} with a value of {got_value and len(got_value)} bytes")
    (number,) = struct.unpack_from(">q", got_value)
    if not 0 <= number < 2**62 or got_key != key(number) or got_value != value(number):
        raise WrongRecordError(f"key {got_key!r} with the value of another record")
    return int(number)


class Notes:
    """What a consumer of one partition saw.

    Attributes:
        read: The records at new offsets.
        again: The records at offsets that were read before.
        jumps: The places where numbers do not count up by one.
        faults: Gaps between offsets, and wrong bytes.
    """

    def __init__(self) -> None:
        self.next_offset = 0
        self.read = 0
        self.again = 0
        self.jumps: list[Jump] = []
        self.faults: list[str] = []
        self._last = -1

    def take(self, offset: int, got_key: bytes | None, got_value: bytes | None) -> bool:
        """Note a record, and return whether its offset is new."""
        if offset < self.next_offset:
            self.again += 1
            return False
        if offset > self.next_offset:
            self.faults.append(f"offset {offset} follows offset {self.next_offset - 1}")
        self.next_offset = offset + 1
        self.read += 1
        try:
            number = number_of(got_key, got_value)
        except WrongRecordError as error:
            self.faults.append(f"offset {offset}: {error}")
            return True
        if number != self._last + 1:
            self.jumps.append(Jump(offset, self._last, number))
        self._last = number
        return True
