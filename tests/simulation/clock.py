"""The clocks of the simulated world. Only the event loop moves them."""

from typing import Final

_NS_PER_MS: Final = 1_000_000
# 2026-01-01T00:00:00Z. Any fixed date would do.
_WALL_START_NS: Final = 1_767_225_600_000_000_000
# The monotonic clock of a machine that has been up for a day.
_START_NS: Final = 86_400_000_000_000


class Clock:
    """The monotonic clock (``now_ns``) and the Unix clock (``wall_ns``) of the proxy's machine, in ns."""

    __slots__ = ("_wall_offset_ns", "now_ns")

    def __init__(self) -> None:
        self.now_ns = _START_NS
        self._wall_offset_ns = _WALL_START_NS - _START_NS

    @property
    def now_ms(self) -> float:
        """The monotonic time in ms."""
        return self.now_ns / _NS_PER_MS

    @property
    def wall_ns(self) -> int:
        """The Unix time in ns."""
        return self.now_ns + self._wall_offset_ns

    def advance(self, until_ns: int) -> None:
        """Move both clocks to the monotonic time ``until_ns``, never back."""
        self.now_ns = max(self.now_ns, until_ns)

    def step_wall(self, by_ms: float) -> None:
        """Move the Unix clock alone, forward or back, as when an operator or NTP sets it."""
        self._wall_offset_ns += int(by_ms * _NS_PER_MS)
