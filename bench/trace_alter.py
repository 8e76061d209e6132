"""Counts the calls that an AlterClientQuotas request for the limit of one user makes within the proxy.

    python -m bench.trace_alter           the three figures
    python -m bench.trace_alter --calls   and each call, with the module of its function

A ``ClientConnection`` receives the request on a transport that is a stub, and the limit is stored in a directory. An
earlier request on the same connection has made what is made once. Calls in the store's thread count, too. Calls of
lambdas, generators and comprehensions count as calls of functions do. A coroutine that goes on is no new call.
"""

import argparse
import asyncio
import dis
import inspect
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, Store
from kafka_quota_proxy.config.principals import ANONYMOUS, Principals
from kafka_quota_proxy.protocol.client_quotas import ALTER
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.quota_request_frames import read_alter_response

_PACKAGE: Final = "kafka_quota_proxy."
_ANSWER_S: Final = 10.0
_ONE: Final = struct.pack(">i", 1)  # an array of one element
_SUSPENDABLE: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Trace(NamedTuple):
    """The calls of the product's functions, in their order. Each is the name of a module and that of a function."""

    calls: tuple[tuple[str, str], ...]

    @property
    def modules(self) -> int:
        """How many modules were called."""
        return len({module for module, _ in self.calls})

    @property
    def moves(self) -> int:
        """How many calls are in another module than the call before."""
        return sum(one[0] != other[0] for one, other in pairwise(self.calls))


class _Recorder:
    """Records calls of functions of the product, in all threads that start while it is installed."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[tuple[str, str]] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call":
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith(_PACKAGE) and not _goes_on(frame):
                self.calls.append((module.removeprefix(_PACKAGE), frame.f_code.co_qualname))


def _goes_on(frame: FrameType) -> bool:
    """Return whether a generator or coroutine goes on after it was suspended."""
    return bool(frame.f_code.co_flags & _SUSPENDABLE) and frame.f_lasti > _beginning(frame.f_code)


@cache
def _beginning(code: CodeType) -> int:
    """Return where the code of a generator or coroutine begins, after the instructions that make its object."""
    return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")


class _Transport(asyncio.Transport):
    """Stands for the transport to a client. ``answer`` gets the next bytes that are written."""

    def __init__(self) -> None:
        super().__init__({"socket": _Socket()})
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.answer.set_result(bytes(data))

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class _Socket:
    def setsockopt(self, *_: object) -> None:
        pass


def alter_request(user: str, limit: float) -> bytes:
    """Return an AlterClientQuotas request of version 0 that sets the ``producer_byte_rate`` of a user."""
    op = _text("producer_byte_rate") + struct.pack(">d?", limit, False)
    entity = _text("user") + _text(user)
    header = struct.pack(">hhi", ALTER, 0, 1) + _text("tracer")
    body = b"".join((header, _ONE, _ONE, entity, _ONE, op, b"\0"))
    return struct.pack(">i", len(body)) + body


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


async def trace(directory: Path) -> Trace:
    """Return what a request calls. ``directory`` is the store's."""
    proxy, broker = (Address(host="127.0.0.1", port=port) for port in (1, 2))  # neither is dialled
    listener = Listener(name="clients", bind=proxy, upstream=broker)
    principals = Principals(admins=frozenset({ANONYMOUS}))
    server = Server(ProxyConfig(listeners=(listener,), principals=principals, store=Store(directory=str(directory))))
    recorder = _Recorder()
    with recorder.installed():
        await server.quota_manager.read(server.brokers.follow)
        server.apply(server.config)
        answering = asyncio.ensure_future(server.quota_manager.run())
        connection = server.brokers.entrances[server.listeners[0]].accept()
        transport = _Transport()
        connection.connection_made(transport)
        await _answer(connection, transport, "alice")
        recorder.is_on = True
        answer = await _answer(connection, transport, "bob")
        recorder.is_on = False
    connection.close("client_closed")
    answering.cancel()
    await server.quota_manager.stop()
    ((error_code, message, _),) = read_alter_response(answer, 0).results
    if error_code:
        raise RuntimeError(message)
    return Trace(tuple(recorder.calls))


async def _answer(connection: ClientConnection, transport: _Transport, user: str) -> bytes:
    transport.answer = asyncio.get_running_loop().create_future()
    connection.data_received(alter_request(user, 1e6))
    async with asyncio.timeout(_ANSWER_S):
        return await transport.answer


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.trace_alter", description="Trace an AlterClientQuotas.")
    parser.add_argument("--calls", action="store_true", help="print each call, too")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(trace(Path(directory)))
    if args.calls:
        sys.stdout.writelines(f"{module} {name}\n" for module, name in found.calls)
    sys.stdout.write(f"{len(found.calls)} calls, {found.modules} modules, {found.moves} moves\n")


if __name__ == "__main__":
    main()
