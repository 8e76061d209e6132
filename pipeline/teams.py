"""Adds up use, limits and waits by team, which is the owner of an entity. Does no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Bucket = tuple[str, str, str]


class Use(NamedTuple):
    """The use of an entity by its team. Entities with the same bucket share its limit.

    ``current`` is the limit in force and ``limit`` the suggested or proposed one, each with its bucket.
    """

    team: str
    kind: str
    amount: int
    current: tuple[Bucket, float] | None = None
    limit: tuple[Bucket, float] | None = None
    throttled_share: float = 0.0
    longest_delay_ms: float = 0


@dataclass(slots=True)
class Team:
    """The use of a team's entities of one kind, the sums of their limits, and the worst of their waits."""

    team: str
    kind: str
    entities: int = 0
    amount: int = 0
    throttled_share: float = 0.0
    longest_delay_ms: float = 0
    _current: dict[Bucket, float] = field(default_factory=dict)
    _limits: dict[Bucket, float] = field(default_factory=dict)

    @property
    def current(self) -> float | None:
        """The sum of the limits in force, or None without any."""
        return sum(self._current.values()) if self._current else None

    @property
    def limit(self) -> float | None:
        """The sum of the suggested or proposed limits, or None without any."""
        return sum(self._limits.values()) if self._limits else None

    def add(self, use: Use) -> None:
        """Add the use of an entity."""
        self.entities += 1
        self.amount += use.amount
        self.throttled_share = max(self.throttled_share, use.throttled_share)
        self.longest_delay_ms = max(self.longest_delay_ms, use.longest_delay_ms)
        self._current.update([use.current] if use.current else [])
        self._limits.update([use.limit] if use.limit else [])


def by_team(uses: Iterable[Use]) -> list[Team]:
    """Return the sums of each team by kind, the largest amount first."""
    found: dict[tuple[str, str], Team] = {}
    for use in uses:
        found.setdefault((use.team, use.kind), Team(use.team, use.kind)).add(use)
    return sorted(found.values(), key=lambda team: (-team.amount, team.team, team.kind))
