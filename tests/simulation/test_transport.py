"""Tests what the checks are told of bytes that a process writes around the end of a connection."""

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

from tests.simulation.network import End
from tests.simulation.process import Process
from tests.simulation.sockets import SimulatedSocket
from tests.simulation.transport import SimulatedTransport


class Connection:
    """A transport to a broker that closes its side, and the turns of the process's loop."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self._turns: deque[tuple[Any, ...]] = deque()
        loop = SimpleNamespace(call_soon=lambda *turn: self._turns.append(turn))
        end = SimpleNamespace(
            remote=("10.0.1.1", 9092), local=("10.0.0.1", 32_768), is_open=True, unread_bytes=0, unsent_bytes=0,
            take_end=lambda: True, close=lambda: None, tap=SimpleNamespace(wrote=self.told.append),
        )  # fmt: skip
        protocol = SimpleNamespace(eof_received=lambda: None, connection_lost=lambda _: None)
        self.transport = SimulatedTransport(
            cast(Process, SimpleNamespace(loop=loop, transports={})),
            cast(End, end),
            cast(SimulatedSocket, SimpleNamespace(release=lambda: None)),
            cast(Any, protocol),
        )

    def let_the_broker_close(self) -> None:
        self.transport._read()

    def run(self) -> None:
        while self._turns:
            function, *arguments = self._turns.popleft()
            function(*arguments)


def test_what_is_written_before_the_process_hears_of_the_end_counts_as_written() -> None:
    connection = Connection()
    connection.let_the_broker_close()

    connection.transport.write(b"before")
    connection.run()
    connection.transport.write(b"after")

    assert connection.told == [b"before"]


def test_what_is_written_after_the_process_has_closed_does_not_count() -> None:
    connection = Connection()
    connection.transport.close()

    connection.transport.write(b"too late")

    assert connection.told == []
