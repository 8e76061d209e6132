"""Checks the time limits of one connection, and ends the connection when a limit has passed.

A client is idle if it neither sends nor reads. It is not idle in these cases:

* It has sent bytes since the last check, for example a part of a long request.
* It has read a part of what was written to it since the last check.
* It has read everything that was written to it, and waits for the proxy or the broker: for a response, the end of a
  throttle time, its turn, the dial of the broker, or a broker that does not read.

While a client waits for the proxy or the broker, the time for its login does not pass either.
"""

from typing import TYPE_CHECKING

from kafka_quota_proxy.proxy.runtime.isolation import isolated
from kafka_quota_proxy.proxy.server.clients.connection_limits import IDLE_TIMEOUT, LOGIN_TIMEOUT, TimeLimits

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection


class TimeChecks:
    """Compares one connection with its time limits at regular intervals.

    The listener's timer wheel calls ``check`` at the time that the previous check has set, until ``cancel`` is called.
    """

    __slots__ = ("_is_waiting", "_owner", "_slot", "_unread_bytes", "has_read", "limits")

    def __init__(self, owner: "ClientConnection") -> None:
        self._owner = owner
        self.limits = TimeLimits(next(owner.listener.spread))
        self.has_read = False  # whether the client has emptied a full write buffer since the last check
        self._is_waiting = False  # whether the last check found that the client waits for the proxy or the broker
        self._unread_bytes = 0
        self._slot = 0

    def start(self, now_ms: int) -> None:
        """Schedule the first check of a connection that has just been accepted."""
        self.limits.start(now_ms)
        self._schedule(now_ms)

    @isolated
    def check(self, now_ms: int) -> None:
        """Close or drain the connection if it has exceeded a time limit. Schedule the next check if it stays open."""
        owner, session, limits = self._owner, self._owner.session, self.limits
        unread_bytes = owner.transports.unread_bytes
        has_waited, self._is_waiting = self._is_waiting, not unread_bytes and self._is_held(now_ms)
        # The last wait may have ended just before this check.
        if has_waited or self._is_waiting:
            limits.login_ms = limits.active_ms = now_ms
        if self._has_progressed(unread_bytes):
            limits.active_ms = now_ms
        cause = limits.passed(owner.listener.settings, now_ms=now_ms, is_past_login=owner.is_past_login)
        if cause in (LOGIN_TIMEOUT, IDLE_TIMEOUT) and not session.is_idle:
            owner.close(cause)  # in the middle of a request or response that will not end
        elif cause is not None and session.muted_until_ms <= now_ms and session.state.blocked_by is None:
            owner.drain(cause)
        if not owner.is_closed:
            self._schedule(now_ms)

    def _is_held(self, now_ms: int) -> bool:
        """Return whether the proxy or the broker keeps the client from going on, rather than the client itself."""
        owner, session = self._owner, self._owner.session
        return session.is_owed or not owner.transports.reads_client or now_ms < session.muted_until_ms

    def _has_progressed(self, unread_bytes: int) -> bool:
        """Return whether the client has sent or read any bytes since the last check."""
        owner = self._owner
        has_sent = owner.request_ns > 0
        if has_sent:
            owner.request_ns = -owner.request_ns
        has_read = self.has_read or unread_bytes != self._unread_bytes
        self._unread_bytes, self.has_read = unread_bytes, False
        return has_sent or has_read

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
