"""Numbered records, for tests that each record arrives once, in order and byte for byte.

The key is the number in decimal. The value is the number as int64, filler that depends on the number, and the CRC-32 of
both. ``java/Records.java`` uses the same bytes.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

VALUE_BYTES: Final = 100
_FILLER_BYTES: Final = VALUE_BYTES - 8 - 4
_COUNTING: Final = bytes(range(256)) * 2


def key(number: int) -> bytes:
    return b"%d" % number


def value(number: int) -> bytes:
    """Return the value of a record, which has ``VALUE_BYTES`` bytes."""
    start = number & 255
    head = struct.pack(">q", number) + _COUNTING[start : start + _FILLER_BYTES]
    return head + struct.pack(">I", zlib.crc32(head))


class Checker:
    """Checks that 0, 1, 2, … arrive in order with the right bytes."""

    def __init__(self) -> None:
        self.seen = 0

    def take(self, got_key: bytes | None, got_value: bytes | None) -> None:
        """Check one record. Raises AssertionError if it is not the next one, or if its bytes are wrong."""
        if got_key != key(self.seen) or got_value != value(self.seen):
            raise AssertionError(f"expected record {self.seen}, got key {got_key!r} with value {got_value!r}")
        self.seen += 1
