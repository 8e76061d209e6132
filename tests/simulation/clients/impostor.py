"""A client that calls an API between brokers, WriteTxnMarkers (key 27), again and again, and heeds no throttle time."""

from typing import Final

from tests.simulation.clients.client import Client
from tests.simulation.wire.common import WireError
from tests.simulation.wire.fields import Reader, Writer

WRITE_TXN_MARKERS: Final = 27
_EVERY_MS: Final = 50.0
_AT_ONCE: Final = 3
_MOST_REQUESTS: Final = 60


def answer(correlation_id: int) -> bytes:
    """Return the response of a broker, without markers."""
    writer = Writer.response(WRITE_TXN_MARKERS, 0, correlation_id)
    writer.i32(0)
    return writer.end()


def _parse(frame: bytes, version: int) -> None:
    _, reader = Reader.response(frame, WRITE_TXN_MARKERS, version)
    if reader.i32() != 0:
        raise WireError("a response with markers, to a request that had none")
    reader.end()


class Impostor(Client):
    """Sends a few requests at a time on one connection."""

    _sent = 0

    def work(self) -> None:
        """Send the next request, unless enough of them have no response."""
        connection = self.any_connection()
        if connection is None or self._sent == _MOST_REQUESTS or len(connection.in_flight) >= _AT_ONCE:
            return
        self._sent += 1
        correlation_id = self.world.ledger.next_id()
        writer = Writer.request(WRITE_TXN_MARKERS, 0, correlation_id, self.setting.entity.client_id)
        writer.i32(0)
        self.call(
            connection, writer.end(), WRITE_TXN_MARKERS, 0, correlation_id, _parse, lambda _result, _exchange: None
        )
        self.wake_in(_EVERY_MS)
