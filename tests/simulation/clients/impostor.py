"""A client that calls an API between brokers, WriteTxnMarkers (key 27), again and again, and heeds no throttle time."""

from typing import Final

from tests.simulation.clients.client import Client
from tests.simulation.clients.connection import ignore
from tests.simulation.wire.common import WireError, framed, open_response, request_header, response_header

WRITE_TXN_MARKERS: Final = 27
_NO_MARKERS: Final = bytes(4)  # an array of none, which is all that v0 has
_EVERY_MS: Final = 50.0
_AT_ONCE: Final = 3
_MOST_REQUESTS: Final = 60


def answer(correlation_id: int) -> bytes:
    """Return the response of a broker, without markers."""
    return framed([response_header(WRITE_TXN_MARKERS, 0, correlation_id), _NO_MARKERS])


def _parse(frame: bytes, version: int) -> None:
    if frame[open_response(frame, WRITE_TXN_MARKERS, version)[1] :] != _NO_MARKERS:
        raise WireError("a response with markers, to a request that had none")


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
        header = request_header(WRITE_TXN_MARKERS, 0, correlation_id, self.setting.entity.client_id)
        frame = framed([header, _NO_MARKERS])
        connection.send(frame, WRITE_TXN_MARKERS, 0, correlation_id, parse=_parse, on_response=ignore)
        self.wake_in(_EVERY_MS)
