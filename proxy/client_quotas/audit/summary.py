"""Sums up attempts that changed nothing, so that they do not flood the audit log.

A client that is refused may repeat its request without end, with ten thousand entities in each request. So there is one
line a second for each principal and reason: first a line for the first attempt, and then a summary of the later ones.
Attempts that changed something are never summed up.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

_WINDOW_MS: Final = 1_000
# The most keys that are summed up separately. Some principals have an address (token@ADDRESS), so there may be any
# number of principals.
MOST_KEYS: Final = 100


class _Key(NamedTuple):
    principal: str | None  # None sums up all keys above MOST_KEYS
    result: str
    error_code: int


class AttemptSummary(NamedTuple):
    """A summary of attempts of one principal that had the same result and error.

    Attributes:
        origin: The client of the last attempt. None means that the attempts are from several principals.
        last: The outcome of the last attempt.
        result: The result of the attempts, one of ``RESULTS``.
        entities: The number of entities in all attempts.
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
    """The summaries of one audit log.

    ``now_ms`` is the time of a monotonic clock, and ``unix_ms`` is Unix time.

    Attributes:
        has_any: Whether there are summaries to be written. Any thread may read it.
    """

    def __init__(self) -> None:
        self._until_ms: int | None = None  # the end of the current second, None if it had no attempt
        # The keys that had a line in this second, and a summary of the attempts since that line.
        self._summaries: dict[_Key, AttemptSummary | None] = {}
        self.has_any = False

    def add(self, outcome: Outcome, origin: Origin, *, result: str, entities: int, now_ms: int, unix_ms: int) -> bool:
        """Add an attempt that changed nothing. Return whether it is the first of its kind, which has a line by itself.

        The caller must call ``take`` first, because the second of the summaries may be over.
        """
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
        """Return and remove the summaries if their second is over or if ``is_end``. Otherwise return an empty list."""
        if self._until_ms is None or (now_ms < self._until_ms and not is_end):
            return []
        due = {key: one for key, one in self._summaries.items() if one is not None}
        # Their summaries are their lines of the new second.
        self._summaries = dict.fromkeys(due)
        self._until_ms = now_ms + _WINDOW_MS if due else None
        self.has_any = False
        return list(due.values())
