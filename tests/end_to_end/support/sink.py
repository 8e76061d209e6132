"""A broker that accepts everything and never answers, and a proxy in front of it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.end_to_end.support.processes import Process, free_port, scratch, wait_until
from tests.end_to_end.support.proxy import Proxy

_SINK = """
import asyncio, sys, uvloop

class Sink(asyncio.Protocol):
    pass

async def main():
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()

uvloop.run(main())
"""


@contextmanager
def proxy_to_sink(
    **settings: Any,  # noqa: ANN401 - as in the file
) -> Iterator[Proxy]:
    """Run a proxy in front of a sink, with the listener ``clients``."""
    port = free_port()
    with scratch("sink") as directory:
        sink = Process([sys.executable, "-c", _SINK, str(port)], log=directory / "sink.log")
        try:
            wait_until(lambda: _is_open(port), timeout_s=10, what="the sink listens")
            bind, upstream = f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}"
            listener = {"name": "clients", "bind": bind, "upstream": upstream, "max_connections": None}
            with Proxy({"listeners": [listener], **settings}) as proxy:
                yield proxy
        finally:
            sink.kill()


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
