"""Combines audit records of attempts that changed no quota, so that they do not flood the audit log.

A client may repeat a refused request without end, with ten thousand entities each time. So attempts by the same
principal with the same result and error get at most one line a second. The first of them gets a line of its own. The
later ones are counted in a summary, which gets a line when the second is over.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

_WINDOW_MS: Final = 1_000
# The most keys that are summed up separately. The number of principals is unlimited, because some contain an address
# (token@ADDRESS).
MOST_KEYS: Final = 100


class _Key(NamedTuple):
    principal: str | None  # None sums up all keys above MOST_KEYS
    result: str
    error_code: int


class AttemptSummary(NamedTuple):
    """Counts one principal's attempts to change quotas that changed nothing, and had the same result and error.

    If more than ``MOST_KEYS`` of these summaries were needed, the further attempts of all principals share one summary
    for each result and error.
    """

    origin: Origin | None  # of the last attempt, or None if there are several principals
    last: Outcome  # of the last attempt
    result: str
    entities: int  # in all attempts
    since_ms: int  # Unix time of the first attempt
    until_ms: int  # Unix time of the last attempt


class AttemptSummaries:
    """All current summaries for one audit log. ``now_ms`` is the time of a monotonic clock, ``unix_ms`` is Unix time.

    ``has_any`` is True if there are summaries to write. Any thread may read it.
    """

    def __init__(self) -> None:
        self._until_ms: int | None = None  # the end of the current second, None if it had no attempt
        # The keys that had a line in this second, and a summary of the attempts since that line.
        self._summaries: dict[_Key, AttemptSummary | None] = {}
        self.has_any = False

    def add(self, outcome: Outcome, origin: Origin, *, result: str, entities: int, now_ms: int, unix_ms: int) -> bool:
        """Add an attempt that changed nothing. Return True if it is the first of its kind, which gets its own line.

        Call ``take`` before, so that the attempt is not added to the summaries of a second that is over.
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
        """Remove and return the summaries, if the second that they cover is over or ``is_end`` is True.

        Otherwise return an empty list.
        """
        if self._until_ms is None or (now_ms < self._until_ms and not is_end):
            return []
        due = {key: one for key, one in self._summaries.items() if one is not None}
        # Each summary is the line of its key in the new second.
        self._summaries = dict.fromkeys(due)
        self._until_ms = now_ms + _WINDOW_MS if due else None
        self.has_any = False
        return list(due.values())
