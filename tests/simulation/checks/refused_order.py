"""No later batch of an idempotent producer overtakes one that the proxy has refused on the same connection.

A broker that knows nothing of the producer yet would take the later batch, and the records of the refused one would be
lost when they are sent again.
"""

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check
from tests.simulation.wire import transfer
from tests.simulation.wire.records import parse_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# The proxy promises this for 60 s. By then a client has given up what it had sent before the refusal.
_KEPT_MS: Final = 50_000.0


class _Key(NamedTuple):
    connection: int
    topic: str | bytes
    partition: int
    producer_id: int
    epoch: int


class RefusedOrder(Check):
    """Remembers the batches that were refused on each connection and not sent again."""

    name: ClassVar[str] = "order of refused batches"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._refused: dict[_Key, dict[int, float]] = {}  # when each sequence number was refused

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """Note what the proxy has refused."""
        if exchange.api_key == frames.PRODUCE and exchange.forwarded_first_ms < 0:
            for key, sequence in _sequences(exchange):
                self._refused.setdefault(key, {}).setdefault(sequence, self.world.clock.now_ms)

    def forwarding(self, exchange: "Exchange") -> None:
        """A batch is behind all that were refused before it."""
        if not self._refused or exchange.api_key != frames.PRODUCE or not exchange.expects_response:
            return
        since_ms = self.world.clock.now_ms - _KEPT_MS
        for key, sequence in _sequences(exchange):
            refused = self._refused.get(key)
            if refused is None:
                continue
            earlier = [one for one, at_ms in refused.items() if one < sequence and at_ms > since_ms]
            if earlier:
                where = f"{key.topic!r}-{key.partition}"
                text = f"{exchange} is forwarded with batch {sequence} for {where}, and {earlier} were refused"
                self.world.fail(self.name, f"{text} on its connection and not sent again")
            self._refused[key] = {one: at_ms for one, at_ms in refused.items() if one > sequence}

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """A client begins anew on another connection."""
        if self._refused:
            self._refused = {key: refused for key, refused in self._refused.items() if key.connection != connection}


def _sequences(exchange: "Exchange") -> "Iterator[tuple[_Key, int]]":
    """Yield the first sequence number of each batch of an idempotent producer."""
    for topic in transfer.produce.parse_request(exchange.request).topics:
        for partition in topic.partitions:
            for batch in parse_batches(partition.records or b""):
                if batch.producer_id >= 0:
                    key = _Key(exchange.connection, topic.topic, partition.partition, batch.producer_id, batch.epoch)
                    yield key, batch.base_sequence
