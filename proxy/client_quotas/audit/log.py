"""Counts changes of quotas, limits their rate, and writes them to the audit log.

``open``, ``write`` and ``close`` block, so they must be called in one thread.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Store
from kafka_quota_proxy.proxy.client_quotas.audit.file import AuditFile
from kafka_quota_proxy.proxy.client_quotas.audit.rate_limit import ChangeLimit
from kafka_quota_proxy.proxy.client_quotas.audit.record import audit_line
from kafka_quota_proxy.proxy.client_quotas.rules.errors import THROTTLING_QUOTA_EXCEEDED
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import APPLIED, RESULTS, UNKNOWN, Origin, Outcome

log = logging.getLogger(__name__)

# The outcome of a change that is refused because of the rate limit.
THROTTLED: Final = "throttled"
COUNTED: Final = (*RESULTS, THROTTLED)
# How many changes are kept for the status page.
MOST_RECENT: Final = 20
_AGAIN_AFTER_MS: Final = 60_000
# A client may repeat a refused request without end, with ten thousand entities each time.
_ATTEMPT_LINES_PER_SECOND: Final = 10.0


class RecentChange(NamedTuple):
    """A change of one entity's quotas that was made, or that may have been made. ``unix_ms`` is its Unix time."""

    unix_ms: int
    origin: Origin
    outcome: Outcome


def now_ms() -> int:
    """Return the time of a monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class ChangeLog:
    """Counts and limits the changes that administrators make at one proxy, and writes them to the audit log.

    ``counts`` contains the number of requested changes for each result in ``COUNTED``. A change concerns one entity.
    ``recent`` contains the last changes that were made, the newest last. There is no audit log needed for them.
    """

    def __init__(self, store: Store) -> None:
        self.counts: Counter[str] = Counter()
        self.recent: deque[RecentChange] = deque(maxlen=MOST_RECENT)
        self._rate = store.changes_per_second
        self._limit = ChangeLimit(store.changes_per_second, now_ms=now_ms())
        self._audit = None if store.audit_log is None else AuditFile(Path(store.audit_log))
        self._attempts = ChangeLimit(_ATTEMPT_LINES_PER_SECOND, now_ms=now_ms())
        self._logged_ms = -_AGAIN_AFTER_MS

    @property
    def is_audited(self) -> bool:
        """Whether there is an audit log."""
        return self._audit is not None

    @property
    def lost(self) -> int:
        """The number of lines of the audit log that could not be written."""
        return 0 if self._audit is None else self._audit.lost

    def open(self) -> None:
        """Open the audit log, if there is one, before any client is served. Raises StartError if that fails."""
        if self._audit is not None:
            self._audit.open()

    def begin(self, origin: Origin) -> int:
        """Return how many milliseconds must pass before the proxy accepts another request for changes, or 0.

        If this is 0, the request counts as one change against the rate limit. Otherwise the caller refuses the request
        of ``origin``. A warning is logged at most once a minute.
        """
        now = now_ms()
        wait_ms = self._limit.wait_ms(now_ms=now)
        if not wait_ms:
            self._limit.record(1, now_ms=now)
        elif now - self._logged_ms >= _AGAIN_AFTER_MS:
            self._logged_ms = now
            log.warning(
                "more than %g quotas are changed in a second (store.changes_per_second): %s is refused for %d ms, and "
                "so are others meanwhile",
                self._rate, origin.principal, wait_ms,
            )  # fmt: skip
        return wait_ms

    def charge(self, changes: int) -> None:
        """Count further changes of a request against the rate limit, one for each entity."""
        self._limit.record(changes, now_ms=now_ms())

    def count(self, outcomes: Sequence[Outcome], origin: Origin, *, is_dry_run: bool, unix_ms: int) -> Sequence[str]:
        """Count the results of a request, one for each entity, and keep those of changes that were made.

        ``unix_ms`` is the Unix time of the request. Return the results, each one of ``RESULTS``.
        """
        results = [outcome.result(is_dry_run=is_dry_run) for outcome in outcomes]
        for outcome, result in zip(outcomes, results, strict=True):
            self.counts[THROTTLED if outcome.error_code == THROTTLING_QUOTA_EXCEEDED else result] += 1
        if APPLIED in results or UNKNOWN in results:
            made = [one for one, result in zip(outcomes, results, strict=True) if result in (APPLIED, UNKNOWN)]
            self.recent.extend(RecentChange(unix_ms, origin, one) for one in made[-MOST_RECENT:])
        return results

    def write(self, outcomes: Sequence[Outcome], results: Sequence[str], origin: Origin, *, unix_ms: int) -> None:
        """Write the outcomes of a request to the audit log, if there is one. An error is logged, not raised.

        Each change that was made, or that may have been made, has its line. Attempts have lines up to a limit.
        """
        if self._audit is None:
            return
        now = now_ms()
        lines = []
        for outcome, result in zip(outcomes, results, strict=True):
            if result not in (APPLIED, UNKNOWN):
                if self._attempts.wait_ms(now_ms=now):
                    continue
                self._attempts.record(1, now_ms=now)
            lines.append(audit_line(outcome, result, origin, unix_ms=unix_ms))
        # In a flood of requests, most have no lines. Then the file is not accessed.
        if lines:
            self._audit.append(lines, now_ms=now)

    def close(self) -> None:
        """Close the audit log, if there is one."""
        if self._audit is not None:
            self._audit.close()
