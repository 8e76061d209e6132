"""A frame that comes in pieces, in either direction: it is kept until enough of it is there to look at it again.

A look that finds too little is worth nothing. What is small is looked at with each piece all the same; beyond that the
next look waits for the rest of the frame, or for as much again as there is. So however small the pieces are, a byte
costs as much in a long frame as in a short one: all looks together see, and join, a few times the frame.
"""

from typing import Final

# Nearly every head is shorter, and goes on as soon as it is there.
SMALL_BYTES: Final = 4_096
_TINY_BYTES: Final = 1_024
_SIZE_BYTES: Final = 4


def bytes_to_wait_for(front: bytes, *, most_bytes: int | None = None) -> int:
    """Return for how many bytes more to wait, one at least.

    Args:
        front: What has come of a frame, with its size; it does not do.
        most_bytes: How much of it may be kept before a look says that it is too long; None: less than the whole of it
            is of no use.
    """
    come = len(front)
    if come < SMALL_BYTES:
        return 1
    size_bytes = int.from_bytes(front[:_SIZE_BYTES], signed=True)
    left = _SIZE_BYTES + size_bytes - come
    return max(1, left if most_bytes is None else min(left, come, most_bytes + 1 - come))


class PartialFrame:
    """What has come of a frame, until there is enough.

    Attributes:
        missing_bytes: How much is still to come; below 1: nothing.
    """

    __slots__ = ("_pieces", "missing_bytes")

    def __init__(self, front: bytes, missing_bytes: int) -> None:
        self._pieces: list[bytes | bytearray] = [front]
        self.missing_bytes = missing_bytes

    def __len__(self) -> int:
        """Return how many bytes have come."""
        return sum(map(len, self._pieces))

    def add(self, data: bytes) -> bytes:
        """Keep what has come; return all of it, joined once, when nothing lacks, and nothing before."""
        last = self._pieces[-1]
        if len(data) >= _TINY_BYTES:
            self._pieces.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._pieces.append(bytearray(data))  # an object for each two bytes would take many times as much
        self.missing_bytes -= len(data)
        return b"" if self.missing_bytes > 0 else self.join()

    def join(self) -> bytes:
        """Return all that has come."""
        return b"".join(self._pieces)
