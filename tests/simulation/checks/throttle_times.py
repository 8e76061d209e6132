"""A throttle time that a client was told is kept: the proxy forwards nothing more of its connection before.

Also, a throttle time has a reason and a bound. Without a limit for this client nobody is told to wait for longer than
the broker itself says.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.entities import FETCH, MUTATIONS, OF_REQUESTS, PRODUCE
from tests.simulation.checks.settings import SETTLE_MS
from tests.simulation.wire import administration

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_ROUNDING_MS: Final = 2.0
_TOO_MANY_CHANGES: Final = 89  # THROTTLING_QUOTA_EXCEEDED
_KINDS: Final = {
    frames.PRODUCE: (PRODUCE, *OF_REQUESTS),
    frames.FETCH: (FETCH, *OF_REQUESTS),
    frames.SHARE_FETCH: (FETCH, *OF_REQUESTS),
    frames.CREATE_TOPICS: (MUTATIONS, *OF_REQUESTS),
    frames.DELETE_TOPICS: (MUTATIONS, *OF_REQUESTS),
    frames.CREATE_PARTITIONS: (MUTATIONS, *OF_REQUESTS),
}
_QUOTA_APIS: Final = (frames.DESCRIBE_QUOTAS, frames.ALTER_QUOTAS)


class _Mute:
    """Until when nothing of a connection may be forwarded, and why."""

    __slots__ = ("reason", "until_ms")

    def __init__(self, until_ms: float, reason: str) -> None:
        self.until_ms = until_ms
        self.reason = reason


class ThrottleTimes(Check):
    """Remembers for each connection how long its client was told to wait."""

    name: ClassVar[str] = "throttle times"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._mutes: dict[int, _Mute] = {}
        # For each response that is on its way to its client: the first request that was forwarded after it passed.
        self._on_the_way: dict[int, dict[int, Exchange | None]] = {}
        self._overtakes: dict[int, Exchange] = {}  # the first request that was forwarded while a response was held back
        self._most_ms = self._limit_ms()
        self._most_before: list[tuple[float, float]] = []  # until when, and the longest wait then
        self._had_queue = False

    def _limit_ms(self) -> float:
        longest = self.world.settings.max_throttle_ms
        return float(2**31 - 1) if longest is None else longest

    def rules_changed(self, *possible: Quotas) -> None:
        """Note the limits, and how long a wait may be."""
        now_ms = self.world.clock.now_ms
        self._had_queue |= self.world.settings.has_queue
        if self._most_ms != self._limit_ms():
            self._most_before.append((now_ms, self._most_ms))
            self._most_ms = self._limit_ms()

    def proxy_started(self, number: int) -> None:
        """A new process has told nobody anything."""
        self._mutes.clear()

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Forget a connection."""
        self._mutes.pop(connection, None)
        self._on_the_way.pop(connection, None)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """From now on the connection is muted, if the response says so."""
        self._on_the_way.setdefault(exchange.connection, {})[exchange.correlation_id] = None
        overtaker = self._overtakes.pop(exchange.correlation_id, None)
        # At one time the proxy writes to the broker first, so such a request is no overtaker.
        if overtaker is not None and overtaker.forwarded_first_ms < exchange.passed_ms - _ROUNDING_MS:
            self.world.fail(self.name, f"{overtaker} is forwarded while the response to {exchange} is held back")

    def forwarding(self, exchange: "Exchange") -> None:
        """Nothing of a muted connection is forwarded, nor while a response of it is held back."""
        if not self.ledger.is_stopping:
            line = self.ledger.lines.get(exchange.connection)
            for other in () if line is None else line.open.values():
                if _is_held(other):
                    self._overtakes.setdefault(other.correlation_id, exchange)
            on_the_way = self._on_the_way.get(exchange.connection)
            for correlation_id in on_the_way or ():
                if on_the_way is not None and on_the_way[correlation_id] is None:
                    on_the_way[correlation_id] = exchange
        mute = self._mutes.get(exchange.connection)
        if mute is None:
            return
        left_ms = mute.until_ms - self.world.clock.now_ms
        if left_ms > _ROUNDING_MS and not self.ledger.is_stopping:
            self.world.fail(self.name, f"{exchange} is forwarded {left_ms:.1f} ms too early, because {mute.reason}")
        if left_ms <= 0:
            del self._mutes[exchange.connection]

    def received(self, exchange: "Exchange") -> None:
        """Judge what the client was told, and remember it."""
        response = exchange.response
        next_one = self._on_the_way.get(exchange.connection, {}).pop(exchange.correlation_id, None)
        if response is None or exchange.is_inter_broker:
            return
        told_ms = exchange.throttle_ms
        if not told_ms:
            return
        if told_ms < 0:
            self.world.fail(self.name, f"{exchange} is told to wait for {told_ms} ms")
        before = exchange.response_of_broker
        of_broker_ms = 0
        if before is not None:
            of_broker_ms = frames.throttle_ms(before, exchange.api_key, exchange.api_version)
        if told_ms < of_broker_ms:
            text = f"{exchange} is told to wait for {told_ms} ms, and the broker has said {of_broker_ms} ms"
            self.world.fail(self.name, text)
        if told_ms > of_broker_ms:
            self._judge(exchange, told_ms, next_one)

    def _judge(self, exchange: "Exchange", told_ms: int, next_one: "Exchange | None") -> None:
        settings = self.world.settings
        # A request whose first part was forwarded before a change is charged by the limit of before.
        begun_ms = exchange.sent_ms if exchange.forwarded_first_ms < 0 else exchange.forwarded_first_ms
        since_ms = min(begun_ms, exchange.sent_ms) - SETTLE_MS
        most_ms = max([self._most_ms, *(most for until_ms, most in self._most_before if until_ms >= since_ms)])
        # An administrator of quotas is told when the next change is taken, however late that is.
        if told_ms > most_ms and exchange.api_key not in _QUOTA_APIS:
            self.world.fail(self.name, f"{exchange} is told to wait for {told_ms} ms, and {most_ms:.0f} ms is the most")
        # Batches behind a refused one are refused as well, also after the queue was switched off.
        may_be_refused = settings.has_queue or (self._had_queue and exchange.forwarded_first_ms < 0)
        is_mutable = not may_be_refused and exchange.api_key not in _QUOTA_APIS
        limits = self.ledger.book.limits(exchange, _KINDS.get(exchange.api_key, OF_REQUESTS), since_ms=since_ms)
        if not limits and is_mutable:
            self.world.fail(self.name, f"{exchange} is told to wait for {told_ms} ms, and has no limit")
        if _refuses_changes(exchange):
            return  # it says when the next change of quotas is taken, and other requests go on
        if any(limit.enforcement == "delay" for limit in limits) or (not limits and not is_mutable):
            return  # the response itself was late, or the proxy says that it is busy
        # The proxy counts from the moment at which the response reaches it.
        from_ms = exchange.answered_ms if exchange.response_of_broker is not None else exchange.passed_ms
        until_ms = from_ms + told_ms
        if next_one is not None and next_one.forwarded_first_ms < until_ms - _ROUNDING_MS:
            early_ms = until_ms - next_one.forwarded_first_ms
            text = f"{next_one} is forwarded {early_ms:.1f} ms too early, after {exchange}, which is told {told_ms} ms"
            self.world.fail(self.name, text)
        mute = self._mutes.get(exchange.connection)
        if mute is None or mute.until_ms < until_ms:
            reason = f"the response to {exchange} says {told_ms} ms"
            self._mutes[exchange.connection] = _Mute(until_ms, reason)


def _is_held(exchange: "Exchange") -> bool:
    """Return whether the proxy has the whole response to a request, and its client has room for it."""
    response, broker_end, client_end = exchange.response_of_broker, exchange.broker_end, exchange.client_end
    if response is None or broker_end is None or client_end is None or not client_end.is_open:
        return False
    return broker_end.received_bytes >= exchange.response_at + len(response) and not client_end.peer.is_on_the_way


def _refuses_changes(exchange: "Exchange") -> bool:
    """Return whether this is the answer to a change of quotas that came too soon (``store.changes_per_second``)."""
    if exchange.api_key != frames.ALTER_QUOTAS or exchange.response is None:
        return False
    response = administration.alter_client_quotas.parse_response(exchange.response, exchange.api_version)
    return any(entry.error_code == _TOO_MANY_CHANGES for entry in response.entries)
