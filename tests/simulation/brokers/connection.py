"""A connection to a simulated broker: frames put together from segments, one request at a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.network import Handler
from tests.simulation.wire.api import AnyApi
from tests.simulation.wire.common import RequestHeader, WireError, get_i32, parse_header

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.brokers.log import Batch
    from tests.simulation.brokers.parked import Parked
    from tests.simulation.brokers.profiles import Listener
    from tests.simulation.network import End

# socket.request.max.bytes
_MAX_FRAME_BYTES: Final = 104_857_600
_NO_REQUEST: Final = b"\x7f\xff\xff\xff"  # a correlation id that no client uses
_SASL_HANDSHAKE: Final = 17
_API_VERSIONS: Final = 18
_SASL_AUTHENTICATE: Final = 36
_BEFORE_LOGIN: Final = frozenset((_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE))


class Connection(Handler):
    """One connection of a client, a follower or the proxy. Like Kafka, it reads no request before the last is answered.

    Attributes:
        user: Who has logged in, or None.
        mechanism: The SASL mechanism of the handshake, or None.
        parked: The request that waits, if any.
    """

    __slots__ = (
        "_buffered_bytes", "_chunks", "_is_paused", "_is_reading", "_needed_bytes", "broker", "end", "has_request",
        "is_muted", "listener", "mechanism", "parked", "user",
    )  # fmt: skip

    def __init__(self, broker: "Broker", end: "End", listener: str) -> None:
        self.broker = broker
        self.end = end
        self.listener = listener
        self.user: str | None = None
        self.mechanism: str | None = None
        self.parked: Parked | None = None
        self.has_request = False
        self.is_muted = False
        self._is_reading = False
        self._is_paused = False
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._needed_bytes = 4

    @property
    def terms(self) -> "Listener":
        """What the listener of this connection demands."""
        return self.broker.cluster.listeners[self.listener]

    # -- called by the network --

    def received(self, end: "End", data: bytes) -> None:
        """Add bytes, and handle each frame that is whole."""
        self._chunks.append(data)
        self._buffered_bytes += len(data)
        if self.has_request or self.is_muted or self.broker.is_stalled:
            if not self._is_paused:
                self._is_paused = True
                end.pause()
        elif self._buffered_bytes >= self._needed_bytes:
            self.read_on()

    def ended(self, end: "End") -> None:
        """The client has closed. Like Kafka, drop what is not written yet."""
        self.close()

    def lost(self, end: "End", is_reset: bool) -> None:
        """The connection is gone."""
        self._forget()

    # -- requests --

    def read_on(self) -> None:
        """Handle the frames that are whole, until one has to wait."""
        if self._is_reading:
            return
        self._is_reading = True
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        end, at, total = self.end, 0, len(data)
        needed = 4
        while not (self.has_request or self.is_muted or self.broker.is_stalled) and end.is_open:
            if total - at < 4:
                break
            size: int = get_i32(data, at)[0]
            if not 8 <= size <= _MAX_FRAME_BYTES:
                self.damaged(data[at:], f"a frame of {size} bytes")
                break
            needed = size + 4
            if total - at < needed:
                break
            frame = data if at == 0 and needed == total else data[at : at + needed]
            at += needed
            needed = 4
            self._handle(frame)
        self._is_reading = False
        if at < total:
            chunks.append(data[at:] if at else data)
        self._buffered_bytes = total - at
        self._needed_bytes = needed
        if self._is_paused and not (self.has_request or self.is_muted or self.broker.is_stalled):
            self._is_paused = False
            end.resume()

    def _handle(self, frame: bytes) -> None:
        broker = self.broker
        self.has_request = True
        try:
            header = parse_header(frame)
        except WireError as error:
            self.damaged(frame, str(error))
            return
        broker.world.ledger.at_broker(broker.node_id, frame, header.correlation_id)
        if self.user is None and header.api_key not in _BEFORE_LOGIN and self.terms.requires_login:
            broker.world.story.tell(f"broker {broker.node_id} closes a connection that has not logged in")
            self.close()
            return
        try:
            broker.handle(self, header, frame)
        except WireError as error:
            self.damaged(frame, str(error))

    def damaged(self, frame: bytes, error: str) -> None:
        """Close the connection because of bytes that are no request. The world fails if a client is not to blame."""
        self.close()
        world = self.broker.world
        exchange = world.ledger.exchanges.get(get_i32(frame, 8)[0]) if len(frame) >= 12 else None
        if exchange is None:
            world.story.tell(f"broker {self.broker.node_id} closes a connection: {error}")
        elif frame != exchange.request:
            world.fail("broker frame", f"{exchange} arrived damaged at broker {self.broker.node_id}: {error}")
        elif not getattr(exchange.detail, "is_garbage", False):
            world.fail("simulated client", f"{exchange} is no request: {error}")

    # -- responses --

    def respond(
        self, header: RequestHeader, response: bytes, *, throttle_ms: int = 0, acknowledges: Sequence["Batch"] = ()
    ) -> None:
        """Write the response to the request in hand, and mute the connection for ``throttle_ms`` (KIP-219)."""
        broker = self.broker
        if not self.end.is_open:
            return
        self.parked = None
        if broker.is_stalled:
            broker.held.append((self, header, response, throttle_ms, acknowledges))
            return
        if broker.cuts_next_response:
            broker.cuts_next_response = False
            self.end.write(response[: broker.random.randrange(len(response))])
            broker.world.story.tell(f"broker {broker.node_id} closes a connection within a response")
            self.close(is_clean=broker.random.random() < 0.5)
            return
        if broker.misnumbers_next_response:
            broker.misnumbers_next_response = False
            broker.world.story.tell(f"broker {broker.node_id} answers with the number of no request")
            self.end.write(response[:4] + _NO_REQUEST + response[8:])
            if (exchange := broker.world.ledger.exchanges.get(header.correlation_id)) is not None:
                exchange.is_misnumbered = True
            self.close(is_clean=True)
            return
        for batch in acknowledges:
            batch.is_acknowledged = True
        self.end.write(response)
        broker.world.ledger.answered(header.correlation_id, response)
        self.finish(throttle_ms)

    def answer(self, api: AnyApi, header: RequestHeader, *args: Any, throttle_ms: int = 0, **fields: Any) -> None:
        """Write the response of an API, with these fields."""
        if throttle_ms:
            fields["throttle_ms"] = throttle_ms
        frame = api.response(header.correlation_id, header.api_version, *args, **fields)
        self.respond(header, frame, throttle_ms=throttle_ms)

    def finish(self, throttle_ms: int = 0) -> None:
        """Be done with the request in hand."""
        self.has_request = False
        self.parked = None
        if throttle_ms > 0:
            self.is_muted = True
            self.broker.world.call_later(throttle_ms, self._unmute)
        elif not self._is_reading:
            self.read_on_if_buffered()

    def _unmute(self) -> None:
        self.is_muted = False
        self.read_on_if_buffered()

    def read_on_if_buffered(self) -> None:
        """Look at bytes that came while the connection was not read."""
        if self.end.is_open and (self._buffered_bytes or self._is_paused):
            self.read_on()

    # -- the end --

    def close(self, *, is_clean: bool = True) -> None:
        """Close the connection. Without ``is_clean`` it is reset."""
        if self.end.is_open:
            if is_clean:
                self.end.close()
            else:
                self.end.abort()
        self._forget()

    def _forget(self) -> None:
        self.broker.connections.pop(self, None)
        parked, self.parked = self.parked, None
        if parked is not None:
            parked.cancel()
        self._chunks.clear()
        self._buffered_bytes = 0
