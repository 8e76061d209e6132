"""Keeps the pieces of an arriving frame until it is worth parsing the frame again.

A small frame is parsed after each piece. Beyond ``SMALL_BYTES``, the next attempt waits until the frame is complete, or
until twice as many bytes have arrived. So even if the pieces are tiny, only a few times the size of the frame is parsed
in all.
"""

from typing import Final

# Nearly all headers are shorter, so they are forwarded as soon as they are complete.
SMALL_BYTES: Final = 4_096
_TINY_BYTES: Final = 1_024
_SIZE_BYTES: Final = 4


def bytes_to_wait_for(front: bytes, *, most_bytes: int | None = None) -> int:
    """Return how many more bytes to wait for, at least one, before the next attempt to parse a frame.

    ``front`` contains the bytes that have arrived. If ``most_bytes`` is None, the parser needs the whole frame.
    Otherwise it needs only a front part, and rejects the frame if this part is longer than ``most_bytes``.
    """
    arrived = len(front)
    if arrived < SMALL_BYTES:
        return 1
    size_bytes = int.from_bytes(front[:_SIZE_BYTES], signed=True)
    left = _SIZE_BYTES + size_bytes - arrived
    return max(1, left if most_bytes is None else min(left, arrived, most_bytes + 1 - arrived))


class PartialFrame:
    """Collects the pieces of an arriving frame. Once ``missing_bytes`` is 0 or below, no more pieces are needed."""

    __slots__ = ("_pieces", "missing_bytes")

    def __init__(self, front: bytes, missing_bytes: int) -> None:
        self._pieces: list[bytes | bytearray] = [front]
        self.missing_bytes = missing_bytes

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def __bool__(self) -> bool:
        return any(self._pieces)

    def add(self, data: bytes) -> bytes:
        """Keep another piece. Return all pieces joined if no bytes are missing any more, otherwise ``b""``."""
        last = self._pieces[-1]
        if len(data) >= _TINY_BYTES:
            self._pieces.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._pieces.append(bytearray(data))  # one object per tiny piece would take many times its bytes
        self.missing_bytes -= len(data)
        return b"" if self.missing_bytes > 0 else self.join()

    def join(self) -> bytes:
        """Return all pieces of the frame that have arrived, joined."""
        return b"".join(self._pieces)
