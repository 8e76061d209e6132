"""Writes a frame field by field, in the old encoding or in the flexible one (KIP-482)."""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.api import is_flexible, response_header_version
from kafka_quota_proxy.protocol.primitives import Buffer, write_string, write_uvarint

NO_TAGS: Final = b"\0"
NULL_UUID: Final = bytes(16)
NULL_ARRAY: Final = -1
_INT8: Final = Struct(">b").pack
_INT16: Final = Struct(">h").pack
_INT32: Final = Struct(">i").pack
_FLOAT64: Final = Struct(">d").pack
_REQUEST_HEAD: Final = Struct(">hhi").pack
_NULL_STRING: Final = {False: b"\xff\xff", True: b"\0"}


class FieldWriter:
    """Builds a frame from its fields, which are written one after another."""

    __slots__ = ("_is_flexible", "_parts")

    def __init__(self, *, is_flexible: bool) -> None:
        self._is_flexible = is_flexible
        self._parts: list[Buffer] = []

    def raw(self, *data: Buffer) -> None:
        """Write bytes as they are."""
        self._parts += data

    def boolean(self, value: bool) -> None:
        """Write a boolean as one byte."""
        self._parts.append(b"\1" if value else b"\0")

    def int8(self, value: int) -> None:
        """Write a signed byte."""
        self._parts.append(_INT8(value))

    def int16(self, value: int) -> None:
        """Write a signed integer of two bytes."""
        self._parts.append(_INT16(value))

    def int32(self, value: int) -> None:
        """Write a signed integer of four bytes."""
        self._parts.append(_INT32(value))

    def float64(self, value: float) -> None:
        """Write an IEEE 754 double."""
        self._parts.append(_FLOAT64(value))

    def string(self, value: bytes | None) -> None:
        """Write a string from its UTF-8 bytes, or a null string for None."""
        is_flexible = self._is_flexible
        self._parts.append(_NULL_STRING[is_flexible] if value is None else write_string(value, is_compact=is_flexible))

    def count(self, count: int) -> None:
        """Write the number of elements of an array. If ``count`` is ``NULL_ARRAY``, write a null array."""
        self._parts.append(written_count(count, is_flexible=self._is_flexible))

    def no_tags(self) -> None:
        """Write an empty section of tags, which ends a structure. In the old encoding nothing is written."""
        if self._is_flexible:
            self._parts.append(NO_TAGS)

    def frame(self) -> bytes:
        """Return the whole frame: its size, then all fields written so far."""
        return framed(*self._parts)


def request_writer(api_key: int, api_version: int, correlation_id: int, client_id: bytes | None) -> FieldWriter:
    """Write the header of a request, and return a ``FieldWriter`` with which the caller writes the body."""
    writer = FieldWriter(is_flexible=is_flexible(api_key, api_version))
    name = _NULL_STRING[False] if client_id is None else write_string(client_id, is_compact=False)
    writer.raw(_REQUEST_HEAD(api_key, api_version, correlation_id), name)
    writer.no_tags()
    return writer


def response_writer(correlation_id: int, api_key: int, api_version: int) -> FieldWriter:
    """Write the header of a response, and return a ``FieldWriter`` with which the caller writes the body."""
    writer = FieldWriter(is_flexible=is_flexible(api_key, api_version))
    writer.int32(correlation_id)
    if response_header_version(api_key, api_version):
        writer.raw(NO_TAGS)
    return writer


def written_count(count: int, *, is_flexible: bool) -> bytes:
    """Encode the number of elements of an array. If ``count`` is ``NULL_ARRAY``, encode a null array."""
    return write_uvarint(count + 1) if is_flexible else _INT32(count)


def framed(*parts: Buffer) -> bytes:
    """Return a whole frame, which consists of its size field and the given parts."""
    return b"".join([_INT32(sum(map(len, parts))), *parts])
