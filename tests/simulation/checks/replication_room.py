"""What lags is fetched again when its rates have room: nothing is left out for long after all is paid.

A rate has room when all that has passed is paid, one response after the other, and no other fetch is at its leader, for
which something may be set aside. Then at least one partition that lags is asked for.
"""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.replication import (
    FOLLOWER,
    LEADER,
    Bucket,
    FollowerCheck,
    Key,
    asked_of,
    is_of_follower,
    told_by,
)
from tests.simulation.wire.transfer import FetchedPartition

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# Followers wait in a line. Who does not come in time loses the place.
_LINE_MS: Final = 1_000.0
# Kafka's measure goes back for eleven seconds, and a slot of it for one more.
_MEASURED_MS: Final = 13_000.0
# An entry of a response has so much besides its records, at most.
_ENTRY_BYTES: Final = 200
# The proxy may hear of a closed connection so late.
_NOTICED_MS: Final = 2_000.0
# After these the proxy hears of a closed connection much later, or never, or is late itself.
_UNKNOWN: Final = (
    "connection cut", "host unreachable", "slow network", "tiny windows", "proxy paused", "no descriptors",
)  # fmt: skip


class ReplicationRoom(FollowerCheck):
    """Keeps until when each rate may owe something, and what is at the leaders."""

    name: ClassVar[str] = "room for replicas"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._told: dict[int, dict[Key, FetchedPartition]] = {}  # by connection
        self._busy_until_ms: dict[Bucket, float] = {}
        self._at_leader: dict[int, Exchange] = {}  # by connection
        self._paid_ms = 0.0  # when all of before the last change of limits is paid
        self._gone: dict[int, Exchange] = {}  # fetches at leaders whose followers have hung up

    def _follow_settings(self) -> None:
        """What is owed by another rate takes another time. What passed without a limit is measured, too."""
        rates = self._limits.rates
        super()._follow_settings()
        if self._limits.rates is rates:
            return
        now_ms = self.world.clock.now_ms
        for bucket, until_ms in self._busy_until_ms.items():
            before, after = rates.get(bucket.side, 0.0), self._limits.rates.get(bucket.side, inf)
            self._busy_until_ms[bucket] = now_ms + max(0.0, until_ms - now_ms) * before / after
        self._paid_ms = now_ms + _MEASURED_MS + max([*self._busy_until_ms.values(), now_ms]) - now_ms

    def proxy_started(self, number: int) -> None:
        """A new process owes nothing."""
        super().proxy_started(number)
        self._paid_ms = self._since_ms
        self._busy_until_ms.clear()
        self._at_leader.clear()
        self._gone.clear()

    # -- what uses up a rate --

    def _both(self, exchange: "Exchange") -> tuple[Bucket, Bucket]:
        _, _, leader, follower = self._place(exchange, ("", 0))
        return Bucket(LEADER, leader), Bucket(FOLLOWER, follower)

    def _owe(self, exchange: "Exchange") -> None:
        """Let the rates of a leader and of a follower owe what a response has brought."""
        now_ms = self.world.clock.now_ms
        for bucket, size_bytes in self._charged(exchange).items():
            until_ms = max(self._busy_until_ms.get(bucket, 0.0), now_ms)
            self._busy_until_ms[bucket] = until_ms + 1_000 * size_bytes / self._limits.rates[bucket.side]

    def _charged(self, exchange: "Exchange") -> dict[Bucket, int]:
        """Return as much as the proxy may charge for a leader's response: what lags, or all if replicas are listed."""
        charged: dict[Bucket, int] = {}
        response = exchange.response_of_broker
        if response is None:
            return charged
        for key, one in told_by(response, exchange.api_version)[1].items():
            is_lagging = exchange.detail.get(key, 0) < one.high_watermark
            if one.records and (is_lagging or self._limits.lists is not None):
                for bucket in self._buckets(exchange, key):
                    charged[bucket] = charged.get(bucket, 0) + len(one.records) + _ENTRY_BYTES
        return charged

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """What the leader has sent counts, which is no less than what is passed on."""
        if is_of_follower(exchange):
            self._follow_settings()
            if exchange.forwarded_first_ms >= 0:
                self._at_leader.pop(exchange.connection, None)
                self._owe(exchange)
            elif asked_of(exchange.request)[0].session_epoch <= 0:
                self._judge(exchange, exchange.passed_ms, ())

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """What its last fetch brings counts if the proxy gets it before it hears that the follower has gone."""
        super().connection_closed(client, connection, by_client=by_client)
        self._told.pop(connection, None)
        exchange = self._at_leader.pop(connection, None)
        if exchange is not None:
            self._follow_settings()
            self._gone[exchange.correlation_id] = exchange
            for bucket in self._both(exchange):
                busy_ms = self._busy_until_ms.get(bucket, 0.0)
                self._busy_until_ms[bucket] = max(busy_ms, self.world.clock.now_ms + _NOTICED_MS)

    def _settle_gone(self) -> None:
        """Let the rates owe what came for followers that had hung up, once nothing more can come."""
        for correlation_id, exchange in list(self._gone.items()):
            if exchange.has_open_broker:
                continue
            del self._gone[correlation_id]
            response, end = exchange.response_of_broker, exchange.broker_end
            if response is not None and (end is None or end.received_bytes >= exchange.response_at + len(response)):
                self._owe(exchange)

    def received(self, exchange: "Exchange") -> None:
        """Remember what the follower was told."""
        if is_of_follower(exchange) and exchange.response is not None:
            error, answered = told_by(exchange.response, exchange.api_version)
            if exchange.forwarded_first_ms < 0 and asked_of(exchange.request)[0].session_epoch > 0 and not error:
                self._judge(exchange, exchange.passed_ms, ())  # only the response says that the session goes on
            self._told.setdefault(exchange.connection, {}).update(answered)

    # -- the verdict --

    def forwarding(self, exchange: "Exchange") -> None:
        """What is set aside for this fetch is nobody else's."""
        if is_of_follower(exchange):
            self._at_leader[exchange.connection] = exchange

    def at_broker(self, exchange: "Exchange", node_id: int, frame: bytes) -> None:
        """Judge what was left out of a fetch."""
        super().at_broker(exchange, node_id, frame)
        if is_of_follower(exchange) and frame != exchange.request:
            self._judge(exchange, exchange.forwarded_first_ms, asked_of(frame)[1])

    def _judge(self, exchange: "Exchange", at_ms: float, forwarded: Iterable[Key]) -> None:
        """Fail if all that lags was left out, and something of it had room."""
        fired = self.world.scenario.fired
        if not self._is_known(exchange) or any(fired.get(kind) for kind in _UNKNOWN):
            return
        self._settle_gone()
        told = self._told.get(exchange.connection, {})
        lagging = {
            key: list(self._buckets(exchange, key))
            for key, part in self._fetched.get(exchange.connection, {}).items()
            if key in told and part.offset < told[key].high_watermark
        }
        if lagging.keys() & set(forwarded):
            return
        for key, buckets in lagging.items():
            since_ms = max([self._room_at_ms(exchange, bucket) for bucket in buckets], default=at_ms)
            if at_ms > since_ms + _LINE_MS:
                text = f"{exchange} is left without {key}, for which there is room since {at_ms - since_ms:.0f} ms"
                self.world.fail(self.name, text)

    def _room_at_ms(self, exchange: "Exchange", bucket: Bucket) -> float:
        """Return from when on a rate has room for certain."""
        for other in (*self._at_leader.values(), *self._gone.values()):
            if other is not exchange and bucket in self._both(other):
                return self.world.clock.now_ms
        return max(self._busy_until_ms.get(bucket, 0.0), self._paid_ms)
