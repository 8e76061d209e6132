"""Follows the records of a TLS stream, to know which are complete."""

from typing import Final

_HEADER_BYTES: Final = 5  # type, version, and the length of what follows, in two bytes (RFC 8446, 5.1)
_MOST_BYTES: Final = 16 * 1024 + 2_048  # a longer record is an error in every version of TLS


class RecordBounds:
    """Follows the records of one direction of a TLS connection.

    OpenSSL raises an exception for a record that is not complete, which takes as long as the decryption of some KiB. So
    it is only asked for records that are.

    Attributes:
        open_bytes: How many of the last bytes belong to a record that is not complete.
    """

    __slots__ = ("_header", "_left", "open_bytes")

    def __init__(self) -> None:
        self._header = b""  # the beginning of a header that is not complete
        self._left = 0  # the bytes that the last record still needs
        self.open_bytes = 0

    def add(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the stream."""
        size = len(data)
        at = self._left
        if self._header:
            missing = _HEADER_BYTES - len(self._header)
            header = self._header + bytes(data[:missing])
            if len(header) < _HEADER_BYTES:
                self._header = header
                self.open_bytes += size
                return
            self._header = b""
            at = missing + _length(header, 0)
        elif at > size:
            self._left = at - size
            self.open_bytes += size
            return
        begun = -self.open_bytes
        while at <= size:
            begun = at
            if size - at < _HEADER_BYTES:
                self._header = bytes(data[at:])
                break
            at += _HEADER_BYTES + _length(data, at)
        self._left = max(at - size, 0)
        # OpenSSL reports a record that is too long when it sees the header.
        self.open_bytes = size - begun if self._left <= _MOST_BYTES else 0


def _length(data: bytes | memoryview, at: int) -> int:
    return int(data[at + 3]) << 8 | int(data[at + 4])
