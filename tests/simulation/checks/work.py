"""No connection keeps the event loop or the table of buckets to itself.

Within one callback of the loop at most so many requests of a connection begin as take a hundredth of a second. A
request whose head differs from the last takes as long as five others. A connection holds the buckets of its last
client-id, and of a few earlier ones, whatever waits for an answer.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_MOST_WORK: Final = 1_500
_NEW_HEAD: Final = 5
# The last request may go over the bound. The head of an earlier one may be known, though another was between.
_SLACK: Final = 3 * _NEW_HEAD
# What has waited for the broker to be dialled begins at once, and was looked at before: 256 requests of each sort.
_MOST_DIALLED: Final = 512 * _NEW_HEAD
# Those of a client-id are five, one of each kind of quota. Eight stale ones are let go before there are more.
_MOST_BUCKETS: Final = 7 + 5 + 5
_REPEATABLE: Final = frozenset((frames.PRODUCE, frames.FETCH, frames.SHARE_FETCH))

_Head = tuple[int, int, str]


class Work(Check):
    """Counts the requests that begin in each callback, and twice a second the buckets."""

    name: ClassVar[str] = "work"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._call = -1
        self._done: dict[int, int] = {}  # of each connection in this callback
        self._heads: dict[int, _Head] = {}  # the last of each connection

    def forwarding(self, exchange: "Exchange") -> None:
        """Count it."""
        call, connection = self.world.scheduler.calls, exchange.connection
        if call != self._call:
            self._call = call
            self._done.clear()
        head = exchange.api_key, exchange.api_version, exchange.entity.client_id
        last = self._heads.get(connection)
        is_repeated = head == last and exchange.api_key in _REPEATABLE
        self._heads[connection] = head
        before = -_MOST_DIALLED if last is None else 0
        done = self._done[connection] = self._done.get(connection, before) + (1 if is_repeated else _NEW_HEAD)
        if done > _MOST_WORK + _SLACK:
            self.world.fail(self.name, f"{exchange} begins after too many others in one callback of the event loop")

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Forget it."""
        self._heads.pop(connection, None)

    def step(self) -> None:
        """Count the buckets of each connection."""
        server = self.world.scenario.proxy.server
        for listener in () if server is None else server.listeners:
            for connection in listener.connections:
                account = connection.state.account
                count = len(account.buckets) + len(account.stale_buckets)
                if count > _MOST_BUCKETS:
                    self.world.fail(self.name, f"a connection of {account.peer_host} holds {count} buckets")
