"""Many connections that come at once to one address, each with one request."""

from typing import TYPE_CHECKING, Final

from tests.simulation.clients.connection import Connection
from tests.simulation.wire import transfer

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.clients.setting import Setting
    from tests.simulation.world import World

_VERSION: Final = 5


class Crowd:
    """Opens ``number`` connections at once, and again after a while. Each closes when it is answered."""

    def __init__(self, world: "World", setting: "Setting", number: int, *, every_ms: float, most: int) -> None:
        self.world = world
        self.setting = setting
        self.random: Random = world.random_of(setting.name)
        self.is_stopping = False
        self._number = number
        self._every_ms = every_ms
        self._left = most
        self._open: dict[Connection, None] = {}

    def start(self) -> None:
        """Come for the first time."""
        if self.is_stopping or not self._left:
            return
        self._left -= 1
        bootstrap = self.setting.bootstrap
        address = bootstrap[self._left % len(bootstrap)]
        for _ in range(self._number):
            self._open[Connection(self.world, self.setting, self, address, None, 0)] = None
        self.world.call_later(self._every_ms, self.start)

    def stop(self) -> None:
        """Leave."""
        self.is_stopping = True
        for connection in list(self._open):
            connection.close()

    @property
    def is_done(self) -> bool:
        """Whether everybody has left."""
        return self.is_stopping and not self._open

    def changed(self, connection: Connection) -> None:
        """Send the request of a connection."""
        if connection.in_flight or not connection.can_send:
            return
        connection.ask(transfer.metadata, _VERSION, lambda *_: connection.close(), fields={"topics": []})

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)
