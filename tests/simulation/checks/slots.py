"""The slots of the fair call queue: no more requests are at a broker than may be, and no slot is idle while one waits.

Whoever waits also has its turn: of 15 slots that become free, each level with a request gets one. Within a level one
request of each user leaves in turn. So no more than 15 requests for each user, all sent later, can come before another.

The check counts connections, as the queue does. It judges where it knows the queue: one listener for each broker, a
fixed number of slots, and no fault by which the proxy is late.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.broker_names import may_have_two_buckets
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.disturbance import Disturbances
from tests.simulation.checks.settings import SETTLE_MS

if TYPE_CHECKING:
    from tests.simulation.ledger import Entity, Exchange, Line
    from tests.simulation.world import World

_GRACE_MS: Final = 1_000.0
# Fetches that wait for data keep their slot for 20 ms.
_FETCH_MS: Final = 500.0
# A Produce with acks=-1 that takes longer than this may wait for followers, and lose its slot.
_FOLLOWERS_MS: Final = 15.0
# The slot of a Produce with acks=0 may be held for as long as an answered one has taken.
_HELD_MS: Final = 2_500.0
# How long the last byte of a response may be on its way.
_RESPONSE_MS: Final = 3_000.0
# A request whose rest takes longer than this to arrive may lose its slot.
_UPLOAD_MS: Final = 500.0
NOBODY: Final = "ANONYMOUS"
TURNS: Final = 15  # 8 + 4 + 2 + 1
# These wait for the slots that are judged. Others need none, or have slots of their own.
_JUDGED: Final = frozenset({frames.PRODUCE, frames.METADATA})
_FETCHES: Final = frozenset({frames.FETCH, frames.SHARE_FETCH})
# To charge these the proxy asks the broker first.
_MUTATIONS: Final = frozenset({frames.CREATE_TOPICS, frames.DELETE_TOPICS, frames.CREATE_PARTITIONS})
# By these the proxy is late, or the queue is another one.
_LATE: Final = ("proxy paused", "slow network", "tiny windows", "queue switched")


def uses_slot(line: "Line", now_ms: float) -> bool:
    """Return whether a connection may have a slot."""
    first = next(line.at_broker, None)
    if first is None or line.last is None or not line.last.has_open_broker:
        return False
    if first.answered_ms >= 0:
        is_lost = first.broker_end is not None and first.broker_end.link.is_cut
        return is_lost or now_ms - first.answered_ms < _RESPONSE_MS
    return first.api_key not in _FETCHES or now_ms - first.forwarded_first_ms < _FETCH_MS


def _may_hold_slots(line: "Line", now_ms: float) -> bool:
    """Return whether a connection may have slots although it awaits nothing."""
    last = line.last
    return last is not None and not last.expects_response and now_ms - last.forwarded_ms < _HELD_MS


def first_waiting(line: "Line") -> "Exchange | None":
    """Return the first request of a connection that was not forwarded, unless its client has left."""
    return None if line.is_gone else next(line.waiting, None)


def is_free(line: "Line", exchange: "Exchange") -> bool:
    """Return whether a connection had nothing at the broker before this request."""
    return all(one is exchange for one in line.at_broker)


class _Wait:
    """A request that surely waits for a slot: how many that were sent later came before it."""

    __slots__ = ("free_since_ms", "since_ms", "turns", "users")

    def __init__(self, now_ms: float) -> None:
        self.since_ms = now_ms
        self.free_since_ms: float | None = None
        self.turns = 0
        self.users: dict[tuple[str, ...], None] = {}  # who came before it


class Slots(Check):
    """Counts the requests at each broker, and looks four times a second at who waits."""

    name: ClassVar[str] = "slots of the queue"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._lines: dict[int, Line] = {}
        self._waits: dict[int, dict[int, _Wait]] = {}  # by broker and correlation id

    def rules_changed(self, *possible: Quotas) -> None:
        """Nobody knows any more which requests wait for a quota."""
        self._waits.clear()

    def proxy_started(self, number: int) -> None:
        """A new process has no queue yet."""
        self._lines.clear()
        self._waits.clear()

    # -- what passes --

    def sent(self, exchange: "Exchange") -> None:
        """It waits."""
        if self.world.settings.max_in_flight is not None:
            self._lines[exchange.connection] = exchange.line

    def forwarding(self, exchange: "Exchange") -> None:
        """It has a slot, or uses that of its connection."""
        line, waits = exchange.line, self._waits.get(exchange.forwarded_to or 0)
        if waits and exchange.connection in self._lines:
            waits.pop(exchange.correlation_id, None)
            if exchange.api_key in _JUDGED and is_free(line, exchange):
                for wait in waits.values():
                    wait.turns = wait.turns + 1 if exchange.sent_ms > wait.since_ms else 0
                    wait.users[self._who(exchange.entity)] = None

    def forwarded(self, exchange: "Exchange") -> None:
        """Count who has a request at the broker."""
        most = self.world.settings.max_in_flight
        if exchange.connection not in self._lines or most is None:
            return
        if exchange.api_key != frames.PRODUCE or self._is_unknown():
            return
        if may_have_two_buckets(self.world):
            most *= 2  # each name has a queue of its own then
        holders = [one for one in self._lines.values() if self._surely_holds(one, exchange.forwarded_to)]
        if len(holders) > most:
            others = [next(one.at_broker) for one in holders]
            text = f"{exchange} is forwarded, and {len(holders)} connections have requests at its broker: {others}"
            self.world.fail(self.name, f"{text}; {most} may have")

    def _who(self, entity: "Entity") -> tuple[str, ...]:
        """Return who takes turns with others. A client without a login has no name that can be relied on."""
        is_user = self.world.settings.queues_users and entity.user != NOBODY
        return (entity.user,) if is_user else tuple(entity)

    # -- the verdict --

    def _is_unknown(self) -> bool:
        scenario, settings = self.world.scenario, self.world.settings
        if any(hasattr(actor, "manner") for actor in scenario.actors.values()):
            return True  # what strangers send is in no ledger, and may use slots
        if self.ledger.is_stopping or settings.hides_addresses or settings.max_in_flight is None:
            return True
        return any(scenario.fired.get(kind) for kind in _LATE) or scenario.setup.replication > 1

    def _surely_holds(self, line: "Line", node_id: int | None) -> bool:
        first = next(line.at_broker, None)
        if first is None or line.slowest_ms > _UPLOAD_MS or line.is_gone or first.forwarded_to != node_id:
            return False
        if (
            first.api_key not in _JUDGED
            or first.forwarded_ms < 0
            or first.answered_ms >= 0
            or not first.has_open_broker
        ):
            return False
        if getattr(first.detail, "acks", 1) < 0 and self.world.clock.now_ms - first.forwarded_ms > _FOLLOWERS_MS:
            return False
        broker_end = first.broker_end
        if broker_end is not None and (broker_end.has_ended or not broker_end.peer.is_open):
            return False  # the broker has hung up, and a part of its response may have given the slot back
        end = first.client_end
        return end is not None and end.peer.is_open and self._disturbances.is_well_behaved(first.client)

    def step(self) -> None:
        """Look at who waits."""
        now_ms = self.world.clock.now_ms
        if not self._lines:
            return
        if self._is_unknown():
            self._waits.clear()
            return
        for connection in [one for one, line in self._lines.items() if line.is_gone and not uses_slot(line, now_ms)]:
            del self._lines[connection]
        # A slot may be given to who is still being connected.
        waiting = [(line, first) for line in self._lines.values() if (first := first_waiting(line)) is not None]
        is_connecting = any(line.last is None for line, _ in waiting)
        seen: dict[int, dict[int, _Wait]] = {}
        for line, exchange in waiting:
            if line.last is None or line.last.forwarded_to is None:
                continue
            if exchange.api_key in _MUTATIONS:
                is_connecting = True
            if self._surely_waits(exchange, line, now_ms):
                node_id = line.last.forwarded_to
                wait = self._waits.get(node_id, {}).get(exchange.correlation_id) or _Wait(now_ms)
                seen.setdefault(node_id, {})[exchange.correlation_id] = wait
        self._waits = seen
        for node_id, waits in seen.items():
            self._judge(node_id, waits, now_ms, is_connecting=is_connecting)

    def _surely_waits(self, exchange: "Exchange", line: "Line", now_ms: float) -> bool:
        """Return whether a request has arrived at the proxy, and nothing but the queue can hold it back."""
        last, end = line.last, exchange.client_end
        if exchange.api_key not in _JUDGED or exchange.sent_ms < 0 or now_ms < line.told_until_ms:
            return False
        if any(line.at_broker) or last is None or not last.has_open_broker:
            return False
        if end is None or not end.is_open or end.is_on_the_way:
            return False
        if not self._disturbances.is_well_behaved(exchange.client):
            return False
        # Nobody is told for how long a request without a response mutes its connection. It may have another client-id.
        may_mute = (exchange,) if last.expects_response else (exchange, last)
        return not any(self.ledger.book.limits(one, since_ms=exchange.sent_ms - SETTLE_MS) for one in may_mute)

    def _judge(self, node_id: int, waits: dict[int, _Wait], now_ms: float, *, is_connecting: bool) -> None:
        most = self.world.settings.max_in_flight or 0
        used = sum(
            line.last is not None and line.last.forwarded_to == node_id and uses_slot(line, now_ms)
            for line in self._lines.values()
        )
        is_held = any(_may_hold_slots(line, now_ms) for line in self._lines.values())
        is_roomy = self.world.settings.queue_capacity is None
        for correlation_id, wait in waits.items():
            exchange = self.world.ledger.exchanges[correlation_id]
            if used >= most or is_connecting or is_held:
                wait.free_since_ms = None
            elif wait.free_since_ms is None:
                wait.free_since_ms = now_ms
            elif now_ms - wait.free_since_ms > _GRACE_MS:
                text = f"{exchange} waits for {now_ms - wait.since_ms:.0f} ms, and broker {node_id} has a free slot"
                self.world.fail(self.name, f"{text}: {used} of {most} are in use")
            most_turns = TURNS * (1 + len(wait.users))
            if is_roomy and wait.turns > most_turns:
                text = f"{exchange} waits for {now_ms - wait.since_ms:.0f} ms, and {wait.turns} that came later"
                self.world.fail(self.name, f"{text} were forwarded before it; {most_turns} may be")
