"""Sums up attempts that changed nothing, so that they do not flood the audit log.

A refused client may ask again without end, with ten thousand entities at a time. So each principal and reason has one
line a second: the first attempt, and then the sum of the others. Changes are never summed up.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

_WINDOW_MS: Final = 1_000
# Some principals have an address (token@ADDRESS), so there may be any number of them.
MOST_KEYS: Final = 100


class _Key(NamedTuple):
    principal: str | None  # None: all those above MOST_KEYS
    result: str
    error_code: int


class AttemptSummary(NamedTuple):
    """Attempts of one principal with the same result and error.

    Attributes:
        origin: The last attempt's; None: of several principals.
        last: The last outcome.
        result: One of ``RESULTS``.
        entities: The number of entities.
        since_ms: The Unix time of the first attempt.
        until_ms: The Unix time of the last attempt.
    """

    origin: Origin | None
    last: Outcome
    result: str
    entities: int
    since_ms: int
    until_ms: int


class AttemptSummaries:
    """The summaries of one audit log. ``now_ms`` is of a monotonic clock, ``unix_ms`` is Unix time.

    Attributes:
        has_any: Whether there are summaries to be written.
    """

    def __init__(self) -> None:
        self._until_ms: int | None = None  # the end of the second; None: it had no attempt
        # The keys that had a line in this second, and their attempts since.
        self._summaries: dict[_Key, AttemptSummary | None] = {}
        self.has_any = False

    def add(self, outcome: Outcome, origin: Origin, *, result: str, entities: int, now_ms: int, unix_ms: int) -> bool:
        """Add an attempt that changed nothing; return whether it has a line of its own. Call ``take`` first."""
        if self._until_ms is None:
            self._until_ms = now_ms + _WINDOW_MS
        key = _Key(origin.principal, result, outcome.error_code)
        if key not in self._summaries:
            if len(self._summaries) < MOST_KEYS:
                self._summaries[key] = None
                return True
            key = key._replace(principal=None)
        known = self._summaries.get(key)
        self._summaries[key] = AttemptSummary(
            origin=None if key.principal is None else origin,
            last=outcome,
            result=result,
            entities=entities + (known.entities if known else 0),
            since_ms=known.since_ms if known else unix_ms,
            until_ms=unix_ms,
        )
        self.has_any = True
        return False

    def take(self, *, now_ms: int, is_end: bool = False) -> list[AttemptSummary]:
        """Return the summaries, if the second is over or this is the end."""
        if self._until_ms is None or (now_ms < self._until_ms and not is_end):
            return []
        due = {key: one for key, one in self._summaries.items() if one is not None}
        # They have their line of this second.
        self._summaries = dict.fromkeys(due)
        self._until_ms = now_ms + _WINDOW_MS if due else None
        self.has_any = False
        return list(due.values())
