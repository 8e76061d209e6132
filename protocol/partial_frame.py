"""Keeps the pieces of a frame that is arriving until it is worthwhile to try to parse it again.

Work is wasted if a frame is parsed before enough of its bytes have arrived. A frame that is still small is parsed with
each new piece. Beyond ``SMALL_BYTES`` the next try waits for the rest of the frame, or until the number of bytes has
doubled. So all tries together process only a few times the bytes of the frame, however small the pieces are.
"""

from typing import Final

# Nearly all headers are shorter, and are passed on as soon as they are complete.
SMALL_BYTES: Final = 4_096
_TINY_BYTES: Final = 1_024
_SIZE_BYTES: Final = 4


def bytes_to_wait_for(front: bytes, *, most_bytes: int | None = None) -> int:
    """Return how many more bytes to wait for before the next try to parse a frame, at least one.

    ``front`` has the bytes of the frame that have arrived. ``most_bytes`` is the number above which the parser gives up
    and rejects the frame. It is None if the parser needs the whole frame.
    """
    arrived = len(front)
    if arrived < SMALL_BYTES:
        return 1
    size_bytes = int.from_bytes(front[:_SIZE_BYTES], signed=True)
    left = _SIZE_BYTES + size_bytes - arrived
    return max(1, left if most_bytes is None else min(left, arrived, most_bytes + 1 - arrived))


class PartialFrame:
    """The pieces of a frame that have arrived. ``missing_bytes`` is 0 or below when no more pieces are needed."""

    __slots__ = ("_pieces", "missing_bytes")

    def __init__(self, front: bytes, missing_bytes: int) -> None:
        self._pieces: list[bytes | bytearray] = [front]
        self.missing_bytes = missing_bytes

    def __len__(self) -> int:
        """Return how many bytes have arrived."""
        return sum(map(len, self._pieces))

    def add(self, data: bytes) -> bytes:
        """Keep another piece. Returns all pieces as one if no bytes are missing any more, otherwise ``b""``."""
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
        """Return all pieces as one."""
        return b"".join(self._pieces)
