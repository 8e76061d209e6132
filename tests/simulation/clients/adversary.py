"""A client that means harm: it announces what it never sends, has other names in turn, and waits only to leave."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.simulation.clients.connection import Connection
from tests.simulation.clients.greeting import greet
from tests.simulation.clients.producer import ProduceDetail
from tests.simulation.clients.profiles import HARM
from tests.simulation.ledger import Exchange
from tests.simulation.wire import groups, transfer
from tests.simulation.wire.records import Batch, write_batch
from tests.simulation.wire.transfer import FetchPartition, FetchTopic, PartitionData, TopicData

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from tests.simulation.clients.setting import Setting
    from tests.simulation.scheduler import Event
    from tests.simulation.world import World

STALLS: Final = "stalls"
NEVER_ENDS: Final = "never ends"
FLOODS: Final = "floods"
FLOODS_AT_ONCE: Final = "floods at once"
HIDES_BEHIND_A_POLL: Final = "hides behind a poll"
POLLS: Final = "polls"
WAITS_AND_LEAVES: Final = "waits and leaves"
ASKS: Final = "asks"
COMES_AND_GOES: Final = "comes and goes"
MOVES: Final = (
    STALLS, STALLS, NEVER_ENDS, FLOODS, FLOODS_AT_ONCE, HIDES_BEHIND_A_POLL, POLLS, WAITS_AND_LEAVES, ASKS,
    COMES_AND_GOES,
)  # fmt: skip

_PRODUCE_VERSION: Final = 3
_FETCH_VERSION: Final = 11
_METADATA_VERSION: Final = 5
_HEARTBEAT_VERSION: Final = 1
_FOREVER_MS: Final = (1 << 31) - 1
_PATIENT_MS: Final = 40_000.0
_MOST_CONNECTIONS: Final = 60
_MOST_FLOODED: Final = 4_000  # requests of a flood, in the whole run


class Adversary:
    """Makes one move after another, each with connections of its own.

    Attributes:
        manner: As for a ``Stranger``: whoever has one does not read and write as it should.
    """

    manner: Final = HARM

    def __init__(
        self, world: "World", setting: "Setting", topic: str, moves: tuple[str, ...], *, every_ms: float
    ) -> None:
        self.world = world
        self.setting = setting
        self.random: Random = world.random_of(setting.name)
        self.is_stopping = False
        self._topic = topic
        self._moves = moves
        self._every_ms = every_ms
        self._flooded = 0
        self._open: dict[Connection, Callable[[Connection], None]] = {}
        self._next: Event | None = None
        self._begun = 0

    # -- the life of an actor --

    def start(self) -> None:
        """Make the first move."""
        if not self.is_stopping:
            self._move()
            self._next = self.world.call_later(self._every_ms * self.random.uniform(0.2, 1.8), self.start)

    def stop(self) -> None:
        """Leave with all connections."""
        self.is_stopping = True
        if self._next is not None:
            self._next.cancel()
        for connection in list(self._open):
            connection.abort()

    @property
    def is_done(self) -> bool:
        """Whether no connection is left."""
        return self.is_stopping and not self._open

    def changed(self, connection: Connection) -> None:
        """Do what the connection is for, once it may."""
        work = self._open.get(connection, _nothing)
        self._open[connection] = _nothing
        work(connection)

    def lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    # -- moves --

    def _move(self) -> None:
        random, move = self.random, self.random.choice(self._moves)
        number = 1
        if move in (STALLS, POLLS, ASKS):
            number = random.choice((1, 3, 8))
        elif move in (WAITS_AND_LEAVES, COMES_AND_GOES):
            number = random.choice((5, 12))
        self.world.story.tell(f"{self.setting.name} {move}, on {number} connections")
        work = self._work(move)
        for _ in range(min(number, _MOST_CONNECTIONS - len(self._open))):
            self._connect(work)

    def _work(self, move: str) -> Callable[[Connection], None]:
        works: dict[str, Callable[[Connection], None]] = {
            STALLS: self._stall,
            NEVER_ENDS: self._never_end,
            FLOODS: self._flood_later,
            FLOODS_AT_ONCE: self._flood,
            HIDES_BEHIND_A_POLL: self._hide,
            POLLS: self._poll,
            WAITS_AND_LEAVES: self._wait,
            ASKS: self._ask,
            COMES_AND_GOES: Connection.abort,
        }
        return works[move]

    def _connect(self, work: Callable[[Connection], None]) -> None:
        address = self.random.choice(self.setting.bootstrap)
        self._open[Connection(self.world, self.setting, self, address, None, 0, greet)] = work

    def _leave_after(self, connection: Connection, times_ms: tuple[float, ...]) -> None:
        self.world.call_later(self.random.choice(times_ms), connection.abort)

    def _stall(self, connection: Connection) -> None:
        """Announce a long Produce, send nothing for a while, and then the rest, or a reset."""
        frame = self._begin_long(connection, self.random.choice((20_000, 60_000, 60_000, 300_000)))
        wait_ms = self.random.choice((500.0, 1_500.0, 4_000.0, 12_000.0, 30_000.0))
        if self.random.random() < 0.5:
            self.world.call_later(wait_ms, connection.abort)
        else:
            self.world.call_later(wait_ms, connection.go_on, len(frame))
            self._leave_after(connection, (_PATIENT_MS,))

    def _never_end(self, connection: Connection) -> None:
        """Send a long Produce piece by piece, and leave before its end."""
        frame = self._begin_long(connection, self.random.choice((100_000, 300_000)))
        piece = self.random.choice((1, 2_000, 20_000, 60_000))
        every_ms = self.random.choice((20.0, 600.0))
        times = min(self.random.choice((5, 20)), (len(frame) - 10_000) // piece)
        for at in range(times):
            self.world.call_later((at + 1) * every_ms, connection.go_on, piece)
        self.world.call_later((times + 1) * every_ms, connection.abort)

    def _begin_long(self, connection: Connection, size: int) -> bytes:
        self._begun += 1
        token = f"{self.setting.name}-{self._begun}"
        acks = self.random.choice((0, 1, 1))
        data = write_batch(Batch(token, size, 1, -1, -1, -1))
        first = self.random.choice((40, 400, 9_000))
        return self._produce(connection, acks, [TopicData(self._topic, [PartitionData(0, data)])], first=first).request

    def _flood_later(self, connection: Connection) -> None:
        """Flood once the broker is dialled."""
        self._request(connection)
        self.world.call_later(self.random.choice((50.0, 1_000.0)), self._flood, connection)

    def _flood(self, connection: Connection) -> None:
        """Send many of the smallest requests at once, which have no response, with names in turn."""
        number = min(self.random.choice((350, 700, 1_700)), _MOST_FLOODED - self._flooded)
        if connection.is_gone or number <= 0:
            return
        self._flooded += number
        names = self.random.choice((("",), ("a0", "a1"), tuple(f"{at // 10}{at % 10}" for at in range(100))))
        with connection.gathered():
            for at in range(number):
                self._produce(connection, 0, (), name=names[at % len(names)])
        self._leave_after(connection, (0.0, 5.0, 3_000.0, _PATIENT_MS))

    def _hide(self, connection: Connection) -> None:
        """Hold as many buckets as there are names, behind a fetch that is never answered."""
        self._fetch(connection)
        with connection.gathered():
            for at in range(self.random.choice((10, 40))):
                self._produce(connection, 1, (), name=f"h{at}")
        self._leave_after(connection, (3_000.0, _PATIENT_MS))

    def _poll(self, connection: Connection) -> None:
        """Fetch what never comes, or wait for so much that the broker answers late."""
        max_wait_ms = self.random.choice((_FOREVER_MS, 3_000, 8_000, 13_000))
        self._fetch(connection, max_wait_ms=max_wait_ms, again=max_wait_ms < _FOREVER_MS)
        self._leave_after(connection, (1_000.0, 12_000.0, _PATIENT_MS))

    def _wait(self, connection: Connection) -> None:
        """Take a place in the line, and leave."""
        self._begun += 1
        token = f"{self.setting.name}-{self._begun}"
        data = write_batch(Batch(token, self.random.choice((500, 4_000, 12_000)), 1, -1, -1, -1))
        self._produce(connection, 1, [TopicData(self._topic, [PartitionData(0, data)])])
        self._leave_after(connection, (0.0, 20.0, 700.0, 3_000.0))

    def _ask(self, connection: Connection) -> None:
        """Send many requests that cost one of ``request_rate`` each."""
        for _ in range(self.random.choice((3, 20))):
            self._request(connection)
        self._leave_after(connection, (0.0, 3_000.0, _PATIENT_MS))

    # -- requests --

    def _produce(
        self,
        connection: Connection,
        acks: int,
        topics: "Sequence[TopicData]",
        *,
        name: str = "",
        first: int | None = None,
    ) -> Exchange:
        entity = self.setting.entity
        if name:
            entity = entity._replace(client_id=name)
        return connection.ask(
            transfer.produce, _PRODUCE_VERSION, detail=ProduceDetail(acks), expects_response=acks != 0, entity=entity,
            first_bytes=first, fields={"topics": topics, "acks": acks},
        )  # fmt: skip

    def _fetch(self, connection: Connection, *, max_wait_ms: int = _FOREVER_MS, again: bool = False) -> None:
        def answered(_result: object, _exchange: Exchange) -> None:
            if again and not connection.is_gone:
                self._fetch(connection, max_wait_ms=max_wait_ms, again=True)

        topics = [FetchTopic(self._topic, [FetchPartition(0, 0)])]
        fields = {"topics": topics, "max_wait_ms": max_wait_ms, "min_bytes": _FOREVER_MS}
        connection.ask(transfer.fetch, _FETCH_VERSION, answered, fields=fields)

    def _request(self, connection: Connection) -> None:
        if connection.is_gone:
            return
        if self.random.random() < 0.5:
            connection.ask(groups.heartbeat, _HEARTBEAT_VERSION, fields={"group_id": "no group"})
        else:
            connection.ask(transfer.metadata, _METADATA_VERSION, fields={"topics": []})


def _nothing(_connection: Connection) -> None:
    """Do nothing more."""
