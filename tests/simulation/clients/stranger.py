"""Connections of those who do not speak Kafka, or who mean harm: garbage, giant sizes, TLS at a plain port, silence."""

from typing import TYPE_CHECKING, Final

from tests.simulation.clients.setting import proxy_header
from tests.simulation.network import Handler

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.clients.setting import Setting
    from tests.simulation.network import End
    from tests.simulation.scheduler import Event
    from tests.simulation.world import World

GARBAGE: Final = "garbage"
GIANT: Final = "giant"
NEGATIVE: Final = "negative"
TINY: Final = "tiny"
TLS: Final = "tls"
HTTP: Final = "http"
UNKNOWN_API: Final = "unknown API"
SILENCE: Final = "silence"
FLOOD: Final = "flood"
MANNERS: Final = (GARBAGE, GIANT, NEGATIVE, TINY, TLS, HTTP, UNKNOWN_API, SILENCE, FLOOD)

# The begin of a TLS 1.2 record with a ClientHello of 508 bytes.
_CLIENT_HELLO: Final = bytes.fromhex("16030102000100 01fc0303".replace(" ", "")) + bytes(range(256)) * 2
_REQUEST: Final = b"GET /metrics HTTP/1.1\r\nHost: kafka\r\nUser-Agent: scanner\r\n\r\n"


def opening(manner: str, random: "Random") -> bytes:
    """Return the first bytes that a stranger sends."""
    if manner == GARBAGE:
        # Never the API key of something real, so that nobody can take it for a request.
        return random.randbytes(4) + b"\x7f" + random.randbytes(random.choice((0, 1, 7, 60, 2_000, 70_000)))
    if manner == GIANT:
        size = random.choice((0x7FFF_FFFF, 1 << 30, 104_857_601))
        return size.to_bytes(4) + random.choice((b"", b"\0\0\0\7", b"\0\0\0\7\0\0\0\1\0\1x" + bytes(500)))
    if manner == NEGATIVE:
        return random.choice((b"\xff\xff\xff\xff", b"\x80\0\0\0")) + b"\0\x12\0\3" + bytes(20)
    if manner == TINY:
        return random.choice((b"\0\0\0\0", b"\0\0\0\1\0", b"\0\0\0\7\0\x12\0\0\0\0\0"))
    if manner == TLS:
        return _CLIENT_HELLO
    if manner == HTTP:
        return _REQUEST
    if manner == UNKNOWN_API:
        return (8 + 2).to_bytes(4) + b"\x70\0\0\0\0\0\0\1\xff\xff"
    return b""


class Stranger:
    """Connects again and again, in one manner. A connection stays for ``stays_ms`` if the proxy does not end it."""

    def __init__(
        self,
        world: "World",
        setting: "Setting",
        manner: str,
        *,
        every_ms: float = 5_000.0,
        stays_ms: float = 120_000.0,
        at_once: int = 1,
    ) -> None:
        self.world = world
        self.setting = setting
        self.manner = manner
        self.random = world.random_of(setting.name)
        self.is_stopping = False
        self._every_ms = every_ms
        self.stays_ms = stays_ms
        self._at_once = at_once
        self._open: dict[int, _Guest] = {}
        self._next: Event | None = None

    def start(self) -> None:
        """Begin to connect."""
        self._come()

    def stop(self) -> None:
        """Connect no more, and leave."""
        self.is_stopping = True
        if self._next is not None:
            self._next.cancel()
            self._next = None
        for guest in list(self._open.values()):
            guest.leave()

    @property
    def is_done(self) -> bool:
        """Whether the stranger has stopped and has no connection left."""
        return self.is_stopping and not self._open

    def _come(self) -> None:
        for _ in range(self._at_once):
            guest = _Guest(self)
            self._open[guest.number] = guest
        self._next = self.world.call_later(self._every_ms * self.random.uniform(0.2, 1.8), self._come)

    def is_over(self, guest: "_Guest", *, by_proxy: bool) -> None:
        """Note that a connection is gone."""
        del self._open[guest.number]
        if guest.is_connected:
            self.world.ledger.disconnected(self.setting.name, guest.number, by_client=not by_proxy)


class _Guest(Handler):
    """One connection of a stranger."""

    def __init__(self, stranger: Stranger) -> None:
        world, setting = stranger.world, stranger.setting
        self.number = world.ledger.next_connection()
        self.is_connected = False
        self._stranger = stranger
        self._is_over = False
        self._leave = world.call_later(stranger.stays_ms, self.leave)
        address = stranger.random.choice(setting.bootstrap)
        self._end = world.network.connect(setting.source_host, address, self)

    def leave(self) -> None:
        """Close, or reset."""
        if self._is_over:
            return
        if not self.is_connected:
            self._stranger.world.network.give_up(self._end)
        elif self._stranger.random.random() < 0.5:
            self._end.abort()
        else:
            self._end.close()
        self._finish(by_proxy=False)

    def _finish(self, *, by_proxy: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._leave.cancel()
            self._stranger.is_over(self, by_proxy=by_proxy)

    def connected(self, end: "End") -> None:
        """Say the first bytes."""
        if self._is_over:
            return
        stranger = self._stranger
        setting, random = stranger.setting, stranger.random
        self.is_connected = True
        stranger.world.ledger.connected(setting.name, self.number, setting.entity)
        if setting.proxy_header and random.random() < 0.5:
            end.write(proxy_header(setting.proxy_header, setting.entity.host, end.local[1], end.remote))
        end.write(opening(stranger.manner, random))
        if stranger.manner == FLOOD and random.random() < 0.8:
            self.leave()

    def ended(self, end: "End") -> None:
        """Close too."""
        end.close()
        self._finish(by_proxy=True)

    def lost(self, end: "End", is_reset: bool) -> None:
        """Note it."""
        self._finish(by_proxy=True)
