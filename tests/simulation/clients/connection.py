"""One connection of a simulated client: requests out, responses in, in the order that Kafka promises."""

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.simulation.clients.habits import Writer
from tests.simulation.clients.profiles import HEALTHY, Habits, client_waits
from tests.simulation.clients.setting import Login as Login
from tests.simulation.clients.setting import Setting as Setting
from tests.simulation.clients.setting import proxy_header
from tests.simulation.ledger import NEVER, Entity, Exchange
from tests.simulation.network import Handler
from tests.simulation.wire.api import AnyApi
from tests.simulation.wire.common import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from tests.simulation.network import End
    from tests.simulation.scheduler import Event
    from tests.simulation.world import World

# Bytes that wait in the client's own memory, beyond those that the system holds, before it sends no more requests.
_MOST_UNSENT_BYTES: Final = 4 * 1_048_576
_MOST_RESPONSE_BYTES: Final = 256 * 1_048_576


class Owner(Protocol):
    """The client that a connection belongs to. ``random`` is for what it and its connections draw."""

    random: "Random"

    def changed(self, connection: "Connection") -> None:
        """A response has come, or the connection is logged in, no longer full, or no longer throttled."""

    def lost(self, connection: "Connection") -> None:
        """The connection is gone. Its requests have failed before."""


@dataclass(slots=True, eq=False)
class Call:
    """A request that waits for its response."""

    exchange: Exchange
    parse: "Callable[[bytes, int], Any]"
    on_response: "Callable[[Any, Exchange], None]"
    on_failure: "Callable[[Exchange], None]"
    deadline_ms: float


def ignore(*_: object) -> None:
    """Do nothing when a request has failed, or with its response."""


class Connection(Handler):
    """A TCP connection to one broker.

    Attributes:
        node: The node id of the broker; None at a bootstrap address.
        key: How the owner tells it from its other connections.
        number: Its number in the world.
        in_flight: The requests without a response, oldest first.
        versions: The newest version of each API that the peer has said it knows; None if it was not asked.
        is_gone: Whether it is over. Nothing is called after that.
    """

    def __init__(
        self,
        world: "World",
        setting: Setting,
        owner: Owner,
        address: tuple[str, int],
        node: int | None,
        key: int,
        greet: "Callable[[Connection], None] | None" = None,
    ) -> None:
        self.world = world
        self.setting = setting
        self.profile = setting.profile
        self.node = node
        self.key = key
        self.number = world.ledger.next_connection()
        self.in_flight: deque[Call] = deque()
        self.versions: dict[int, int] | None = None
        self.is_gone = self.is_closing = False
        self.is_connected = self.is_greeted = False
        self.muted_until_ms = 0.0
        self._owner = owner
        self._greet = greet
        self._buffer = bytearray()
        self._timer: Event | None = None
        self._wake: Event | None = None
        self._writer: Writer | None = None
        self._slow_read_ms = 0.0
        self._resume: Event | None = None
        self._deaf_after_bytes = -1
        self._begun: Exchange | None = None  # a request that is written in part
        self._gathered: list[bytes] | None = None
        self._end: End = world.network.connect(setting.source_host, address, self)
        self._timer = world.call_later(self.profile.connect_timeout_ms, self._on_timer)

    # -- what the owner asks --

    @property
    def can_send(self) -> bool:
        """Whether a request can be written now."""
        return (
            self.is_greeted
            and not self.is_gone
            and not self.is_closing
            and (self.muted_until_ms == 0.0 or self.world.clock.now_ms >= self.muted_until_ms)
            and (self._writer is None or not self._writer.is_busy)
            and self._end.unsent_bytes < _MOST_UNSENT_BYTES
        )

    def send(
        self,
        frame: bytes,
        api_key: int,
        api_version: int,
        correlation_id: int,
        *,
        parse: "Callable[[bytes, int], Any]",
        on_response: "Callable[[Any, Exchange], None]",
        on_failure: "Callable[[Exchange], None]" = ignore,
        detail: Any = None,
        expects_response: bool = True,
        timeout_ms: float = 0.0,
        entity: Entity | None = None,
        first_bytes: int | None = None,
    ) -> Exchange:
        """Write a request. ``on_response`` or ``on_failure`` is called once, later, unless there is no response.

        If ``first_bytes`` is given, only so many bytes are written, and ``go_on`` writes the others.
        """
        setting = self.setting
        exchange = Exchange(
            correlation_id, frame, api_key=api_key, api_version=api_version, client=setting.name,
            connection=self.number, entity=entity or setting.entity, broker=self.node,
            expects_response=expects_response, detail=detail, client_end=self._end,
        )  # fmt: skip
        if expects_response:
            timeout_ms = timeout_ms or self.profile.request_timeout_ms
            deadline_ms = self.world.clock.now_ms + timeout_ms
            self.in_flight.append(Call(exchange, parse, on_response, on_failure, deadline_ms))
            if self._timer is None:
                self._timer = self.world.call_later(timeout_ms, self._on_timer)
        self.world.ledger.sent(exchange)
        if first_bytes is not None:
            exchange.sent_ms, exchange.sent_bytes = NEVER, first_bytes
            self._begun = exchange
            self._end.write(frame[:first_bytes])
        elif self._gathered is not None:
            self._gathered.append(frame)
        elif self._writer is None:
            self._end.write(frame)
        else:
            self._writer.write(frame, exchange)
        return exchange

    def ask(
        self,
        api: AnyApi,
        version: int,
        on_response: "Callable[[Any, Exchange], None]" = ignore,
        on_failure: "Callable[[Exchange], None]" = ignore,
        *,
        entity: Entity | None = None,
        fields: "Mapping[str, Any] | None" = None,
        **more: Any,
    ) -> Exchange:
        """Write a request of an API, with these fields. See ``send`` for the others."""
        correlation_id = self.world.ledger.next_id()
        client_id = (entity or self.setting.entity).client_id
        frame = api.request(correlation_id, version, client_id, **(fields or {}))
        return self.send(
            frame, api.key, version, correlation_id, parse=api.parse_response, on_response=on_response,
            on_failure=on_failure, entity=entity, **more,
        )  # fmt: skip

    def go_on(self, most_bytes: int) -> None:
        """Write the next bytes of the request that was begun."""
        exchange = self._begun
        if exchange is None or self.is_gone:
            return
        begin = exchange.sent_bytes
        end = exchange.sent_bytes = min(begin + most_bytes, len(exchange.request))
        if end == len(exchange.request):
            self._begun = None
            exchange.sent_ms = self.world.clock.now_ms
        self._end.write(exchange.request[begin:end])

    @contextmanager
    def gathered(self) -> "Iterator[None]":
        """Write all requests that are sent within the ``with`` block at once."""
        self._gathered = []
        yield
        frames, self._gathered = self._gathered, None
        self._end.write(b"".join(frames))

    # -- how it ends --

    def half_close(self) -> None:
        """Close the sending side, read the responses that are due, then end."""
        if not self.is_gone and not self.is_closing:
            if self.is_connected and self.in_flight:
                self.is_closing = True
                self._end.shutdown()
            else:
                self._leave(is_abort=False)

    def close(self) -> None:
        """End now, in order. The requests that wait fail."""
        if not self.is_gone:
            self._leave(is_abort=False)

    def abort(self) -> None:
        """Reset the connection."""
        if not self.is_gone:
            self._leave(is_abort=True)

    def _leave(self, *, is_abort: bool) -> None:
        if not self.is_connected:
            self.world.network.give_up(self._end)
        elif is_abort:
            self._end.abort()
        else:
            self._end.close()
        self._is_over(by_client=True)

    def _is_over(self, *, by_client: bool) -> None:
        self.is_gone = True
        for event in (self._timer, self._wake, self._resume):
            if event is not None:
                event.cancel()
        self._timer = self._wake = self._resume = None
        if self._writer is not None:
            self._writer.cancel()
        if self.is_connected:
            self.world.ledger.disconnected(self.setting.name, self.number, by_client=by_client)
        in_flight, self.in_flight = self.in_flight, deque()
        for call in in_flight:
            call.on_failure(call.exchange)
        self._owner.lost(self)

    def _on_timer(self) -> None:
        """Give the connection up if its oldest deadline has passed, else wait for the next."""
        self._timer = None
        now_ms = self.world.clock.now_ms
        if not self.is_connected:
            self._leave(is_abort=True)
        elif self.in_flight:
            deadline_ms = min([call.deadline_ms for call in self.in_flight])
            if deadline_ms - now_ms < 0.001 and self.setting.is_patient and not self._end.link.is_cut:
                for call in self.in_flight:
                    call.deadline_ms = now_ms + self.profile.request_timeout_ms
                self._timer = self.world.call_later(self.profile.request_timeout_ms, self._on_timer)
            elif deadline_ms - now_ms < 0.001:
                self.world.story.tell(f"{self.setting.name} gives up its connection {self.number}: no response in time")
                self._leave(is_abort=False)
            else:
                self._timer = self.world.call_later(deadline_ms - now_ms, self._on_timer)

    # -- called by the network --

    def connected(self, end: "End") -> None:
        """Begin: the PROXY header, then the login, then the owner's requests."""
        if self.is_gone:
            return
        self.is_connected = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        setting = self.setting
        self.world.ledger.connected(setting.name, self.number, setting.entity)
        self._take_habits(setting.habits)
        if setting.proxy_header:
            end.write(proxy_header(setting.proxy_header, setting.entity.host, end.local[1], end.remote))
        if self._greet is not None:
            self._greet(self)
        else:
            self.greeted()

    def greeted(self) -> None:
        """The login is done: the owner may send."""
        self.is_greeted = True
        self._owner.changed(self)

    def _take_habits(self, habits: Habits) -> None:
        if habits is HEALTHY:
            return
        random = self._owner.random
        if habits.splits or habits.dribbles or habits.stalls or habits.resets:
            self._writer = Writer(self.world, random, self._end, habits, self.abort, self._may_send)
        if random.random() < habits.reads_slowly:
            self._slow_read_ms = random.choice((1.0, 20.0, 200.0, 1_000.0))
        if random.random() < habits.is_deaf:
            self._deaf_after_bytes = random.choice(habits.deaf_after_bytes)

    def received(self, end: "End", data: bytes) -> None:
        """Take each whole response out of what has arrived."""
        if self.is_gone:
            return
        if self._slow_read_ms or self._deaf_after_bytes >= 0:
            self._read_oddly(len(data))
        buffer = self._buffer
        if not buffer and len(data) >= 8 and int.from_bytes(data[:4]) == len(data) - 4:
            self._frame(data)
            return
        buffer += data
        at, total = 0, len(buffer)
        while total - at >= 4:
            size = int.from_bytes(buffer[at : at + 4])
            if not 4 <= size <= _MOST_RESPONSE_BYTES:
                self._fail(f"a response of {size} bytes")
            if total - at < 4 + size:
                break
            frame = bytes(buffer[at : at + 4 + size])
            at += 4 + size
            self._frame(frame)
            if self.is_gone:
                return
        if at:
            del buffer[:at]

    def _frame(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[4:8])
        in_flight = self.in_flight
        if not in_flight or in_flight[0].exchange.correlation_id != correlation_id:
            self._fail_order(correlation_id)
        call = in_flight[0]
        exchange = call.exchange
        try:
            result = call.parse(frame, exchange.api_version)
        except WireError as error:
            if exchange.response_of_broker != frame:
                self._fail(f"{exchange!r} has a response that cannot be read: {error}")
            self._leave(is_abort=False)  # the broker's own nonsense
            return
        in_flight.popleft()
        throttle_ms: int = getattr(result, "throttle_ms", 0)
        self.world.ledger.received(exchange, frame, throttle_ms=throttle_ms)
        if throttle_ms > 0 and self.profile.heeds_throttle and client_waits(exchange.api_key, exchange.api_version):
            self._mute(throttle_ms)
        call.on_response(result, exchange)
        if self.is_gone:
            return
        if self.is_closing and not self.in_flight:
            self._leave(is_abort=False)
        elif self.is_greeted:
            self._owner.changed(self)

    def _mute(self, throttle_ms: int) -> None:
        until_ms = self.world.clock.now_ms + throttle_ms
        if until_ms > self.muted_until_ms:
            self.muted_until_ms = until_ms
            if self._wake is not None:
                self._wake.cancel()
            self._wake = self.world.call_later(throttle_ms + 0.001, self._may_send)

    def _may_send(self) -> None:
        if not self.is_gone and self.is_greeted and not self.is_closing:
            if self.world.clock.now_ms >= self.muted_until_ms:
                self.muted_until_ms = 0.0
            self._owner.changed(self)

    def _read_oddly(self, size: int) -> None:
        if self._deaf_after_bytes >= 0:
            self._deaf_after_bytes -= size
            if self._deaf_after_bytes < 0:
                self._deaf_after_bytes = 0
                self._end.pause()
                self._slow_read_ms = 0.0
                if self._owner.random.random() < self.setting.habits.half_closes:
                    self.world.call_soon(self.half_close)
                return
        if self._slow_read_ms and self._resume is None:
            self._end.pause()
            self._resume = self.world.call_later(self._slow_read_ms, self._read_again)

    def _read_again(self) -> None:
        self._resume = None
        self._end.resume()

    def ended(self, end: "End") -> None:
        """Close too: no client speaks on after the end of the stream."""
        if not self.is_gone:
            end.close()
            self._is_over(by_client=False)

    def lost(self, end: "End", is_reset: bool) -> None:
        """Fail the requests that wait."""
        if not self.is_gone:
            self._is_over(by_client=False)

    def drained(self, end: "End") -> None:
        """Let the owner send again."""
        self._may_send()

    # -- what must never happen --

    def _fail_order(self, correlation_id: int) -> None:
        exchange = self.world.ledger.exchanges.get(correlation_id)
        due = self.in_flight[0].exchange if self.in_flight else None
        if exchange is None:
            what = f"a response with the correlation id {correlation_id}, which nobody has sent"
        elif exchange.connection != self.number:
            what = f"the response to {exchange!r} of connection {exchange.connection}"
        elif not exchange.expects_response:
            what = f"a response to {exchange!r}, which asks for none"
        elif exchange.response is not None:
            what = f"a second response to {exchange!r}"
        else:
            what = f"the response to {exchange!r} out of order"
        self._fail(f"{what}, where {due!r} was due")

    def _fail(self, what: str) -> None:
        self.world.fail("answers", f"{self.setting.name} has on connection {self.number} {what}")
