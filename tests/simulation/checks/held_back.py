"""Nothing is held back without a reason.

A response that has arrived at the proxy is passed on, and a request that has arrived is forwarded, unless its bucket
is busy. A bucket is busy while a request of it is at a broker, and for the throttle time that its clients were told.
Consumers who share sampled windows are busy for longer if they are over their limit: until half a window is paid. If a
request waits and its bucket is free, the proxy has forgotten it. ``liveness`` judges waits that have a reason.
"""

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.disturbance import MANY_BUCKETS
from tests.simulation.checks.entities import FETCH, KIND_OF, KINDS, PRODUCE, Limit, Rules, Tags
from tests.simulation.checks.settings import SETTLE_MS
from tests.simulation.clients.profiles import HARM
from tests.simulation.wire import transfer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.ledger import Exchange, Line
    from tests.simulation.world import World

# Who was told to come back keeps the place in the line for two seconds.
_GRACE_MS: Final = 3_500.0
_STANDS_STILL_MS: Final = 5_000.0
# How often one connection may be served while the first request of another waits in the same line.
_MOST_OVERTAKES: Final = 2
# If no byte of a request comes for so long, it holds nobody. The proxy looks once a second.
_STALLED_MS: Final = 2_500.0
# A request that its broker does not answer delays others for no longer than this.
_LONGEST_DELAY_MS: Final = 25_000.0
_LONGEST_WAY_MS: Final = 2_000.0  # until the proxy hears that a client has gone
# A client that leaves may be charged until its broker answers. Nobody is told for how long the bucket then waits.
_ABANDONED_MS: Final = 120_000.0
_OF_REQUESTS: Final = tuple(kind for kind in KINDS if kind not in (PRODUCE, FETCH))


class _Key(NamedTuple):
    node_id: int
    kind: str
    tags: Tags


class _Bucket:
    """What keeps one bucket busy: throttle times, and requests at the broker, each until a time at the latest."""

    __slots__ = ("at_broker", "busy_until_ms", "connections", "paid_ms", "recent")

    def __init__(self) -> None:
        self.at_broker: dict[int, float] = {}
        self.busy_until_ms = 0.0
        self.connections: dict[int, None] = {}  # that had a request forwarded
        self.paid_ms = 0.0  # when all bytes are paid, at the rate of the limit
        self.recent: list[tuple[float, int]] = []  # when bytes were charged, and how many

    def charge(self, amount: int, limit: Limit | None, now_ms: float, window_ms: float) -> None:
        """Note a charge. Those of before that count in no window any more are forgotten."""
        self.recent = [one for one in self.recent if one[0] > now_ms - window_ms]
        self.recent.append((now_ms, amount))
        if limit is not None:
            self.paid_ms = max(now_ms, self.paid_ms) + 1_000 * amount / limit.rate

    def owes_until_ms(self, limit: Limit, now_ms: float) -> float:
        """Return until when the bucket owes the last charge, at most."""
        after_ms = max(now_ms, self.busy_until_ms) + 1_000 * self.recent[-1][1] / limit.rate
        # The bytes of all windows may be owed at once, also if those of before were within the limit.
        return max(after_ms, now_ms + 1_000 * sum(amount for _, amount in self.recent) / limit.rate)


class HeldBack(Check):
    """Looks twice a second at the first waiting request and the first response of each connection."""

    name: ClassVar[str] = "held back"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._rules: dict[str, Rules] = {}
        self._buckets: dict[_Key, _Bucket] = {}
        self._key_of: dict[int, _Key] = {}  # of the requests at brokers
        self._muted_until_ms: dict[int, float] = {}  # connections with requests that get no response
        self._gone: dict[int, Line] = {}  # left by clients with requests that the proxy may still have
        # Requests of clients that have gone, whose rest the proxy may still forward: they are charged at the end of it.
        self._unfinished: dict[int, tuple[_Key, Exchange]] = {}
        self._largest_produce = 0  # the bytes of the largest Produce that the process has forwarded
        # The requests that wait in the line of each bucket, and when each connection was served meanwhile.
        self._in_line: dict[_Key, dict[int, dict[int, list[float]]]] = {}
        # Since when each exchange has no reason to wait, as far as its connections and its bucket say.
        self._since_ms: dict[int, float] = {}
        self._is_known = self._has_rules = False
        self._settled_ms = 0.0
        # The requests at brokers while rules changed, which any bucket may be charged, and until when that one is busy.
        self._unsure: dict[int, None] = {}
        self._busy_until_ms = 0.0

    # -- what changes all --

    def rules_changed(self, *possible: Quotas) -> None:
        """Note the rules. Where several sets may be in force, the buckets are not known."""
        now_ms = self.world.clock.now_ms
        self._is_known = len(possible) == 1
        self._settled_ms = now_ms + SETTLE_MS if self._has_rules else 0.0
        self._has_rules = True
        before = self._rules
        self._rules = {kind: Rules(possible[0], kind, self.world.settings) for kind in (PRODUCE, FETCH)}
        self._since_ms.clear()
        self._in_line.clear()
        for line in self._lines():
            self._unsure.update(dict.fromkeys(line.unread))
        # By another limit the debt of before takes another time.
        if now_ms < self._busy_until_ms:
            self._busy_until_ms = max(self._busy_until_ms, now_ms + _ABANDONED_MS)
        for key, bucket in self._buckets.items():
            owes_ms = max(_ABANDONED_MS, self._owes_ms(before, key, bucket.busy_until_ms - now_ms))
            bucket.busy_until_ms = max(bucket.busy_until_ms, now_ms + owes_ms)

    def _owes_ms(self, before: dict[str, Rules], key: _Key, owed_ms: float) -> float:
        """Return for how long a bucket owes by its limit now what it owed for ``owed_ms`` by the rules of before."""
        old, new = (rules[key.kind].limit(key.tags) if key.kind in rules else None for rules in (before, self._rules))
        return 0.0 if old is None or new is None else owed_ms * old.rate / new.rate

    def proxy_started(self, number: int) -> None:
        """A new process has charged nothing."""
        self._has_rules = False
        self._unsure.clear()
        self._busy_until_ms = 0.0
        self._buckets.clear()
        self._key_of.clear()
        self._since_ms.clear()
        self._in_line.clear()
        self._gone.clear()
        self._unfinished.clear()
        self._largest_produce = 0

    # -- what passes --

    def _limit(self, exchange: "Exchange", node_id: int) -> tuple[_Key, Limit] | None:
        kind = KIND_OF.get(exchange.api_key)
        if kind is None or not self._rules:
            return None
        tags = self._rules[kind].tags(exchange.entity.user, exchange.entity.client_id)
        limit = self._rules[kind].limit(tags)
        return None if limit is None else (_Key(node_id, kind, tags), limit)

    def _lines(self) -> "Iterator[Line]":
        return (line for line in self.ledger.lines.values() if not line.is_inter_broker)

    def forwarding(self, exchange: "Exchange") -> None:
        """It keeps its bucket busy."""
        if exchange.forwarded_to is None or exchange.is_inter_broker:
            return
        for in_line in self._in_line.values():  # its broker may be another than was thought
            in_line.pop(exchange.correlation_id, None)
        has_client = exchange.connection in self.ledger.lines
        if has_client:
            self._since_ms.pop(exchange.correlation_id, None)
            is_unsure = not self._is_known or self.world.clock.now_ms < self._settled_ms
            if exchange.expects_response and exchange.api_key in KIND_OF and is_unsure:
                self._unsure[exchange.correlation_id] = None
        found = self._limit(exchange, exchange.forwarded_to)
        if found is None:
            return
        key, limit = found
        if exchange.api_key != frames.SHARE_FETCH:  # one that waits for too long is forwarded, to bring no records
            self._overtake(key, exchange)
        bucket = self._buckets.setdefault(key, _Bucket())
        bucket.connections[exchange.connection] = None
        now_ms = self.world.clock.now_ms
        if not has_client:  # the client has gone, and nobody is told what this request owes
            bucket.busy_until_ms = self._abandoned_until_ms(bucket, exchange, key, now_ms)
        elif not exchange.expects_response:
            bucket.charge(len(exchange.request), limit, now_ms, self._windows_ms)
            bucket.busy_until_ms = bucket.owes_until_ms(limit, now_ms)
            self._mute(exchange.connection, bucket.busy_until_ms)
        else:
            self._key_of[exchange.correlation_id] = key
            bucket.at_broker[exchange.correlation_id] = now_ms + _LONGEST_DELAY_MS

    def forwarded(self, exchange: "Exchange") -> None:
        """If it gets no response, nobody is told for how long its connection waits from now on."""
        if exchange.forwarded_to is None or exchange.is_inter_broker or exchange.api_key != frames.PRODUCE:
            return
        self._largest_produce = max(self._largest_produce, len(exchange.request))
        found = self._limit(exchange, exchange.forwarded_to)
        if exchange.connection in self.ledger.lines and found is not None and not exchange.expects_response:
            self._mute(exchange.connection, self._silent_until_ms(*found, exchange.connection))

    def _mute(self, connection: int, until_ms: float) -> None:
        self._muted_until_ms[connection] = max(until_ms, self._muted_until_ms.get(connection, 0.0))

    def _told_until_ms(self, exchange: "Exchange", line: "Line") -> float:
        """Return until when a client was told to wait, or may be muted without having been told."""
        return max(line.told_until_ms, self._muted_until_ms.get(exchange.connection, 0.0))

    def _silent_until_ms(self, key: _Key, limit: Limit, number: int) -> float:
        """Return until when the proxy may mute the connection ``number``, without a response that says so.

        As in a throttle time that is told, it counts the debt and the line: for each other connection that waits, the
        mean of the bytes of earlier requests, which is not more than the largest.
        """
        bucket, now_ms = self._buckets.get(key), self.world.clock.now_ms
        owed_until_ms = now_ms if bucket is None else max(now_ms, bucket.busy_until_ms)
        if limit.enforcement != "respond":
            return owed_until_ms
        others = sum(one != number and self._may_wait_for(key, line) for one, line in self.ledger.lines.items())
        self._gone = {one: gone for one, gone in self._gone.items() if _has_proxy(gone)}
        others += sum(self._may_wait_for(key, one) for one in self._gone.values())
        until_ms = owed_until_ms + 1_000 * others * self._largest_produce / limit.rate
        most_ms = self.world.settings.max_throttle_ms
        return until_ms if most_ms is None else max(owed_until_ms, min(until_ms, now_ms + most_ms))

    def _may_wait_for(self, key: _Key, connection: "Line") -> bool:
        """Return whether a connection has sent a request that may wait for a bucket."""
        last = connection.last
        node_id = key.node_id if last is None or last.forwarded_to is None else last.forwarded_to
        found = (self._limit(one, node_id) for one in connection.waiting if not one.is_inter_broker)
        return any(one is not None and one[0] == key for one in found)

    def _overtake(self, key: _Key, exchange: "Exchange") -> None:
        """Fail if a connection is served again and again while the request of another waits in the same line."""
        for correlation_id, overtakes in self._in_line.get(key, {}).items():
            waiting = self.world.ledger.exchanges[correlation_id]
            end = waiting.client_end
            # A client that has shut down its end is gone for the proxy, which it hears later if it reads nothing.
            if waiting.connection == exchange.connection or end is None or not end.peer.is_open:
                continue
            # A bucket with room for many lets them pass at one time, in any order.
            times = overtakes.setdefault(exchange.connection, [])
            if not times or self.world.clock.now_ms > times[-1] + 1:
                times.append(self.world.clock.now_ms)
            count = len(times)
            if count > _MOST_OVERTAKES and self._judges:
                text = f"{exchange} is forwarded, number {count} of its connection while {waiting} waits"
                self.world.fail(self.name, text)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """It waits no more, also if the proxy itself has answered it."""
        for in_line in self._in_line.values():
            in_line.pop(exchange.correlation_id, None)

    def received(self, exchange: "Exchange") -> None:
        """It keeps its bucket busy for as long as its client was told."""
        if exchange.is_inter_broker or exchange.connection not in self.ledger.lines:
            return
        now_ms = self.world.clock.now_ms
        until_ms = now_ms + exchange.throttle_ms
        self._over(exchange.correlation_id, max(until_ms, self._owed_until_ms(exchange, now_ms)))

    def _owed_until_ms(self, exchange: "Exchange", now_ms: float) -> float:
        """Return until when a bucket owes the bytes of an exchange, if its client was not told all of that time."""
        most_ms = self.world.settings.max_throttle_ms
        key = self._key_of.get(exchange.correlation_id)
        if key is None or key not in self._buckets:
            return 0.0
        limit, bucket = self._rules[key.kind].limit(key.tags), self._buckets[key]
        amount = len(exchange.request) if key.kind is PRODUCE else len(exchange.response_of_broker or b"")
        bucket.charge(amount, limit, now_ms, self._windows_ms)
        is_told_all = most_ms is None or exchange.throttle_ms < most_ms
        if limit is None:
            return 0.0
        until_ms = self._spread_until_ms(bucket, key, limit, exchange) if exchange.throttle_ms else 0.0
        if is_told_all and limit.enforcement != "delay":
            return until_ms
        return max(until_ms, bucket.owes_until_ms(limit, now_ms))

    def _spread_until_ms(self, bucket: _Bucket, key: _Key, limit: Limit, exchange: "Exchange") -> float:
        """Return until when consumers who share a limit wait, once an exchange was over it.

        So that they do not use it up at once when windows forget their bytes, half a window has to be paid. Others may
        be charged already, and have no response yet.
        """
        number, settings = exchange.connection, self.world.settings
        is_shared = any(one != number for one in bucket.connections) or any(
            one != number and self._may_wait_for(key, connection) for one, connection in self.ledger.lines.items()
        )
        if key.kind != FETCH or limit.shaping != "sampled" or not is_shared:
            return 0.0
        others = (self.world.ledger.exchanges[one] for one in bucket.at_broker if one != exchange.correlation_id)
        more = sum(len(one.response_of_broker or b"") for one in others)
        return bucket.paid_ms + 1_000 * more / limit.rate - settings.window_ms * (settings.window_num - 1) / 2

    @property
    def _judges(self) -> bool:
        """Whether the bucket of each client is known. Beyond ``max_buckets`` clients share one."""
        settings = self.world.settings
        # Whoever waits in a queue that is switched off leaves it one by one.
        had_queue = settings.has_queue or self.world.scenario.fired.get("queue switched", 0) > 0
        return self._is_known and not had_queue and settings.max_buckets >= MANY_BUCKETS

    @property
    def _windows_ms(self) -> float:
        """For how long a charge may count in sampled windows."""
        return self.world.settings.window_ms * (self.world.settings.window_num + 1)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """What it has at a broker may keep the bucket busy for long."""
        gone, now_ms = self.ledger.lines.get(connection), self.world.clock.now_ms
        self._muted_until_ms.pop(connection, None)
        if gone is None or gone.is_inter_broker:
            return
        waiting = tuple(gone.waiting)
        if waiting:
            self._gone[connection] = gone
        # Those of which a part was forwarded, and that get no response.
        begun = [one for one in gone.open.values() if not one.expects_response and one.forwarded_first_ms >= 0]
        for exchange in (*gone.unread.values(), *waiting, *begun):
            correlation_id = exchange.correlation_id
            key = self._key_of.get(correlation_id)
            if key is None and exchange.forwarded_to is not None and exchange.forwarded_ms < 0:
                # When the request ends, the proxy charges the bytes that it has forwarded.
                found = self._limit(exchange, exchange.forwarded_to)
                key = None if found is None else found[0]
            bucket = None if key is None else self._buckets.get(key)
            if key is None or bucket is None:
                self._over(correlation_id, now_ms)
            else:
                if exchange.forwarded_ms < 0:
                    self._unfinished[correlation_id] = key, exchange
                self._over(correlation_id, self._abandoned_until_ms(bucket, exchange, key, now_ms))

    def _abandoned_until_ms(self, bucket: _Bucket, exchange: "Exchange", key: _Key, now_ms: float) -> float:
        """Return until when a bucket may be busy with a request whose client has gone, and is told nothing."""
        limit = self._rules[key.kind].limit(key.tags)
        if limit is None or key.kind != PRODUCE:  # what a fetch brings, and when, nobody knows
            return max(bucket.busy_until_ms, now_ms + _ABANDONED_MS)
        bucket.charge(len(exchange.request), limit, now_ms, self._windows_ms)
        return bucket.owes_until_ms(limit, now_ms) + _LONGEST_WAY_MS

    def _over(self, correlation_id: int, busy_until_ms: float) -> None:
        """Note that an exchange is over, and until when its bucket may be busy."""
        if correlation_id in self._unsure:
            del self._unsure[correlation_id]
            self._busy_until_ms = max(self._busy_until_ms, busy_until_ms)
        self._since_ms.pop(correlation_id, None)
        for in_line in self._in_line.values():
            in_line.pop(correlation_id, None)
        key = self._key_of.pop(correlation_id, None)
        if key is not None and key in self._buckets:
            bucket = self._buckets[key]
            bucket.at_broker.pop(correlation_id, None)
            bucket.busy_until_ms = max(bucket.busy_until_ms, busy_until_ms)

    def _end_unfinished(self, now_ms: float) -> None:
        """Note that the bucket may owe what the proxy has forwarded of clients that have gone, once it is done."""
        for correlation_id, (key, exchange) in list(self._unfinished.items()):
            if exchange.client_end is None or not exchange.client_end.peer.is_open:
                del self._unfinished[correlation_id]
                if (bucket := self._buckets.get(key)) is not None:
                    bucket.busy_until_ms = self._abandoned_until_ms(bucket, exchange, key, now_ms)

    # -- the verdict --

    def step(self) -> None:
        """Look at the first request and the first response of each connection."""
        now_ms = self.world.clock.now_ms
        if not self._judges:
            self._since_ms.clear()
            return
        for line in self._lines():
            for exchange in (next(iter(line.unread.values()), None), next(line.waiting, None)):
                if exchange is not None:
                    self._look(line, exchange, now_ms)

    def _look(self, connection: "Line", exchange: "Exchange", now_ms: float) -> None:
        """Fail if an exchange has had no reason to wait for too long."""
        is_request = exchange.forwarded_first_ms < 0
        may_wait = self._request_may_wait if is_request else self._response_may_wait
        if _is_on_the_way(exchange, connection.last) or may_wait(connection, exchange, now_ms):
            self._since_ms.pop(exchange.correlation_id, None)
            return
        self._count(exchange, now_ms, "is not forwarded" if is_request else "is answered by its broker, and not here")

    @property
    def _may_drain(self) -> bool:
        """Whether the proxy may be draining a connection: it stops, or the connection is old or leads elsewhere."""
        settings = self.world.settings
        return self.ledger.is_stopping or settings.age_ms is not None or settings.hides_addresses

    def _count(self, exchange: "Exchange", now_ms: float, what: str) -> None:
        """Fail if an exchange has waited for too long since its last reason ended."""
        since_ms = self._since_ms.setdefault(exchange.correlation_id, now_ms)
        stood_still_ms = _STANDS_STILL_MS if self.world.scenario.fired.get("proxy paused") else 0.0
        if now_ms - since_ms > _GRACE_MS + stood_still_ms:
            text = f"{exchange} {what}, and nothing has explained that for {now_ms - since_ms:.0f} ms"
            self.world.fail(self.name, text)

    def _limits(self, kinds: "tuple[str, ...]", exchange: "Exchange") -> list[Limit]:
        began_ms = exchange.sent_ms if exchange.forwarded_first_ms < 0 else exchange.forwarded_first_ms
        since_ms = min(exchange.sent_ms, began_ms) - SETTLE_MS
        return self.ledger.book.limits(exchange, kinds, since_ms=since_ms)

    def _response_may_wait(self, connection: "Line", exchange: "Exchange", now_ms: float) -> bool:
        """Return whether a response is not due, or is one that ``enforcement: delay`` holds back."""
        if exchange.answered_ms < 0 or exchange.passed_ms >= 0:
            return True
        limits = self._limits(KINDS, exchange)
        # A request keeps the limit with which it began, also if the rule is gone and the enforcement is another.
        return any("delay" in (limit.enforcement, self.world.settings.enforcement) for limit in limits)

    def _request_may_wait(self, connection: "Line", exchange: "Exchange", now_ms: float) -> bool:
        """Return whether a request has a reason to wait: its client's throttle time, its bucket, or those before it."""
        last = connection.last
        if getattr(self.world.scenario.actors.get(exchange.client), "manner", "") == HARM:
            return True  # it has no claim to be served soon
        if exchange.sent_ms < 0 or exchange.passed_ms >= 0 or exchange.api_key not in KIND_OF:
            return True
        if last is None or last.forwarded_to is None or (connection.unread and self._may_drain):
            return True
        if last.forwarded_ms < 0:
            return True  # the rest of the one before waits for its turn
        told_until_ms = self._told_until_ms(exchange, connection)
        if now_ms < told_until_ms or self._limits(_OF_REQUESTS, exchange):
            return True
        found = self._limit(exchange, last.forwarded_to)
        if found is None:
            limits = self._limits((PRODUCE, FETCH), exchange)
            return bool(limits) or any(one.api_key not in KIND_OF for one in connection.unread.values())
        if connection.unread:
            return True
        key, limit = found
        self._in_line.setdefault(key, {}).setdefault(exchange.correlation_id, {})
        if exchange.api_key == frames.FETCH and limit.enforcement == "respond":
            # The proxy answers it without records after its max_wait_ms.
            since_ms = max(exchange.sent_ms, told_until_ms)
            if now_ms > since_ms + transfer.fetch.parse_request(exchange.request).max_wait_ms:
                return False
        if self._unsure or now_ms < self._busy_until_ms:
            return True
        return self._is_busy(key, now_ms)

    def _is_busy(self, key: _Key, now_ms: float) -> bool:
        """Return whether a bucket has a reason to let requests wait, as far as is known."""
        self._end_unfinished(now_ms)
        if any(key == other for other, _ in self._unfinished.values()):
            return True
        bucket, exchanges = self._buckets.get(key), self.world.ledger.exchanges
        return bucket is not None and (
            now_ms < bucket.busy_until_ms
            or any(_may_hold(exchanges[one], until_ms, now_ms) for one, until_ms in bucket.at_broker.items())
        )


def _may_hold(exchange: "Exchange", until_ms: float, now_ms: float) -> bool:
    """Return whether a request that was forwarded, perhaps in part, may hold others, which it does until ``until_ms``.

    It holds nobody if no byte of it has come for so long. A piece that waited for its turn holds others anew.
    """
    if exchange.forwarded_ms >= 0:
        return now_ms < until_ms
    has_passed = 0 <= exchange.sent_bytes <= exchange.forwarded_bytes
    lasts_ms = _STALLED_MS if has_passed else _LONGEST_DELAY_MS
    return now_ms < exchange.forwarded_last_ms + lasts_ms


def _is_on_the_way(exchange: "Exchange", last: "Exchange | None") -> bool:
    """Return whether the network may still have what the proxy waits for, or has no room for what it has written."""
    client_end, broker_end = exchange.client_end, None if last is None else last.broker_end
    if client_end is None or broker_end is None or not client_end.is_open or not broker_end.is_open:
        return True
    ends = (client_end, client_end.peer, broker_end, broker_end.peer)
    return any(end.is_on_the_way or not end.is_open for end in ends)


def _has_proxy(connection: "Line") -> bool:
    """Return whether the proxy still has the connection of a client that has left."""
    ends = (exchange.client_end for exchange in connection.waiting)
    return any(end is not None and end.peer.is_open for end in ends)
