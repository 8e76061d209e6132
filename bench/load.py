"""The load generator: ``python -m bench.load SHAPE --port PORT …`` prints a JSON object.

``pipeline``  C connections with F requests in flight each: bulk (C = 1, F = 5) and closed loop (F = 1)
``latency``   one connection with a request each millisecond
``idle``      N connections that send one request and then nothing

``--pid`` is the process of the proxy. Its CPU time and memory are read at both ends of the measurement.
"""

import argparse
import asyncio
import dataclasses
import json
import resource
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from typing import cast

import uvloop

from bench.frames import FETCH_VERSION, PRODUCE_VERSION, fetch_request, produce_request
from bench.measure import cpu_seconds, resident_bytes

BUFFER_SIZE_BYTES = 1 << 20
HIGH_WATER_BYTES = 8 << 20
WARM_UP_S = 0.5
WARM_UP_REQUESTS = 300
_INT32 = struct.Struct(">i")


@dataclasses.dataclass(slots=True)
class Counts:
    """The counts of all connections of a run."""

    responses: int = 0
    response_bytes: int = 0
    lost_connections: int = 0


class ResponseCounter:
    """Counts complete responses by their int32 lengths."""

    def __init__(self) -> None:
        self._held = b""  # an incomplete length field
        self._left = 0  # missing bytes of a response

    def feed(self, data: bytes | bytearray, size_bytes: int) -> int:
        """Return the number of responses that end within the first ``size_bytes`` of ``data``."""
        at = ended = 0
        while at < size_bytes:
            if self._left == 0:
                more = data[at : min(size_bytes, at + 4 - len(self._held))]
                self._held += more
                at += len(more)
                if len(self._held) < 4:
                    break
                (self._left,) = _INT32.unpack(self._held)
                self._held = b""
                continue
            step = min(self._left, size_bytes - at)
            at += step
            self._left -= step
            ended += self._left == 0
        return ended


class PipelineConnection(asyncio.BufferedProtocol):
    """Keeps a number of requests in flight."""

    buffer = bytearray(BUFFER_SIZE_BYTES)  # shared, because the content of responses is not used

    def __init__(self, request: bytes, in_flight: int, counts: Counts) -> None:
        self._head, self._rest = request[:8], memoryview(request)[12:]
        self._in_flight = in_flight
        self._counts = counts
        self._sent = 0
        self._responses = ResponseCounter()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the pipeline."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is no subclass of it
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        for _ in range(self._in_flight):
            self._send()

    def _send(self) -> None:
        self._sent += 1
        self._transport.writelines((self._head + _INT32.pack(self._sent), self._rest))

    def get_buffer(self, sizehint: int) -> bytearray:
        """Receive into the shared buffer."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Count the complete responses, and send as many requests."""
        ended = self._responses.feed(self.buffer, nbytes)
        self._counts.response_bytes += nbytes
        self._counts.responses += ended
        for _ in range(ended):
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the lost connection, which makes the run invalid."""
        self._counts.lost_connections += 1


async def pipeline(
    *,
    host: str,
    port: int,
    request: bytes,
    connections: int,
    in_flight: int,
    seconds: float,
    pid: int | None,
    tls: ssl.SSLContext | None,
) -> dict[str, float]:
    """Return the requests, the bytes (both ways) and the CPU seconds of ``pid`` in a window of ``seconds``."""
    loop = asyncio.get_running_loop()
    counts = Counts()
    transports = []
    for _ in range(connections):
        transport, _ = await loop.create_connection(
            lambda: PipelineConnection(request, in_flight, counts), host, port, ssl=tls
        )
        transports.append(transport)
    await asyncio.sleep(WARM_UP_S)
    before, cpu_before, start = dataclasses.replace(counts), cpu_seconds(pid) if pid else 0.0, time.perf_counter()
    await asyncio.sleep(seconds)
    after, cpu_after, end = dataclasses.replace(counts), cpu_seconds(pid) if pid else 0.0, time.perf_counter()
    for transport in transports:
        transport.abort()
    if after.lost_connections:
        raise SystemExit(f"{after.lost_connections} of {connections} connections were closed by the other side")
    requests = after.responses - before.responses
    if not requests:
        raise SystemExit("not one request was answered")
    return {
        "seconds": end - start,
        "requests": requests,
        "bytes": requests * len(request) + after.response_bytes - before.response_bytes,
        "cpu_s": cpu_after - cpu_before,
    }


def _exchange(connection: socket.socket, request: bytes, correlation_id: int) -> None:
    connection.sendall(request[:8] + _INT32.pack(correlation_id) + request[12:])
    size = 4 + _INT32.unpack(_exactly(connection, 4))[0]
    _exactly(connection, size - 4)


def _exactly(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        more = connection.recv(size_bytes - len(data))
        if not more:
            raise SystemExit("the connection was closed by the other side")
        data += more
    return data


def latency(
    *, port: int, request: bytes, requests_per_second: float, seconds: float, pid: int | None
) -> dict[str, float]:
    """Return the 50th and 99th percentile of the latency, in microseconds.

    A latency counts from the time at which the request was due, even if it was sent later.
    """
    times = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for n in range(WARM_UP_REQUESTS):
            _exchange(connection, request, n)
        cpu_before = cpu_seconds(pid) if pid else 0.0
        period = 1 / requests_per_second
        start = ended = time.perf_counter()
        for n in range(int(requests_per_second * seconds)):
            due = start + n * period
            was_late = ended > due
            if not was_late:
                time.sleep(max(0.0, due - time.perf_counter()))
            sent = due if was_late else time.perf_counter()
            _exchange(connection, request, n)
            ended = time.perf_counter()
            times.append(ended - sent)
        cpu_s = (cpu_seconds(pid) if pid else 0.0) - cpu_before
    times.sort()
    return {
        "seconds": ended - start,
        "requests": len(times),
        "bytes": len(times) * len(request),
        "cpu_s": cpu_s,
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
    }


def idle(*, port: int, request: bytes, connections: int, pid: int | None) -> dict[str, float]:
    """Return the growth of the resident set of ``pid`` per connection, in bytes."""
    open_connections: list[socket.socket] = []
    try:
        # The first connections cause one-time allocations, which do not count.
        open_connections.extend(_spoken(port, request, max(10, connections // 20)))
        time.sleep(1)
        before = resident_bytes(pid) if pid else 0
        open_connections.extend(_spoken(port, request, connections))
        time.sleep(1)
        after = resident_bytes(pid) if pid else 0
    finally:
        for connection in open_connections:
            connection.close()
    return {"connections": connections, "resident_bytes_per_connection": (after - before) / connections}


def _spoken(port: int, request: bytes, connections: int) -> Iterator[socket.socket]:
    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port))
        _exchange(connection, request, 0)
        yield connection


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("shape", choices=["pipeline", "latency", "idle"])
    parser.add_argument("--host", default="127.0.0.1", help="pipeline only")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--api", choices=["produce", "fetch"], default="produce")
    parser.add_argument("--api-version", type=int, help=f"default: Produce {PRODUCE_VERSION}, Fetch {FETCH_VERSION}")
    parser.add_argument("--size", type=int, required=True, help="bytes of the Produce request or the Fetch response")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1_000, help="requests per second, latency only")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--tls", metavar="CA", help="speak TLS, and trust this file; pipeline only")
    parser.add_argument("--pid", type=int, help="the proxy's process")
    o = parser.parse_args()
    request = (
        produce_request(b"bench", o.size, version=o.api_version or PRODUCE_VERSION)
        if o.api == "produce"
        else fetch_request(b"bench", o.size, version=o.api_version or FETCH_VERSION)
    )
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    match o.shape:
        case "pipeline":
            result = uvloop.run(
                pipeline(
                    host=o.host,
                    port=o.port,
                    request=request,
                    connections=o.connections,
                    in_flight=o.in_flight,
                    seconds=o.seconds,
                    pid=o.pid,
                    tls=ssl.create_default_context(cafile=o.tls) if o.tls else None,
                )
            )
        case "latency":
            result = latency(port=o.port, request=request, requests_per_second=o.rate, seconds=o.seconds, pid=o.pid)
        case _:
            result = idle(port=o.port, request=request, connections=o.connections, pid=o.pid)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
