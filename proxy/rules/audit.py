"""Counts changes of quotas, limits their rate, and writes them to the audit log.

Each line of the log is JSON in ASCII, with the client, the change and the outcome. This is a line:

    {"time":"2026-01-01T12:00:00.000Z","principal":"admin","client_id":"adminclient-1","address":"10.0.0.5",
     "listener":"clients","entity":{"user":"alice","client-id":null},"asked":{"producer_byte_rate":5242880.0},
     "old":null,"new":{"producer_byte_rate":5242880.0},"result":"applied"}

If the name of a user or client-id is null, the change is about the default entity. If a value in ``asked`` is null, the
client asks to remove that limit, or that term (an expiry, for example). If ``old`` is null, the entity had no rule
before. If ``new`` is null, it has none now.

``result`` is one of these:

* ``applied``: the rule was changed.
* ``validated``: the rule would have been changed, but the request was a dry run.
* ``unchanged``: the change leaves the rule as it was.
* ``refused``: the change was refused.
* ``unknown``: it is unknown whether the rule was or will be changed.

The last two have an error: ``"error":{"code":44,"name":"POLICY_VIOLATION","message":"…"}``.

``open`` and ``write`` of a ``ChangeLog`` block, so they must be called in one thread.
"""

import logging
import math
import os
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import Store
from kafka_quota_proxy.config.terms import NO_TERMS, written_terms, written_terms_change
from kafka_quota_proxy.proxy.rules.alter import APPLIED, RESULTS, UNKNOWN, Outcome
from kafka_quota_proxy.proxy.rules.api import Origin
from kafka_quota_proxy.proxy.rules.codec import encode
from kafka_quota_proxy.proxy.rules.errors import NONE, THROTTLING_QUOTA_EXCEEDED, name_of
from kafka_quota_proxy.proxy.rules.model import StoredRule
from kafka_quota_proxy.proxy.runtime.disk_access import file_fault

log = logging.getLogger(__name__)

# The outcome of a change that is refused because of the rate limit.
THROTTLED: Final = "throttled"
COUNTED: Final = (*RESULTS, THROTTLED)
# How many changes are kept for the status page.
MOST_RECENT: Final = 20
_AGAIN_AFTER_MS: Final = 60_000
# A client may repeat a refused request without end, with ten thousand entities each time.
_ATTEMPT_LINES_PER_SECOND: Final = 10.0
_MODE: Final = 0o640
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
# A client may save up changes of so much time.
_SAVED_MS: Final = 10_000
# The most characters of a name, a key or a message.
MAX_TEXT: Final = 256
# The most keys of one entity. There are fewer, but a client may send any number.
MAX_ASKED: Final = 16


class RecentChange(NamedTuple):
    """A change of one entity's quotas that was made, or that may have been made. ``unix_ms`` is its Unix time."""

    unix_ms: int
    origin: Origin
    outcome: Outcome


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ChangeLog:
    """Counts and limits the changes that administrators make at one proxy, and writes them to the audit log.

    ``counts`` contains the number of requested changes for each result in ``COUNTED``. A change concerns one entity.
    ``recent`` contains the last changes that were made, the newest last. There is no audit log needed for them.
    ``audit`` is the file of the audit log, or None if there is none.
    """

    def __init__(self, store: Store) -> None:
        self.counts: Counter[str] = Counter()
        self.recent: deque[RecentChange] = deque(maxlen=MOST_RECENT)
        self._rate = store.changes_per_second
        self._limit = ChangeLimit(store.changes_per_second)
        self.audit = None if store.audit_log is None else AuditFile(Path(store.audit_log))
        self._attempts = ChangeLimit(_ATTEMPT_LINES_PER_SECOND)
        self._logged_ms = -_AGAIN_AFTER_MS

    def open(self) -> None:
        """Try to open the audit log, if there is one, before any client is served. Raises StartError if that fails."""
        if self.audit is not None:
            self.audit.open()

    def begin(self, origin: Origin) -> int:
        """Return how many milliseconds must pass before the proxy accepts another request for changes, or 0.

        If this is 0, the request counts as one change against the rate limit. Otherwise the caller refuses the request
        of ``origin``. A warning is logged at most once a minute.
        """
        now_ms = _now_ms()
        wait_ms = self._limit.take(now_ms=now_ms)
        if wait_ms and now_ms - self._logged_ms >= _AGAIN_AFTER_MS:
            self._logged_ms = now_ms
            log.warning(
                "more than %g quotas are changed in a second (store.changes_per_second): %s is refused for %d ms, and "
                "so are others meanwhile",
                self._rate, origin.principal, wait_ms,
            )  # fmt: skip
        return wait_ms

    def charge(self, changes: int) -> None:
        """Count further changes of a request against the rate limit, one for each entity."""
        self._limit.charge(changes, now_ms=_now_ms())

    def count(self, outcomes: Sequence[Outcome], origin: Origin, *, unix_ms: int) -> None:
        """Count the results of a request, one for each entity, and keep those of changes that were made.

        ``unix_ms`` is the Unix time of the request.
        """
        for outcome in outcomes:
            is_throttled = outcome.error_code == THROTTLING_QUOTA_EXCEEDED
            self.counts[THROTTLED if is_throttled else outcome.result] += 1
            if outcome.result in (APPLIED, UNKNOWN):
                self.recent.append(RecentChange(unix_ms, origin, outcome))

    def write(self, outcomes: Sequence[Outcome], origin: Origin, *, unix_ms: int) -> None:
        """Write the outcomes of a request to the audit log, if there is one. An error is logged, not raised.

        Each change that was made, or that may have been made, has its line. Attempts have lines up to a limit.
        """
        if self.audit is None:
            return
        now_ms = _now_ms()
        # An attempt counts against the limit only if it gets a line.
        lines = [
            audit_line(outcome, origin, unix_ms=unix_ms)
            for outcome in outcomes
            if outcome.result in (APPLIED, UNKNOWN) or not self._attempts.take(now_ms=now_ms)
        ]
        # In a flood of requests, most have no lines. Then the file is not accessed.
        if lines:
            self.audit.append(lines, now_ms=now_ms)


class AuditFile:
    """The file of the audit log, for use in one thread. ``lost`` is the number of lines that could not be written.

    The file is opened for each write. So if it was renamed, for example by logrotate, the next write creates a new one.
    Lines are appended without a sync to the disk, because the quotas themselves are safe in the store.
    """

    def __init__(self, path: Path) -> None:
        self.lost = 0
        self._path = path
        self._logged_ms = -_AGAIN_AFTER_MS

    def open(self) -> None:
        """Open the file, and create it if it does not exist. Raises StartError if this is impossible."""
        try:
            self._append(b"")
        except OSError as error:
            fault = file_fault(self._path) or f"{self._path} cannot be opened: {error.strerror or error}"
            raise StartError(("store", "audit_log"), fault) from error

    def append(self, lines: Sequence[bytes], *, now_ms: int) -> None:
        """Append lines, each of which ends with a newline. If this fails, count them as lost and log an error."""
        try:
            self._append(b"".join(lines))
        except OSError as error:
            self.lost += len(lines)
            if now_ms - self._logged_ms >= _AGAIN_AFTER_MS:
                self._logged_ms = now_ms
                log.error(  # noqa: TRY400 - a full disk needs no traceback
                    "the audit log %s cannot be written: %s; quotas are still changed, but %d lines are lost",
                    self._path, error.strerror or error, self.lost,
                )  # fmt: skip

    def _append(self, data: bytes) -> None:
        file = os.open(self._path, _FLAGS, _MODE)
        try:
            size_bytes = os.fstat(file).st_size
            if data and size_bytes and os.pread(file, 1, size_bytes - 1) != b"\n":
                data = b"\n" + data  # a full disk has left a part of a line, which a newline ends
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)


class ChangeLimit:
    """The limit on changes at one proxy. If ``changes_per_second`` is None, there is no limit.

    It is a token bucket as in KIP-599. While the number of tokens is not negative, the next request is accepted,
    however many changes it has, and may make the number negative.

    ``now_ms`` is the time of a monotonic clock.
    """

    def __init__(self, changes_per_second: float | None) -> None:
        self._ms_per_change = 0.0 if changes_per_second is None else 1_000 / changes_per_second
        self._empty_ms = -math.inf  # when the bucket had no tokens, or will have none

    def take(self, changes: int = 1, *, now_ms: int) -> int:
        """Accept a request and take a token for each of its changes, unless the number of tokens is negative.

        Return 0, or how many milliseconds must pass before the request is accepted.
        """
        # The value is rounded first, so that a rounding error of a float does not become a millisecond.
        wait_ms = math.ceil(round(max(self._empty_ms - now_ms, 0), 6))
        if not wait_ms:
            self.charge(changes, now_ms=now_ms)
        return wait_ms

    def charge(self, changes: int, *, now_ms: int) -> None:
        """Take one token for each changed entity."""
        self._empty_ms = max(self._empty_ms, now_ms - _SAVED_MS) + changes * self._ms_per_change


def audit_line(outcome: Outcome, origin: Origin, *, unix_ms: int) -> bytes:
    """Return the line about one entity of a request, with a newline."""
    about = {"time": _time(unix_ms), **_about(origin)}
    return f"{encode({**about, **_entity(outcome), **_result(outcome)})}\n".encode()


def _about(origin: Origin) -> Mapping[str, str | None]:
    return {
        "principal": _cut(origin.principal),
        "client_id": None if origin.client_id is None else _cut(origin.client_id),
        "address": _cut(origin.address),
        "listener": _cut(origin.listener),
    }


def _entity(outcome: Outcome) -> Mapping[str, object]:
    return {
        "entity": {_cut(kind): None if name is None else _cut(name) for kind, name in outcome.entity[:MAX_ASKED]},
        "asked": {
            **{_cut(key): _number(value) for key, value in outcome.asked[:MAX_ASKED]},
            **({"terms": written_terms_change(outcome.asked_terms)} if outcome.asked_terms else {}),
        },
        "old": _rule(outcome.old),
        "new": _rule(outcome.new),
    }


def _rule(rule: StoredRule | None) -> object:
    if rule is None:
        return None
    return {**rule.limits, **({} if rule.terms == NO_TERMS else {"terms": written_terms(rule.terms)})}


def _result(outcome: Outcome) -> Mapping[str, object]:
    if outcome.error_code == NONE:
        return {"result": outcome.result}
    error = {
        "code": outcome.error_code,
        "name": name_of(outcome.error_code),
        "message": _cut(outcome.error_message or ""),
    }
    return {"result": outcome.result, "error": error}


def _number(value: float | None) -> object:
    # A client may ask for NaN or infinity, which JSON does not have.
    return value if value is None or value - value == 0 else str(value)


def _time(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1_000:03d}Z"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
