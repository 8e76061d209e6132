"""Follow the frames that the proxy writes to brokers and to clients, and tell the ledger when each begins and ends."""

from struct import Struct
from typing import TYPE_CHECKING, Final

from tests.simulation.ledger import Exchange, Ledger

if TYPE_CHECKING:
    from tests.simulation.network import End

_INT32: Final = Struct(">i")
# A request begins with its size, API key, version and correlation id; a response with its size and correlation id.
_REQUEST_HEAD_BYTES: Final = 12
_RESPONSE_HEAD_BYTES: Final = 8


class Frames:
    """Cuts a stream into frames."""

    __slots__ = ("_head", "_head_bytes", "_left_bytes", "_size_bytes")

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._head = b""
        self._left_bytes = 0
        self._size_bytes = 0

    def wrote(self, data: bytes) -> None:
        """Follow the next bytes of the stream."""
        position, length = 0, len(data)
        while position < length:
            if not self._left_bytes:
                needed = self._head_bytes - len(self._head)
                self._head += data[position : position + needed]
                position += needed
                if len(self._head) < self._head_bytes:
                    return
                self._size_bytes = 4 + _INT32.unpack_from(self._head)[0]
                self.begin(_INT32.unpack_from(self._head, self._head_bytes - 4)[0], self._head)
                self._left_bytes = self._size_bytes - self._head_bytes
                self._head = b""
            taken = min(self._left_bytes, length - position)
            position += taken
            self._left_bytes -= taken
            if not self._left_bytes:
                self.finish(self._size_bytes)

    def begin(self, correlation_id: int, head: bytes) -> None:
        """A frame has begun."""

    def finish(self, size_bytes: int) -> None:
        """A frame of ``size_bytes``, with its size, is complete."""


class RequestTap(Frames):
    """Follows the requests that the proxy writes at ``end`` to the broker ``node_id``."""

    __slots__ = ("_end", "_exchange", "_ledger", "_node_id")

    def __init__(self, ledger: Ledger, node_id: int, end: "End") -> None:
        super().__init__(_REQUEST_HEAD_BYTES)
        self._ledger = ledger
        self._node_id = node_id
        self._end = end
        self._exchange: Exchange | None = None

    def wrote(self, data: bytes) -> None:
        """Follow the next bytes, and note how far the request is that is not complete."""
        if self._left_bytes and self._exchange is not None:
            self._ledger.goes_on(self._exchange)
        super().wrote(data)
        if self._left_bytes and self._exchange is not None:
            self._exchange.forwarded_bytes = self._size_bytes - self._left_bytes

    def begin(self, correlation_id: int, head: bytes) -> None:
        """A request has begun."""
        self._exchange = self._ledger.forwarding(correlation_id, self._node_id, int.from_bytes(head[4:6]), self._end)

    def finish(self, size_bytes: int) -> None:
        """A request is complete."""
        if self._exchange is not None:
            self._ledger.forwarded(self._exchange)


class ResponseTap(Frames):
    """Follows the responses that the proxy writes to a client."""

    __slots__ = ("_correlation_id", "_ledger")

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(_RESPONSE_HEAD_BYTES)
        self._ledger = ledger
        self._correlation_id = 0

    def begin(self, correlation_id: int, head: bytes) -> None:
        """A response has begun."""
        self._correlation_id = correlation_id

    def finish(self, size_bytes: int) -> None:
        """A response is complete."""
        self._ledger.passed(self._correlation_id, size_bytes)
