"""Measures the cost of rewriting addresses in a Fetch response, without a network: ``python -m bench.rewriting``.

Two sessions, one of which rewrites, get the same requests and responses in turn.
"""

import sys
import time
from statistics import median
from typing import Final

from bench.frames import NEW_FETCH_VERSION, fetch_request, fetch_response
from kafka_quota_proxy.config.model import DEFAULT, Enforcement, ProxyConfig, QuotaRule
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext, Policy
from kafka_quota_proxy.proxy.session.counters import Counters

ROUNDS: Final = 41
RESPONSES: Final = 5_000
KIB: Final = 1_024


def main() -> None:
    """Print the cost for complete responses and for pieces."""
    for title, size_bytes, piece_bytes in (
        ("64 KiB, whole", 64 * KIB, 64 * KIB),
        ("64 KiB, in two pieces", 64 * KIB, 40 * KIB),
        ("1 MiB, in pieces of 256 KiB", 1024 * KIB, 256 * KIB),
    ):
        plain, rewriting = measure(size_bytes, piece_bytes)
        sys.stdout.write(
            f"Fetch v{NEW_FETCH_VERSION} of {title}: {plain * 1e6:.2f} us in the session, rewriting "
            f"{(rewriting - plain) * 1e6:+.2f} us\n"
        )


def measure(size_bytes: int, piece_bytes: int) -> tuple[float, float]:
    """Return the seconds for a request and its response, without and with rewriting."""
    request = fetch_request(b"bench", size_bytes, version=NEW_FETCH_VERSION)
    response = fetch_response(size_bytes, version=NEW_FETCH_VERSION)
    pieces = [response[at : at + piece_bytes] for at in range(0, len(response), piece_bytes)]
    addresses = Addresses(lambda *_: None)
    addresses.advertised[0] = (b"127.0.0.1", 9193)
    sessions = (_session(None), _session(addresses))
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for session, seconds in zip(sessions, taken, strict=True):
            seconds.append(_seconds(session, request, pieces))
    return median(taken[0]), median(taken[1])


def _session(addresses: Addresses | None) -> Session:
    config = ProxyConfig(listeners=(), quotas=(QuotaRule(client_id=DEFAULT, consumer_byte_rate=1e12),))
    policy = Policy(100 * KIB * KIB, Enforcement.RESPOND, False, "sub")
    return Session(ConnectionContext(policy, BrokerQuotas(config), Counters(), addresses))


def _seconds(session: Session, request: bytes, pieces: list[bytes]) -> float:
    started = time.perf_counter()
    for _ in range(RESPONSES):
        session.receive_from_client(request, now_ms=1)
        session.state.to_broker.clear()
        for piece in pieces:
            session.receive_from_broker(piece, now_ms=1)
            session.state.to_client.clear()
    return (time.perf_counter() - started) / RESPONSES


if __name__ == "__main__":
    main()
