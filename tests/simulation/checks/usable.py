"""What a consumer's quota is charged for, the consumer can use.

A broker ends a response where ``max_bytes`` ends, and the consumer throws the piece of a batch at its end away. It is
charged nevertheless, and so is what surrounds the records. So the proxy has to choose how much a fetch asks for. The
check takes consumers that are alone in their bucket, at their limit, and behind by more than any fetch may bring.

What can be reached depends on the batches. One whole batch is always to be had: its response has some 180 bytes
besides, if the topic has three partitions. That is 92 % for batches of 2,000 bytes on average. Smaller ones come many
at a time, up to two seconds of the quota: 16 KiB at the lowest limit that is judged. The piece of a batch, some 1,000
bytes on average, and what surrounds the records take 7 % of them. The proxy guesses from a few samples, and its choice
may be 2 % worse than the best. So 85 % hold for all batches of the simulation. Who asks for a number that has nothing
to do with the batches gets 63 % where it is 1.6 batches.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.entities import FETCH, Tags
from tests.simulation.checks.possible_rules import PossibleRules
from tests.simulation.clients.consumer import Consumer
from tests.simulation.wire import records, transfer

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_FETCHES: Final = (frames.FETCH, frames.SHARE_FETCH)
_LEAST_SHARE: Final = 0.85
_MANY: Final = 30  # responses; a piece now and then says nothing
_LEAST_RATE: Final = 8_000.0  # below it two seconds of the quota are few batches
_BEHIND_MS: Final = 6_000.0  # no fetch may bring as much as the quota gives in this time, by any setting of windows
# If a broker takes longer, more bytes at a time may be worth the piece.
_QUICK_MS: Final = 20.0
# The proxy learns the batches of a connection from its first responses.
_LEARNS: Final = 4


class _Stretch:
    """Consecutive responses to one connection, which is alone in its bucket."""

    __slots__ = ("charged", "connection", "number", "throttled_ms", "whole")

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.number = self.charged = self.whole = 0
        self.throttled_ms = 0


class Usable(Check):
    """Sums up the whole batches, and all that is charged, of consumers at their limit."""

    name: ClassVar[str] = "usable bytes"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._rules = PossibleRules(((),), FETCH, world.settings)
        self._stretches: dict[tuple[int, Tags], _Stretch] = {}
        self._behind: dict[int, None] = {}  # the fetches that had more to read than they could bring

    def rules_changed(self, *possible: Quotas) -> None:
        """Begin anew, since other limits make other sizes the best."""
        self._rules = PossibleRules(possible, FETCH, self.world.settings)
        self._forget()

    def proxy_started(self, number: int) -> None:
        """Begin anew, since the proxy has to learn the batches again."""
        self._forget()

    def _forget(self) -> None:
        self._stretches.clear()
        self._behind.clear()

    def forwarding(self, exchange: "Exchange") -> None:
        """Look at what there is to read, and who else reads."""
        if exchange.api_key not in _FETCHES or exchange.is_inter_broker or exchange.forwarded_to is None:
            return
        tags, limit = self._rules.bucket(exchange.entity.user, exchange.entity.client_id)
        if limit is None:
            return
        key = exchange.forwarded_to, tags
        stretch = self._stretches.get(key)
        if stretch is None or stretch.connection != exchange.connection or exchange.api_key != frames.FETCH:
            stretch = self._stretches[key] = _Stretch(exchange.connection)
        reader = self.world.scenario.actors.get(exchange.client)
        wanted = limit.rate * _BEHIND_MS / 1_000
        if limit.rate >= _LEAST_RATE and isinstance(reader, Consumer) and self._backlog(reader, key[0], wanted):
            self._behind[exchange.correlation_id] = None

    def _backlog(self, reader: Consumer, node_id: int, wanted: float) -> bool:
        """Return whether a consumer has ``wanted`` bytes or more to read from a broker, of each partition."""
        cluster = self.world.scenario.cluster
        found = [cluster.partitions.get(key) for key, leader in reader.leaders.items() if leader == node_id]
        for partition in found:
            if partition is None:
                return False
            position, left = reader.positions.get((partition.topic_name, partition.index), 0), wanted
            for batch in reversed(partition.log.batches):
                if left <= 0 or batch.base_offset < position:
                    break
                if batch.next_offset <= partition.high_watermark:
                    left -= batch.size
            if left > 0:
                return False
        return bool(found)

    def received(self, exchange: "Exchange") -> None:
        """Add a response, and judge many of them."""
        was_behind = self._behind.pop(exchange.correlation_id, self) is None
        if exchange.api_key != frames.FETCH or exchange.forwarded_to is None or exchange.is_inter_broker:
            return
        tags, limit = self._rules.bucket(exchange.entity.user, exchange.entity.client_id)
        key = exchange.forwarded_to, tags
        stretch = self._stretches.get(key)
        if limit is None or stretch is None or stretch.connection != exchange.connection:
            return
        took_ms = exchange.answered_ms - exchange.forwarded_first_ms
        if not was_behind or took_ms > _QUICK_MS or exchange.response_of_broker is None:
            del self._stretches[key]
            return
        stretch.number += 1
        if stretch.number <= _LEARNS:
            return
        response = transfer.fetch.parse_response(exchange.response_of_broker, exchange.api_version)
        stretch.charged += len(exchange.response_of_broker) - 8
        stretch.throttled_ms += exchange.throttle_ms
        for topic in response.topics:
            for partition in topic.partitions:
                stretch.whole += _whole_bytes(partition.records or b"")
        if stretch.number < _LEARNS + _MANY or not stretch.throttled_ms:
            return
        if stretch.whole < _LEAST_SHARE * stretch.charged:
            text = f"{exchange.client} can use {stretch.whole:,} of {stretch.charged:,} B in {_MANY} or more responses"
            self.world.fail(self.name, f"{text}, the last of them to {exchange}")


def _whole_bytes(data: bytes) -> int:
    """Return how many bytes of ``data`` are whole batches."""
    at = 0
    while at + records.FRONT_BYTES <= len(data):
        end = at + records.size_of_first(data, at)
        if end > len(data):
            break
        at = end
    return at
