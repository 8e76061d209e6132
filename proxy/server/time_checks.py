"""Checks the time limits of one connection, and ends the connection when a limit has passed."""

from typing import TYPE_CHECKING

from kafka_quota_proxy.proxy.background.isolation import isolated
from kafka_quota_proxy.proxy.server.connection_limits import IDLE_TIMEOUT, LOGIN_TIMEOUT, TimeLimits

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.connection import ClientConnection


class TimeChecks:
    """Compares one connection with its time limits at regular intervals.

    The listener's timer wheel calls ``check`` at the time that the previous check has set, until ``cancel`` is called.
    """

    __slots__ = ("_owner", "_slot", "limits")

    def __init__(self, owner: "ClientConnection") -> None:
        self._owner = owner
        self.limits = TimeLimits(next(owner.listener.spread))
        self._slot = 0

    def start(self, now_ms: int) -> None:
        """Schedule the first check of a connection that has just been accepted."""
        self.limits.started_ms = self.limits.active_ms = now_ms
        self._schedule(now_ms)

    @isolated
    def check(self, now_ms: int) -> None:
        """Close or drain the connection if it has exceeded a time limit. Schedule the next check if it stays open."""
        owner, session = self._owner, self._owner.session
        # Each read from the client sets ``request_ns``, so that the hot path need not store the current time.
        is_owed = session.is_owed
        if is_owed or owner.request_ns:
            self.limits.active_ms = now_ms
        if not is_owed:
            owner.request_ns = 0
        cause = self.limits.passed(owner.listener.settings, now_ms=now_ms, is_past_login=owner.is_past_login)
        if cause in (LOGIN_TIMEOUT, IDLE_TIMEOUT) and not session.is_idle:
            owner.close(cause)  # in the middle of a request that will not end
        elif cause is not None and session.muted_until_ms <= now_ms and not session.state.is_blocked:
            owner.drain(cause)
        if not owner.is_closed:
            self._schedule(now_ms)

    def cancel(self) -> None:
        """Stop the checks. May be called again."""
        self._owner.listener.timer_wheel.discard(self, self._slot)

    def fail(self) -> None:
        """Close the connection at once after an internal error."""
        self._owner.fail()

    def _schedule(self, now_ms: int) -> None:
        listener = self._owner.listener
        at_ms = self.limits.next_check_ms(listener.settings, now_ms=now_ms, is_past_login=self._owner.is_past_login)
        self._slot = listener.timer_wheel.add(self, at_ms)
