"""A simulated process: an event loop, descriptors and connections that end together when it is killed."""

import asyncio
import errno
import os
from collections.abc import Callable
from concurrent.futures import Executor
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.disk import Disk
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import End, Handler
from tests.simulation.sockets import SimulatedSocket
from tests.simulation.threads import SimulatedThread
from tests.simulation.transport import SimulatedTransport

if TYPE_CHECKING:
    from tests.simulation.proxy import Proxy
    from tests.simulation.world import World

_FIRST_DESCRIPTOR: Final = 10
_STORE_THREAD: Final = "quota-store"

# How many descriptors a process may have.
ENOUGH_DESCRIPTORS: Final = 1 << 20


class ProcessLoop(SimulatedLoop):
    """The event loop of a process, with its network."""

    def __init__(self, process: "Process", random: Random) -> None:
        super().__init__(process.world.scheduler, random)
        self.process = process

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Call ``callback`` whenever a simulated socket can be read."""
        fd.watch(lambda: callback(*args))

    def remove_reader(self, fd: Any) -> bool:
        """Stop calling the reader of a simulated socket."""
        fd.watch(None)
        return True

    def extra_work_ns(self, executor: Executor | None) -> tuple[int, int]:
        """Return how much longer a write takes on a slow disk, in ns."""
        store = self.process.disk.store
        if not store.slow_ms or getattr(executor, "_thread_name_prefix", "") != _STORE_THREAD:
            return 0, 0
        slow_ns = int(store.slow_ms * store.random.uniform(0.5, 1.0) * 1_000_000)
        return (slow_ns, 0) if store.random.random() < 0.5 else (0, slow_ns)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        local_addr: tuple[str, int] | None = None,
        ssl: object = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to an address of the simulated network.

        Raises:
            OSError: If nobody listens there, or it is not reached.
        """
        if ssl is not None:  # a probe asks whether the broker speaks TLS; TLS has tests of its own
            raise ConnectionResetError("it closed the connection during the TLS handshake")
        if self.process.odd_dials:
            self.process.odd_dials -= 1
            self.process.world.odd_errors += 1
            raise OddError("a dial ends in a way that nobody expects")
        source = local_addr[0] if local_addr else self.process.host
        dial = _Dial(self)
        end = self.process.world.network.connect(source, (host, port), dial)
        end.wakes = lambda: None  # what arrives at once waits for the transport
        try:
            await dial.answered
        except BaseException:
            self.process.world.network.give_up(end)
            end.abort()
            raise
        self.process.world.tap_broker(end)
        protocol = protocol_factory()
        transport = SimulatedTransport(self.process, end, SimulatedSocket(self.process, end), protocol)
        await self._begin(transport)
        return transport, protocol

    async def connect_accepted_socket(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Give an accepted connection a transport and a protocol."""
        self.process.world.tap_client(sock.end)
        protocol = protocol_factory()
        transport = SimulatedTransport(self.process, sock.end, sock, protocol)
        self.process.world.ledger.served(sock.end.local, sock.end.remote)
        await self._begin(transport)
        return transport, protocol

    async def _begin(self, transport: SimulatedTransport) -> None:
        begun = self.create_future()
        self.call_soon(transport.begin)
        self.call_soon(lambda: None if begun.done() else begun.set_result(None))
        try:
            await begun
        except BaseException:
            transport.abort()
            raise


class OddError(Exception):
    """An error that the proxy does not know. One connection may end with it, and nothing else."""


class _Dial(Handler):
    """Waits until a connection is made or refused."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop
        self.answered: asyncio.Future[None] = loop.create_future()

    def connected(self, end: End) -> None:
        """The connection is open."""
        self._loop.call_soon(lambda: None if self.answered.done() else self.answered.set_result(None))

    def lost(self, end: End, is_reset: bool) -> None:
        """The connection was refused, or the address is not reached."""
        number = errno.ETIMEDOUT if end.is_timed_out else errno.ECONNRESET if is_reset else errno.ECONNREFUSED
        error = OSError(number, os.strerror(number))
        self._loop.call_soon(lambda: None if self.answered.done() else self.answered.set_exception(error))


class Process:
    """A process on the host ``host``.

    Attributes:
        descriptors: The open sockets by descriptor.
        transports: The transports that are not lost, oldest first.
        most_descriptors: How many descriptors it may have. A fault lowers it.
        odd_dials: How many of the next dials end with an exception that nobody expects.
        is_dead: Whether it was killed.
        threads: The threads that were started.
        remains: What must not be collected after the process was killed, because that would run code of it.
        disk: The disk of its machine.
        proxy: The proxy whose process it is.
    """

    def __init__(self, world: "World", host: str, random: Random) -> None:
        self.world = world
        self.host = host
        self.loop = ProcessLoop(self, random)
        self.descriptors: dict[int, Any] = {}
        self.transports: dict[SimulatedTransport, None] = {}
        self.most_descriptors = ENOUGH_DESCRIPTORS
        self.odd_dials = 0
        self.is_dead = False
        self.threads: list[SimulatedThread] = []
        self.remains: list[object] = []
        self.disk: Disk
        self.proxy: Proxy
        self._next_descriptor = _FIRST_DESCRIPTOR

    def take_descriptor(self, owner: object) -> int:
        """Return a new descriptor for a socket."""
        self._next_descriptor += 1
        self.descriptors[self._next_descriptor] = owner
        return self._next_descriptor

    def give_back(self, number: int) -> bool:
        """Close a descriptor. Return False if it was closed before."""
        return self.descriptors.pop(number, None) is not None

    def has_no_descriptor(self) -> bool:
        """Whether no further descriptor is left."""
        return len(self.descriptors) >= self.most_descriptors

    def kill(self) -> None:
        """End the process at this instant: no code of it runs again, and the system resets its connections."""
        self.is_dead = True
        self.loop.kill()
        for owner in tuple(self.descriptors.values()):
            if isinstance(owner, SimulatedSocket):
                owner.end.abort()
            else:
                owner.close()
        self.descriptors.clear()
        self.transports.clear()

    def spawn(self, work: Any) -> "asyncio.Task[Any]":
        """Run a coroutine on the process's loop."""
        return self.loop.create_task(work)
