"""Decides from which priority level of a queue the next request is taken, according to the weight of each level.

Source: ``WeightedRoundRobinMultiplexer`` of Hadoop's fair call queue.
"""

from collections.abc import Sequence


class WeightedRoundRobinMultiplexer:
    """Gives turns to the levels in cycles: ``weights[0]`` turns to level 0, then ``weights[1]`` to level 1, and so on.

    Raises:
        ValueError: If there is no level, or a weight is below 1. Hadoop would serve that level for ever.
    """

    __slots__ = ("_current", "_left", "_weights")

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = tuple(weights)
        if min(self._weights, default=0) < 1:
            raise ValueError(f"there must be a level, and weights must be at least 1: {self._weights}")
        self._current = 0
        self._left = self._weights[0]

    def next(self) -> int:
        """Return the priority level from which the next request is taken. Each call advances the cycle by one step."""
        current = self._current
        self._left -= 1
        if not self._left:
            self._current = (current + 1) % len(self._weights)
            self._left = self._weights[self._current]
        return current
