"""Decides from which priority level of a queue the next request is taken, according to the weight of each level.

Source: ``WeightedRoundRobinMultiplexer`` of Hadoop's fair call queue.
"""

from collections.abc import Sequence


def default_weights(levels: int) -> tuple[int, ...]:
    """Return the weights 2^(n-1), ..., 2, 1, which give each level twice as many turns as the level after it."""
    return tuple(2 ** (levels - 1 - level) for level in range(levels))


class WeightedRoundRobinMultiplexer:
    """Gives turns to the levels in cycles: ``weights[0]`` turns to level 0, then ``weights[1]`` to level 1, and so on.

    Raises:
        ValueError: If there is no level, there are not as many weights as levels, or a weight is below 1.
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
        """Return the priority level from which the next request is taken. Each call advances the cycle by one step."""
        current = self._current
        self._left -= 1
        if not self._left:
            self._current = (current + 1) % len(self.weights)
            self._left = self.weights[self._current]
        return current
