"""A frame that arrives in pieces, from a client or a broker: keeps the pieces until parsing is worth another try.

A try with too few bytes is wasted. While a frame is small, each piece is a reason to try. Beyond ``SMALL_BYTES`` the
next try waits for the rest of the frame, or for as many bytes again as have arrived. All tries together then read and
join a few times the frame's bytes, however small the pieces are.
"""

from typing import Final

# Nearly all heads are shorter, and are passed on as soon as they are complete.
SMALL_BYTES: Final = 4_096
_TINY_BYTES: Final = 1_024
_SIZE_BYTES: Final = 4


def bytes_to_wait_for(front: bytes, *, most_bytes: int | None = None) -> int:
    """Return how many more bytes to wait for before the next try to parse a frame, at least one.

    ``front`` has the frame's bytes so far. Above ``most_bytes`` a try rejects the frame; None: only a whole frame is of
    use.
    """
    arrived = len(front)
    if arrived < SMALL_BYTES:
        return 1
    size_bytes = int.from_bytes(front[:_SIZE_BYTES], signed=True)
    left = _SIZE_BYTES + size_bytes - arrived
    return max(1, left if most_bytes is None else min(left, arrived, most_bytes + 1 - arrived))


class PartialFrame:
    """The pieces of a frame so far; ``missing_bytes`` is 0 or below once it is whole."""

    __slots__ = ("_pieces", "missing_bytes")

    def __init__(self, front: bytes, missing_bytes: int) -> None:
        self._pieces: list[bytes | bytearray] = [front]
        self.missing_bytes = missing_bytes

    def __len__(self) -> int:
        """Return how many bytes have arrived."""
        return sum(map(len, self._pieces))

    def add(self, data: bytes) -> bytes:
        """Keep a piece; return all pieces joined once no bytes are missing, and ``b""`` before."""
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
