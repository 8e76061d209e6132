"""Each response goes to its request, once, in order, and neither of the two is changed but where that is documented."""

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.entities import FETCH
from tests.simulation.checks.same import (
    hosts,
    is_same_fetch,
    is_same_response,
    is_same_share_fetch,
)
from tests.simulation.checks.settings import SETTLE_MS
from tests.simulation.wire import greeting, transfer
from tests.simulation.wire.api import whole_response

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_QUOTA_APIS: Final = frozenset({frames.DESCRIBE_QUOTAS, frames.ALTER_QUOTAS})
_MUTATIONS: Final = frozenset({frames.CREATE_TOPICS, frames.DELETE_TOPICS, frames.CREATE_PARTITIONS})
_ADDRESSED: Final = frozenset({frames.METADATA, frames.FIND_COORDINATOR, frames.DESCRIBE_CLUSTER})
_BROKERS: Final = ("10.0.1.", "10.0.4.")
_IN_BYTES: Final = tuple(host.encode() for host in _BROKERS)
# The newest version in Kafka 4.1 of each API whose requests or responses the proxy reads.
_NEWEST: Final = {0: 13, 1: 18, 17: 1, 19: 7, 20: 6, 36: 2, 37: 3, 48: 1, 49: 1, 78: 2}
_NOT_ENOUGH_REPLICAS: Final = 19
_FETCH_SESSION_ID_NOT_FOUND: Final = 70


class Answers(Check):
    """Follows the order of each connection, and compares the bytes on both sides of the proxy."""

    name: ClassVar[str] = "answers"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        # The exchanges of each connection whose response has not passed, and not arrived.
        self._to_pass: dict[int, deque[int]] = {}
        self._to_come: dict[int, deque[int]] = {}
        # The position of each request among those of its connection, and that of the last forwarded one.
        self._position: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._forwarded: dict[int, int] = {}
        self._at_broker: dict[int, None] = {}
        self._passed_stopping: dict[int, None] = {}  # responses that a stopping proxy has passed on
        self._has_mutation_rules = self._had_queue = False

    def rules_changed(self, *possible: Quotas) -> None:
        """Note which quotas may be the reason for an answer of the proxy itself. Those of before still may be."""
        self._has_mutation_rules |= any("controller_mutation_rate" in rule for quotas in possible for rule in quotas)

    def proxy_started(self, number: int) -> None:
        """A new process opens its ports."""

    # -- requests --

    def sent(self, exchange: "Exchange") -> None:
        """Note the order. Batches behind a refused one are refused as well, also after the queue was switched off."""
        self._had_queue |= self.world.settings.has_queue
        connection, correlation_id = exchange.connection, exchange.correlation_id
        self._sent[connection] = position = self._sent.get(connection, 0) + 1
        self._position[correlation_id] = position
        if exchange.expects_response:
            self._to_pass.setdefault(connection, deque()).append(correlation_id)
            self._to_come.setdefault(connection, deque()).append(correlation_id)

    def forwarding(self, exchange: "Exchange") -> None:
        """Requests of a connection are forwarded in their order, and once."""
        position = self._position[exchange.correlation_id]
        last = self._forwarded.get(exchange.connection, 0)
        if position <= last:
            self.world.fail(self.name, f"{exchange} is forwarded after a later request of its connection, or twice")
        self._forwarded[exchange.connection] = position
        if exchange.passed_ms >= 0:
            self.world.fail(self.name, f"{exchange} is forwarded after it was answered")

    def at_broker(self, exchange: "Exchange", node_id: int, frame: bytes) -> None:
        """The broker gets what the client sent."""
        if exchange.correlation_id in self._at_broker:
            self.world.fail(self.name, f"{exchange} is at broker {node_id} twice")
        self._at_broker[exchange.correlation_id] = None
        # Until a cluster is known, and while no broker of it answers, the port of a broker leads to a bootstrap server.
        may_stand_in = self.world.settings.hides_addresses
        if exchange.broker is not None and exchange.broker != node_id and not may_stand_in:
            text = f"{exchange} was meant for broker {exchange.broker} and is at broker {node_id}"
            self.world.fail(self.name, text)
        request = exchange.request
        if frame == request or exchange.is_inter_broker:
            return  # of a follower's fetch, throttled partitions are left out
        api_key = exchange.api_key
        if api_key == frames.FETCH:
            is_same = is_same_fetch(request, frame)
        elif api_key == frames.SHARE_FETCH:
            is_same = is_same_share_fetch(request, frame)
        else:
            is_same = api_key in _MUTATIONS and self._has_mutation_rules
        if not is_same:
            self.world.fail(self.name, f"{exchange} is changed: {_difference(request, frame)}")

    # -- responses --

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """Responses of a connection pass in the order of its requests, and once."""
        self._take(self._to_pass, exchange, "passes")
        if self.ledger.is_stopping:
            self._passed_stopping[exchange.correlation_id] = None
        if exchange.forwarded_ms < 0 and exchange.forwarded_first_ms >= 0:
            self.world.fail(self.name, f"{exchange} is answered before it was forwarded as a whole")

    def received(self, exchange: "Exchange") -> None:
        """The client gets what the broker sent."""
        self._take(self._to_come, exchange, "is with its client")
        response = exchange.response
        assert response is not None
        if int.from_bytes(response[4:8], "big") != exchange.correlation_id:
            self.world.fail(self.name, f"{exchange} has the response of another request")
        before = exchange.response_of_broker
        if before is None:
            self._judge_own(exchange, response)
            return
        api_key, version = exchange.api_key, exchange.api_version
        if exchange.is_inter_broker or (api_key in _MUTATIONS and self._has_mutation_rules):
            return
        if api_key in _QUOTA_APIS and self.world.settings.administers_quotas:
            return
        if exchange.correlation_id in self._passed_stopping and api_key in _ADDRESSED:
            return  # a proxy that stops opens no more ports, and leaves out brokers that it never had a port for
        if not is_same_response(before, response, api_key, version):
            self.world.fail(self.name, f"the response to {exchange} is changed: {_difference(before, response)}")
        if api_key == frames.API_VERSIONS:
            self._judge_versions(exchange, greeting.api_versions.parse_response(response, version))
        if not self.world.settings.hides_addresses:
            return
        if api_key in _ADDRESSED or any(host in response for host in _IN_BYTES):
            own = [host for host in hosts(whole_response(response, api_key, version)) if host.startswith(_BROKERS)]
            if own:
                self.world.fail(self.name, f"the response to {exchange} has the address of a broker: {own}")

    def _judge_versions(self, exchange: "Exchange", offered: greeting.ApiVersionsResponse) -> None:
        """A version that the proxy must read, and cannot, is offered to no client."""
        too_new = {key: last for key, _, last in offered.apis if last > _NEWEST.get(key, last)}
        if too_new and not offered.error_code:
            self.world.fail(self.name, f"the response to {exchange} offers versions that are too new: {too_new}")

    def _take(self, expected: dict[int, deque[int]], exchange: "Exchange", what: str) -> None:
        queue = expected.get(exchange.connection)
        if not queue or queue[0] != exchange.correlation_id:
            first = f"#{queue[0]} comes first" if queue else "nothing is awaited"
            self.world.fail(self.name, f"a response to {exchange} {what}, and {first}")
        queue.popleft()

    def _judge_own(self, exchange: "Exchange", response: bytes) -> None:
        """The proxy itself has answered. Only a quota, the fair call queue or its own administration may be why."""
        settings, api_key = self.world.settings, exchange.api_key
        if exchange.forwarded_first_ms >= 0 and api_key not in _QUOTA_APIS | _MUTATIONS:
            self.world.fail(self.name, f"{exchange} was forwarded, and answered without its broker")
        if api_key in _QUOTA_APIS:
            is_known = settings.administers_quotas
        elif api_key in _MUTATIONS:
            is_known = self._has_mutation_rules or settings.has_queue
        elif api_key == frames.PRODUCE:
            is_known = self._had_queue and _refuses_all(response, exchange.api_version)
        elif exchange.is_inter_broker:
            return  # see follower_fetches
        elif api_key == frames.FETCH:
            is_known = self._may_be_empty(exchange) and _is_empty(response, exchange)
            if is_known and exchange.api_version > 0 and not exchange.throttle_ms:
                self.world.fail(self.name, f"{exchange} is answered without records or a throttle time")
        else:
            is_known = False
        if not is_known:
            self.world.fail(
                self.name, f"{exchange} is answered by the proxy, and nothing explains it: {response[:80]!r}"
            )

    def _may_be_empty(self, exchange: "Exchange") -> bool:
        since_ms = exchange.sent_ms - SETTLE_MS
        return self.world.settings.has_queue or bool(self.ledger.book.limits(exchange, (FETCH,), since_ms=since_ms))


def _is_empty(response: bytes, exchange: "Exchange") -> bool:
    """Return whether a response has no records and no session. A session of its fetch is then over."""
    found = transfer.fetch.parse_response(response, exchange.api_version)
    return found.error_code in (0, _FETCH_SESSION_ID_NOT_FOUND) and not found.session_id and not found.topics


def _refuses_all(response: bytes, version: int) -> bool:
    found = transfer.produce.parse_response(response, version)
    return all(part.error_code == _NOT_ENOUGH_REPLICAS for topic in found.topics for part in topic.partitions)


def _difference(before: bytes, after: bytes) -> str:
    at = next((at for at, (one, two) in enumerate(zip(before, after, strict=False)) if one != two), None)
    if at is None:
        at = min(len(before), len(after))
    return (
        f"{len(before)} B became {len(after)} B, and from byte {at} on "
        f"{before[at : at + 24].hex(' ')} became {after[at : at + 24].hex(' ')}"
    )
