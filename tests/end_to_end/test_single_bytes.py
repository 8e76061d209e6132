"""A request that arrives in single bytes costs the same for each byte, also if the proxy collects the request."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from tests.end_to_end.support.frames import FETCH, FETCH_VERSION, PRODUCE, PRODUCE_VERSION, produce_body, request
from tests.end_to_end.support.load import KIB, MIB
from tests.end_to_end.support.processes import scratch, wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.sink import proxy_to_sink
from tests.support.certificates import Authority

CONNECTIONS: Final = 25
WRITES_PER_SECOND: Final = 2_000
_SECONDS: Final = 1
_EACH: Final = WRITES_PER_SECOND * _SECONDS // CONNECTIONS
_CREATE_TOPICS, _ALTER_CLIENT_QUOTAS = 19, 49
_HEADER_BYTES: Final = 30


def _begun(api_key: int, version: int, size_bytes: int, body: bytes = b"") -> bytes:
    """Return the beginning of a request of this size. More bytes are missing than this test sends."""
    front = struct.pack(">i", size_bytes) + request(api_key, version, 1, "hostile", body)[4:]
    return front + bytes(size_bytes - len(front) - 2 * _EACH)


LONG_HEAD: Final = request(PRODUCE, PRODUCE_VERSION, 1, "h" * 32_000, struct.pack(">h", 32_000) + bytes(30_000))[4:]
HARMLESS: Final = _begun(PRODUCE, PRODUCE_VERSION, MIB, produce_body("t", bytes(100), acks=1))
# The listener, and the bytes that are sent before the single bytes.
KINDS: Final = {
    "CreateTopics": ("clients", _begun(_CREATE_TOPICS, 6, 4 * MIB)),
    "AlterClientQuotas": ("clients", _begun(_ALTER_CLIENT_QUOTAS, 0, 4 * MIB)),
    "a head": ("clients", struct.pack(">i", MIB) + LONG_HEAD),
    "a follower's fetch": ("brokers", _begun(FETCH, FETCH_VERSION, 8 * MIB - 64 * KIB)),
    "CreateTopics over TLS": ("tls", _begun(_CREATE_TOPICS, 6, 4 * MIB)),
    "a ClientHello": ("shaking", b"\x16\x03\x01\x40\x00\x01\x01\xff\xf0\x03\x03" + bytes(8 * KIB)),
    "a PROXY header": (
        "balanced",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack(">H", 4_096) + bytes(4_096 - 2 * _EACH),
    ),
}


@contextmanager
def _proxy() -> Iterator[Proxy]:
    with scratch("collected") as directory:
        certificate, key = Authority("ca").issue(hosts=["127.0.0.1"]).save(directory, "proxy")
        tls = {"certificate": certificate, "key": key}
        others: list[dict[str, object]] = [
            {"name": "brokers", "inter_broker": True},
            {"name": "tls", "client_tls": tls},
            {"name": "shaking", "client_tls": tls},
            {"name": "balanced", "proxy_protocol": True},
        ]
        with proxy_to_sink(
            others=others,
            principals={"admins": ["ANONYMOUS"]},
            quotas=[{"client-id": "hostile", "controller_mutation_rate": 1}],
        ) as proxy:
            yield proxy


def _connect(stack: ExitStack, proxy: Proxy, listener: str) -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port(listener)), timeout=30))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if listener != "tls":
        return client
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return stack.enter_context(context.wrap_socket(client))


def _core_share(proxy: Proxy, listener: str, front: bytes) -> float:
    """Return the part of a core that the proxy uses for single bytes, after ``front`` has arrived."""
    with ExitStack() as stack:
        clients = [_connect(stack, proxy, listener) for _ in range(CONNECTIONS)]
        for client in clients:
            client.sendall(front)
        _settle(proxy)
        before_s, started = proxy.process.cpu_seconds(), time.monotonic()
        for number in range(_EACH * CONNECTIONS):
            clients[number % CONNECTIONS].sendall(b"\0")
            ahead_s = started + number / WRITES_PER_SECOND - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)
        _settle(proxy)
        return (proxy.process.cpu_seconds() - before_s) / _SECONDS


def _settle(proxy: Proxy) -> None:
    """Wait until the proxy is idle."""
    seen = [-1.0]

    def rests() -> bool:
        seen.append(proxy.process.cpu_seconds())
        return seen[-1] - seen[-2] < 0.02

    wait_until(rests, timeout_s=30, what="the proxy rests", poll_s=0.1)


def test_collecting_single_bytes_costs_little_for_any_api() -> None:
    with _proxy() as proxy:
        harmless = _core_share(proxy, "clients", HARMLESS)
        shares = {kind: _core_share(proxy, *begun) for kind, begun in KINDS.items()}
        errors = proxy.metrics().total("kafka_quota_proxy_protocol_errors_total")

    print(f"{WRITES_PER_SECOND} bytes/s, {harmless:.3f} of a core where they pass;", shares)  # noqa: T201
    assert errors == 0, "all of it is waited for"
    # A byte that is forwarded is the measure, whatever the machine's speed. It also costs a write to the broker.
    assert all(share < 2 * harmless + 0.02 for share in shares.values()), (harmless, shares)
