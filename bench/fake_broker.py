"""A broker that answers Produce and Fetch from templates: ``python -m bench.fake_broker PORT``.

It must cost less than any proxy in front of it. So bodies of Produce requests are counted but not parsed, and a Fetch
response is built only once. It closes connections that ask for anything else than Metadata, such as those on which a
proxy asks who the broker is. It prints "ready", and runs until it is terminated.
"""

import asyncio
import functools
import struct
import sys
from typing import cast

import uvloop

from bench.frames import (
    FETCH,
    HEAD,
    METADATA,
    PRODUCE,
    fetch_max_bytes_offset,
    fetch_response,
    metadata_response,
    produce_response,
)

# Large enough to empty a socket's receive buffer with one call.
BUFFER_SIZE_BYTES = 1 << 20
BACKLOG = 4096

_CORRELATION_ID = struct.Struct(">i")
_PRODUCE_HEAD = produce_response()[:4]
_PRODUCE_REST = produce_response()[8:]


@functools.cache
def _fetch_template(size_bytes: int, version: int) -> tuple[bytes, memoryview]:
    frame = memoryview(fetch_response(size_bytes, version=version))
    return bytes(frame[:4]), frame[8:]


class UnknownApiError(Exception):
    """A request is of an API that this broker does not know."""


class Responder:
    """Turns the bytes of requests into responses. It keeps the header of an incomplete frame, but never a body."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._held = b""  # a frame with an incomplete header, or an incomplete Fetch request
        self._body_left = 0  # missing bytes of a Produce body
        self._answer = b""  # the response to send when the body is complete

    def feed(self, data: bytes | bytearray, size_bytes: int) -> list[bytes | memoryview]:
        """Return the responses to all requests that end within the first ``size_bytes`` of ``data``.

        Raises:
            UnknownApiError: If one is of another API.
        """
        at = 0
        answers: list[bytes | memoryview] = []
        if self._body_left:
            if size_bytes < self._body_left:
                self._body_left -= size_bytes
                return answers
            at, self._body_left = self._body_left, 0
            answers.append(self._answer)
        end = size_bytes
        if self._held:
            data = self._held + data[at:size_bytes]
            at, end, self._held = 0, len(data), b""
        while end - at >= HEAD.size:
            length, api_key, version, correlation_id = HEAD.unpack_from(data, at)
            is_whole = end - at >= 4 + length
            if api_key == PRODUCE:
                answer = produce_answer(correlation_id)
                if not is_whole:
                    self._body_left, self._answer = 4 + length - (end - at), answer
                    return answers
                answers.append(answer)
            elif is_whole and api_key == METADATA:
                answers.append(metadata_answer(correlation_id, self._port))
            elif api_key not in (FETCH, METADATA):
                raise UnknownApiError(f"API {api_key}")
            elif is_whole:
                answers.extend(fetch_answer(correlation_id, max_bytes(data, at), version))
            else:
                break
            at += 4 + length
        self._held = bytes(data[at:end])
        return answers


class FakeBrokerConnection(asyncio.BufferedProtocol):
    """The connection of a client."""

    buffer = bytearray(BUFFER_SIZE_BYTES)  # shared, because buffer_updated follows at once on get_buffer

    def __init__(self, port: int) -> None:
        self._transport: asyncio.Transport
        self._responder = Responder(port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is no subclass of it

    def get_buffer(self, sizehint: int) -> bytearray:
        """Receive into the shared buffer."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Answer every complete request."""
        try:
            answers = self._responder.feed(self.buffer, nbytes)
        except UnknownApiError:
            self._transport.abort()
            return
        if answers:
            self._transport.writelines(answers)


def produce_answer(correlation_id: int) -> bytes:
    return _PRODUCE_HEAD + _CORRELATION_ID.pack(correlation_id) + _PRODUCE_REST


def fetch_answer(correlation_id: int, size_bytes: int, version: int) -> tuple[bytes, memoryview]:
    """Answer a Fetch request with ``max_bytes`` bytes, without copying records."""
    head, rest = _fetch_template(size_bytes, version)
    return head + _CORRELATION_ID.pack(correlation_id), rest


def metadata_answer(correlation_id: int, port: int) -> bytes:
    """Answer a Metadata v1 request with this broker as the only one."""
    frame = metadata_response(b"127.0.0.1", port)
    return frame[:4] + _CORRELATION_ID.pack(correlation_id) + frame[8:]


def max_bytes(data: bytes | bytearray, at: int) -> int:
    """Return ``max_bytes`` of the Fetch request that starts at ``at``."""
    version, client_id_size = struct.unpack_from(">2xh4xh", data, at + 4)
    body = at + HEAD.size + 2 + max(client_id_size, 0) + 1
    size: int = struct.unpack_from(">i", data, body + fetch_max_bytes_offset(version))[0]
    return size


async def serve(port: int, host: str = "127.0.0.1") -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: FakeBrokerConnection(port), host, port, backlog=BACKLOG)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), *sys.argv[2:]))
