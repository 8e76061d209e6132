"""Turns of the levels, by weight (``WeightedRoundRobinMultiplexer`` in Hadoop)."""

from collections.abc import Sequence


def default_weights(levels: int) -> tuple[int, ...]:
    """Return 2^(n-1), ..., 2, 1: each level has twice the turns of the one below it."""
    return tuple(2 ** (levels - 1 - level) for level in range(levels))


class WeightedRoundRobinMultiplexer:
    """Turns in cycles: ``weights[0]`` for level 0, then ``weights[1]`` for level 1, and so on. None: Hadoop's.

    Raises:
        ValueError: no level, not as many weights as levels, or a weight below 1. Hadoop accepts a weight of 0, and then
            its pointer never leaves that level.
    """

    __slots__ = ("_current", "_left", "weights")

    def __init__(self, levels: int, weights: Sequence[int] | None = None) -> None:
        if levels < 1:
            raise ValueError(f"there must be a level, not {levels}")
        self.weights = default_weights(levels) if weights is None else tuple(weights)
        if len(self.weights) != levels:
            raise ValueError(f"{levels} levels need {levels} weights, not {len(self.weights)}")
        if min(self.weights) < 1:
            raise ValueError(f"weights must be at least 1: {self.weights}")
        self._current = 0
        self._left = self.weights[0]

    def next(self) -> int:
        """Return the level whose turn it is, and go on."""
        current = self._current
        self._left -= 1
        if not self._left:
            self._current = (current + 1) % len(self.weights)
            self._left = self.weights[self._current]
        return current
