"""Attempts that changed nothing: which has a line of its own in the audit log, and which are summed up.

Who is refused may ask again as often as he likes, with ten thousand entities at a time. So of each principal and reason
there is one line in a second: of the first attempt, and then of all that came since. What was changed is never summed
up, and does not come here.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

_WINDOW_MS: Final = 1_000
# Addresses are part of some principals (token@ADDRESS), so there may be any number of these.
MOST_KEYS: Final = 100


class _Key(NamedTuple):
    principal: str | None  # None: of all that are too many to be told apart
    result: str
    error_code: int


class AttemptSummary(NamedTuple):
    """Attempts of one principal that ended for one reason.

    Attributes:
        origin: Of the last one; None: of more principals than can be told apart.
        last: It.
        result: What became of each, in a word of ``RESULTS``.
        entities: How many there were.
        since_ms: When the first came, Unix time.
        until_ms: When the last did.
    """

    origin: Origin | None
    last: Outcome
    result: str
    entities: int
    since_ms: int
    until_ms: int


class AttemptSummaries:
    """Of one audit log. ``now_ms`` is of a clock that does not step back, ``unix_ms`` of the one on the wall.

    Attributes:
        has_any: Whether something is yet to be told.
    """

    def __init__(self) -> None:
        self._until_ms: int | None = None  # when the second ends; None: nothing was told in the last one
        # Whoever had his line in this second, and what he is owed another one for.
        self._summaries: dict[_Key, AttemptSummary | None] = {}
        self.has_any = False

    def add(self, outcome: Outcome, origin: Origin, *, result: str, entities: int, now_ms: int, unix_ms: int) -> bool:
        """Take up an attempt that changed nothing; return whether it is to have a line of its own, now.

        ``take`` what is due first. ``entities`` is how many ended like ``outcome``.
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
        """Return what has been summed up, if the second is over or this is the end."""
        if self._until_ms is None or (now_ms < self._until_ms and not is_end):
            return []
        told = {key: one for key, one in self._summaries.items() if one is not None}
        # These had their line just now.
        self._summaries = dict.fromkeys(told)
        self._until_ms = now_ms + _WINDOW_MS if told else None
        self.has_any = False
        return list(told.values())
