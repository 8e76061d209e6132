"""The bytes of each bucket, over any window, are within the bound of its quota.

Produce is counted when the proxy begins to forward it, and a fetch when the broker answers it. Both are at least as
early as the proxy's own charge, and an earlier charge never leaves less credit later. What the proxy may not have
charged yet, because an answer is still on its way, is left out of the verdict until it is known.
"""

from collections import deque
from collections.abc import Iterator
from math import inf, log
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tests.simulation.checks import frames
from tests.simulation.checks.broker_names import may_have_two_buckets
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.disturbance import is_undisturbed
from tests.simulation.checks.entities import FETCH, KIND_OF, PRODUCE, Limit, Tags
from tests.simulation.checks.flow import Flow, Suspicion
from tests.simulation.checks.possible_rules import PossibleRules
from tests.simulation.checks.settings import SETTLE_MS, Settings
from tests.simulation.wire import transfer

if TYPE_CHECKING:
    from tests.simulation.ledger import Entity, Exchange
    from tests.simulation.world import World

_KINDS: Final = (PRODUCE, FETCH)
# A fetch may always ask for what its quota gives in this time.
_LEAST_FETCH_MS: Final = 50
# At the limit, a connection may ask for what its share of the quota gives in this time, to get more than one batch.
_WHOLE_BATCHES_MS: Final = 2_000
# A request that stalls, or that its broker does not answer, delays others for as long as its bytes are worth, and for
# no longer than this. It is charged when it ends, and all wait for it then.
_LONGEST_DELAY_MS: Final = 25_000
# If no byte of a request comes for a second, it reserves nothing any more. For a minute, requests then reserve only
# what has arrived of them.
_STALLS_MS: Final = 900.0
_DOUBT_MS: Final = 62_000.0
# Until the proxy has noticed that a client has gone.
_LONGEST_WAY_MS: Final = 2_000.0


class BucketKey(NamedTuple):
    """A bucket: a broker, a kind of quota, and whose bytes are counted."""

    node_id: int
    kind: str
    tags: Tags


class _Charge:
    """The bytes of one exchange in one bucket."""

    __slots__ = ("asked", "flow", "is_doubted", "is_old", "key", "over", "room", "unsure")

    def __init__(self, key: BucketKey, flow: Flow) -> None:
        self.key = key
        self.flow = flow
        self.unsure = 0  # bytes that are taken from the flow, and that the proxy may not have charged yet
        self.over = ""  # what is wrong if this ShareFetch asks for records
        self.asked = 0  # what a fetch asks for while it is at the broker
        self.room = inf  # how many bytes the quota has left for it, at most
        self.is_doubted = False  # whether the rest of a request of its bucket has not come for a second
        self.is_old = False  # whether an earlier limit, which its bucket may still have, let it through


class QuotaBounds(Check):
    """Keeps a ``Flow`` for each bucket that has a limit."""

    name: ClassVar[str] = "quota bounds"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._settings: Settings = world.settings
        self._rules = {kind: PossibleRules(((),), kind, self._settings) for kind in _KINDS}
        # The rules of before, each until when it may hold.
        self._rules_before: list[tuple[float, dict[str, PossibleRules]]] = []
        self._has_rules = False
        self._changed_ms = 0.0  # when the rules last changed
        self.flows: dict[BucketKey, Flow] = {}
        # The charges in flight of each bucket, by correlation id.
        self._in_flight: dict[BucketKey, dict[int, _Charge]] = {}
        self._charges: dict[int, _Charge] = {}
        self._of_connection: dict[int, dict[int, None]] = {}
        self._dialled: set[int] = set()
        self._suspicions: list[Suspicion] = []
        self._buckets_seen: dict[tuple[int, str], set[Tags]] = {}
        self._begun: dict[int, Exchange] = {}  # the Produces that are not complete
        self._doubts_until_ms = 0.0
        self._cut_off: deque[tuple[float, int]] = deque()  # requests that are surely charged, and from when on

    # -- which bucket --

    def limit_of(self, kind: str, entity: "Entity") -> tuple[Tags, Limit | None]:
        """Return the tags of an entity's bucket, and its limit if one is enforced."""
        return self._rules[kind].bucket(entity.user, entity.client_id)

    def _may_have_other_bucket(self, kind: str, entity: "Entity", tags: Tags) -> bool:
        """Return whether a client may be charged to another bucket, or to none, as by the rules of before."""
        if may_have_two_buckets(self.world):
            return True
        now_ms = self.world.clock.now_ms
        while self._rules_before and self._rules_before[0][0] <= now_ms:
            del self._rules_before[0]
        for _, rules in self._rules_before:
            tags_before, limit = rules[kind].bucket(entity.user, entity.client_id)
            if limit is None or tags_before != tags:
                return True
        return False

    def rules_changed(self, *possible: Quotas) -> None:
        """Apply new limits to all buckets."""
        before, settings = self._settings, self.world.settings
        self._settings = settings
        now_ms = self._changed_ms = self.world.clock.now_ms
        if self._has_rules:
            self._rules_before.append((now_ms + SETTLE_MS, self._rules))
        self._has_rules = True
        self._rules = {kind: PossibleRules(possible, kind, settings) for kind in _KINDS}
        for key in list(self.flows):
            limit, flow = self._rules[key.kind].limit(key.tags), self.flows[key]
            if limit == flow.limit and settings == before:
                continue
            in_flight = self._in_flight.get(key, {}).values()
            for charge in in_flight:
                charge.asked = 0  # the limit of before allowed it
                charge.is_old = True
            if limit is None:
                del self.flows[key]
            else:
                flow.change(limit, settings, now_ms, SETTLE_MS, unsure=sum(charge.unsure for charge in in_flight))

    def proxy_started(self, number: int) -> None:
        """Begin anew: a new process knows nothing of the bytes of before, and reads the rules as they are now."""
        self._forget()
        self._rules_before.clear()
        self._has_rules = False

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """Begin anew."""
        self._forget()

    def _forget(self) -> None:
        self.flows.clear()
        self._in_flight.clear()
        self._charges.clear()
        self._of_connection.clear()
        self._suspicions.clear()
        self._buckets_seen.clear()
        self._begun.clear()
        self._doubts_until_ms = 0.0
        self._cut_off.clear()

    # -- what passes --

    def forwarding(self, exchange: "Exchange") -> None:
        """Judge whether the bucket was out of debt, and take the bytes of a Produce from it."""
        connection = exchange.connection
        is_first = connection not in self._dialled
        if is_first:
            self._dialled.add(connection)
        kind = KIND_OF.get(exchange.api_key)
        if kind is None or exchange.is_inter_broker or exchange.forwarded_to is None:
            return
        tags, limit = self.limit_of(kind, exchange.entity)
        now_ms = self.world.clock.now_ms
        if kind is PRODUCE:
            self._begun[exchange.correlation_id] = exchange
        if limit is None or self._may_have_other_bucket(kind, exchange.entity, tags):
            return
        while self._cut_off and self._cut_off[0][0] <= now_ms:
            self._settle(self.world.ledger.exchanges[self._cut_off.popleft()[1]], is_charged=True)
        key = BucketKey(exchange.forwarded_to, kind, tags)
        flow = self.flows.get(key)
        if flow is None:
            flow = self.flows[key] = Flow(limit, self._settings, now_ms)
            self._buckets_seen.setdefault((key.node_id, kind), set()).add(tags)
        charge = self._charges[exchange.correlation_id] = _Charge(key, flow)
        self._in_flight.setdefault(key, {})[exchange.correlation_id] = charge
        self._of_connection.setdefault(connection, {})[exchange.correlation_id] = None
        waited_ms = now_ms - exchange.sent_ms
        amount = len(exchange.request) - 4 if kind is PRODUCE else 0
        is_dialled = is_first and waited_ms > 0
        charge.is_old = is_dialled and exchange.sent_ms < self._changed_ms
        charge.is_doubted = self._doubts(now_ms)
        if not is_dialled and not self.ledger.is_stopping:
            charge.room = self._room(charge, now_ms)
            suspicion = self._suspicion_of(exchange, charge, now_ms)
            if suspicion is not None and exchange.api_key == frames.SHARE_FETCH:
                charge.over = suspicion.text  # the proxy may have made it ask for nothing
            elif suspicion is not None:
                self._suspicions.append(suspicion)
                self._suspicions = list(self._still_open())
        if kind is PRODUCE:
            charge.unsure = amount
            flow.take(amount, now_ms)
        if is_dialled:
            # The request may have been let through long ago, and have waited since for the broker to be dialled. The
            # time that its bytes are worth has then passed for others.
            flow.credit += min(amount, flow.rate * waited_ms / 1_000)

    def _room(self, charge: _Charge, now_ms: float) -> float:
        """Return how many more bytes the quota of a bucket gives at once now, at most."""
        flow = charge.flow
        flow.advance(now_ms)
        if not flow.is_known:
            return inf
        unsure = sum(other.unsure for other in self._in_flight[charge.key].values())
        return flow.credit + unsure + flow.tolerance

    def _suspicion_of(self, exchange: "Exchange", charge: _Charge, now_ms: float) -> Suspicion | None:
        """Return what is wrong if a request begins while its bucket is in debt."""
        flow, key = charge.flow, charge.key
        debt = flow.debt(now_ms)
        if debt <= 0 or len(self._buckets_seen.get((key.node_id, key.kind), ())) >= self._settings.max_buckets:
            return None
        waits_for: set[int] = set()
        for correlation_id, other in self._in_flight[key].items():
            if not other.unsure:
                continue
            pending = self.world.ledger.exchanges[correlation_id]
            began_ms = pending.forwarded_first_ms
            delay_ms = min(other.unsure * 1_000 / flow.rate, _LONGEST_DELAY_MS)
            since_ms = now_ms - pending.forwarded_last_ms if correlation_id in self._begun else 0.0
            has_stalled = max(pending.stalled_ms, since_ms) >= _STALLS_MS
            holds = not (other.is_old or other.is_doubted or has_stalled) and now_ms - began_ms < delay_ms
            if key.kind is PRODUCE and holds:
                waits_for.add(correlation_id)
            else:
                debt -= other.unsure
        if debt <= 0:
            return None
        text = (
            f"{exchange} begins or goes on at broker {key.node_id}, and its bucket {key.tags} of {key.kind} at "
            f"{flow.limit.rate:,.0f} B/s ({flow.limit.shaping}) is {debt:,.0f} B over what the quota has given"
        )
        return Suspicion(debt, text, waits_for)

    def _doubts(self, now_ms: float) -> bool:
        """Return whether a request that begins now may reserve no more than what has arrived of it.

        While rules change nobody knows which bucket a request has that stalls. So it counts for all of them.
        """
        for exchange in self._begun.values():
            stalled_ms = max(exchange.stalled_ms, now_ms - exchange.forwarded_last_ms)
            if stalled_ms >= _STALLS_MS:
                self._doubts_until_ms = now_ms + _DOUBT_MS
        return now_ms < self._doubts_until_ms

    def at_broker(self, exchange: "Exchange", node_id: int, frame: bytes) -> None:
        """Judge what a fetch asks for."""
        charge = self._charges.get(exchange.correlation_id)
        if charge is None or exchange.answered_ms >= 0 or self.ledger.is_stopping:
            return
        if charge.over and transfer.share_fetch.parse_request(frame).max_bytes > 0:
            self.world.fail(self.name, charge.over)
        if exchange.api_key != frames.FETCH or charge.is_old:
            return
        asked = charge.asked = transfer.fetch.parse_request(frame).max_bytes
        flow = charge.flow
        exchanges = self.world.ledger.exchanges
        others = [
            other
            for correlation_id, other in self._in_flight.get(charge.key, {}).items()
            if exchanges[correlation_id].has_open_broker  # a broker that is gone answers nothing
        ]
        least = max(1.0, flow.rate * _LEAST_FETCH_MS / 1_000)
        at_limit = flow.rate * _WHOLE_BATCHES_MS / 1_000
        # Each asks for its share of those that are there. So the first may have asked for all, the second for a half...
        most = max(flow.most_fetched, at_limit) * (1 + log(len(others) or 1)) + least * len(others) + 2
        total = sum(other.asked for other in others)
        if total > most and asked > least + 1:
            text = f"{exchange} asks for {asked:,} B, with others for {total:,} B, and the quota allows {most:,.0f} B"
            self.world.fail(self.name, text)
        most = max(least, at_limit, charge.room) + 2
        if asked > most:
            text = f"{exchange} asks for {asked:,} B, and the quota has no more than {most:,.0f} B left"
            self.world.fail(self.name, text)

    def continuing(self, exchange: "Exchange") -> None:
        """Judge whether the bucket is out of debt, since the request reserves nothing any more."""
        charge, now_ms = self._charges.get(exchange.correlation_id), self.world.clock.now_ms
        is_judged = charge is not None and charge.key.kind is PRODUCE and not (charge.is_old or self.ledger.is_stopping)
        has_rules_of_now = exchange.forwarded_first_ms > self._changed_ms + SETTLE_MS
        if (
            is_judged and has_rules_of_now and is_undisturbed(self.world)
        ):  # otherwise the proxy may have stood still, and not the client
            assert charge is not None
            suspicion = self._suspicion_of(exchange, charge, now_ms)
            if suspicion is not None:
                self._suspicions.append(suspicion)
                self._suspicions = list(self._still_open())

    def forwarded(self, exchange: "Exchange") -> None:
        """A Produce without an answer is charged when it is forwarded as a whole."""
        if exchange.correlation_id in self._begun:
            self._doubts(self.world.clock.now_ms)
            del self._begun[exchange.correlation_id]
        if not exchange.expects_response:
            self._settle(exchange, is_charged=True)

    def answered(self, exchange: "Exchange") -> None:
        """Take the bytes of a fetched response from its bucket."""
        charge = self._charges.get(exchange.correlation_id)
        if charge is None or exchange.api_key == frames.PRODUCE or exchange.response_of_broker is None:
            return
        charge.asked = 0
        if charge.is_old and exchange.forwarded_first_ms < self.world.clock.now_ms - SETTLE_MS:
            return  # the bucket takes its new limit at the next request, and may forget this charge then
        charge.unsure = max(0, len(exchange.response_of_broker) - 5)
        charge.flow.take(charge.unsure, self.world.clock.now_ms)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """The proxy has surely charged this exchange."""
        self._settle(exchange, is_charged=True)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Nobody knows whether the proxy has charged what was on its way. Say no, which is never a false alarm."""
        self._doubts(self.world.clock.now_ms)
        for correlation_id in [one for one, exchange in self._begun.items() if exchange.connection == connection]:
            del self._begun[correlation_id]
        for correlation_id in list(self._of_connection.pop(connection, ())):
            exchange = self.world.ledger.exchanges[correlation_id]
            if not self._keep_cut_off(exchange, by_client=by_client):
                self._settle(exchange, is_charged=False)

    def _keep_cut_off(self, exchange: "Exchange", *, by_client: bool) -> bool:
        """Keep what has come of a Produce, if it is more than its limit allows in a window. It is charged then.

        Only faults may keep the proxy from noticing that its client has gone.
        """
        charge = self._charges[exchange.correlation_id]
        flow, has_come = charge.flow, exchange.forwarded_bytes
        window_bytes = flow.limit.rate * self._settings.window_ms * (self._settings.window_num - 1) / 1_000
        lacks_rest = exchange.forwarded_ms < 0 and exchange.sent_ms < 0  # otherwise it is charged when it is forwarded
        is_cut_off = charge.unsure > 0 and lacks_rest and has_come > window_bytes
        if not (is_cut_off and is_undisturbed(self.world) and by_client and exchange.has_open_broker):
            return False
        now_ms = self.world.clock.now_ms
        flow.give_back(charge.unsure - has_come, now_ms)
        charge.unsure = has_come
        charge.is_doubted = True
        self._cut_off.append((now_ms + _LONGEST_WAY_MS, exchange.correlation_id))
        return True

    def _settle(self, exchange: "Exchange", *, is_charged: bool) -> None:
        correlation_id = exchange.correlation_id
        charge = self._charges.pop(correlation_id, None)
        if charge is None:
            return
        self._in_flight.get(charge.key, {}).pop(correlation_id, None)
        self._of_connection.get(exchange.connection, {}).pop(correlation_id, None)
        if is_charged:
            charge.flow.charged(exchange.forwarded_first_ms)
        elif charge.unsure:
            charge.flow.give_back(charge.unsure, self.world.clock.now_ms)
        for suspicion in self._suspicions:
            if correlation_id in suspicion.waits_for:
                suspicion.waits_for.discard(correlation_id)
                if not is_charged:
                    suspicion.excess -= charge.unsure
        if self._suspicions:
            self._suspicions = list(self._still_open())

    def _still_open(self) -> Iterator[Suspicion]:
        for suspicion in self._suspicions:
            if suspicion.excess <= 0:
                continue
            if not suspicion.waits_for:
                self.world.fail(self.name, suspicion.text)
            yield suspicion
