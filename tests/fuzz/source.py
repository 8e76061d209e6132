"""Turns a fuzzer's bytes into decisions, and damages frames by them.

Each byte of the input is one decision, such as the next message, the place of a cut or the damaged field. So the fuzzer
reaches far more code than with random frames.
"""

import itertools
from collections.abc import Callable
from struct import pack
from typing import Final

MAX_FRAMES: Final = 64  # of an input
# Values for damaged lengths, counts and versions.
_INT32: Final = (-1, -2, 0, 1, 0x7F, 0xFF, 0x7FFF, 0x10000, 2**24, 2**31 - 1, -(2**31), 104_857_601)
_INT16: Final = (-1, -2, 0, 1, 2, 0x7F, 0x100, 0x7FFF, -0x8000)
_UVARINTS: Final = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\xff\x01",
    b"\x80\x80\x04",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 5,
)


class Source:
    """Reads decisions from the front of the fuzzer's bytes. After the last byte, each decision is 0."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def has_more(self) -> bool:
        """Return whether unread bytes are left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """Return the next byte."""
        at = self._at
        self._at = at + 1
        return self._data[at] if at < len(self._data) else 0

    def below(self, end: int) -> int:
        """Return a number from 0 to ``end - 1``, or 0 if ``end`` is 0."""
        if end <= 1:
            return 0
        if end <= 256:
            return self.byte() % end
        return (self.byte() << 8 | self.byte()) % end

    def take(self, size_bytes: int) -> bytes:
        """Return the next ``size_bytes`` bytes, or fewer if fewer are left."""
        taken = self._data[self._at : self._at + size_bytes]
        self._at += size_bytes
        return taken

    def rest(self) -> bytes:
        """Return all unread bytes."""
        return self.take(len(self._data))


def each_frame(play_one: Callable[[Source], None]) -> Callable[[Source], int]:
    """Return a target that plays one frame after the other, and returns how many."""

    def play(source: Source) -> int:
        frames = 0
        while source.has_more and frames < MAX_FRAMES:
            play_one(source)
            frames += 1
        return frames

    return play


def resized(frame: bytes | bytearray) -> bytes:
    """Return a frame with its size field corrected."""
    return pack(">i", max(len(frame) - 4, 0)) + frame[4:]


def damaged(frame: bytes, source: Source) -> bytes:
    """Return the frame with one to four errors. Its size field stays correct in most cases."""
    out = bytearray(frame)
    kind = 0
    for _ in range(1 + source.below(4)):
        kind = source.byte()
        at = source.below(len(out) + 1)
        match kind & 7:
            case 0:
                out[at : at + 1] = bytes([source.byte()])
            case 1:
                del out[at : at + 1 + source.below(16)]
            case 2:
                out[at:at] = source.take(1 + source.below(16))
            case 3:
                out[at : at + 4] = pack(">i", _INT32[source.below(len(_INT32))])
            case 4:
                out[at : at + 2] = pack(">h", _INT16[source.below(len(_INT16))])
            case 5:
                out[at : at + 1] = _UVARINTS[source.below(len(_UVARINTS))]
            case 6:
                del out[at:]
            case _:
                out[at:at] = out[at : at + 1 + source.below(64)]
    return bytes(out) if kind & 0x80 else resized(out)


def cut(data: bytes, source: Source) -> list[bytes]:
    """Cut the bytes into pieces. No piece is empty."""
    size = len(data)
    style = max(source.below(8) - 3, 0)
    if style == 0 or size < 2:
        return [data] if data else []
    if style == 1 or size > 2_048:
        at = 1 + source.below(size - 1)
        return [data[:at], data[at:]]
    if style == 2:
        step = 1 + size // 8
        return [data[at : at + step] for at in range(0, size, step)]
    if style == 3:
        head = [data[at : at + 1] for at in range(min(size, 24))]
        return [*head, data[24:]] if size > 24 else head
    edges = sorted({0, size, *(source.below(size) for _ in range(3))})
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]
