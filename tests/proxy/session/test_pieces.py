"""Tests that frames that arrive in small pieces are collected, and not parsed again with each piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import pack

import pytest

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.protocol.client_quotas import Alteration, AlterRequest
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.request_stream import RequestStream
from kafka_quota_proxy.proxy.session.response_stream import ResponseStream
from tests.proxy.session.handlers.test_follower_fetch import BUSY, P0, Front, lagging, listed
from tests.proxy.session.handlers.test_quota_requests import administered
from tests.support.controller import create
from tests.support.frames import brokers_in, fetch_request, metadata_request, metadata_response, produce_request
from tests.support.logins import authenticate_request, authenticate_response, handshake_request, handshake_response
from tests.support.quota_request_frames import write_alter_request
from tests.support.replica_frames import batches
from tests.support.wire import Wire

PIECE_BYTES = 100


def in_pieces(frame: bytes) -> Iterator[bytes]:
    return (frame[at : at + PIECE_BYTES] for at in range(0, len(frame), PIECE_BYTES))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of how many bytes each attempt to parse a frame has seen."""
    seen: list[int] = []
    for kind, name in ((RequestStream, "_pass_on"), (ResponseStream, "_pass_on")):
        real = getattr(kind, name)

        def counted(session: object, data: bytes, start: int, now_ms: int, real: object = real) -> None:
            seen.append(len(data))
            real(session, data, start, now_ms)  # type: ignore[operator]

        monkeypatch.setattr(kind, name, counted)
    return seen


def limited_topics() -> tuple[Wire, bytes]:
    return Wire(QuotaRule(user="ANONYMOUS", controller_mutation_rate=1e6)), create(
        *((f"topic-{'t' * 200}-{number}", 1) for number in range(500))
    )


def a_login() -> tuple[Wire, bytes]:
    wire = Wire()
    assert wire.client(handshake_request("PLAIN"))
    assert wire.broker(handshake_response())
    return wire, authenticate_request(b"\0user\0" + b"p" * 50_000)


def a_followers_fetch() -> tuple[Wire, bytes]:
    frame = fetch_request(version=11, replica_id=3)
    return Wire(is_inter_broker=True), pack(">i", len(frame) + 199_996) + frame[4:] + bytes(200_000)


def a_long_client_id() -> tuple[Wire, bytes]:
    return Wire(), produce_request(client_id="c" * 32_000, size_bytes=200_000)


@pytest.mark.parametrize("scene", [limited_topics, a_login, a_followers_fetch, a_long_client_id])
def test_bytes_of_a_request_in_pieces_are_scanned_once(
    scene: Callable[[], tuple[Wire, bytes]], looks: list[int]
) -> None:
    wire, frame = scene()
    looks.clear()

    assert wire.client(*in_pieces(frame)) == frame

    assert wire.session.held_bytes == 0
    assert sum(looks) < 4 * len(frame)


def test_bytes_of_an_own_request_in_pieces_are_scanned_once(looks: list[int]) -> None:
    wire, handler = administered()
    large = AlterRequest(0, 1, tuple(Alteration((("user", "u" * 30_000),), ()) for _ in range(30)), False)
    frame = write_alter_request(large, client_id="etl")

    wire.client(*in_pieces(frame))

    assert len(handler.taken) == 1
    assert sum(looks) < 4 * len(frame)


def test_bytes_of_a_whole_response_in_pieces_are_scanned_once(looks: list[int]) -> None:
    front = Front(listed(1e9))
    front.client(front.fetch(P0, BUSY))
    response = front.answer({P0: lagging(batches(300_000))})
    looks.clear()

    assert front.read(front.broker(*in_pieces(response))).entries[P0].records == batches(300_000)

    assert sum(looks) < 2 * len(response)


def test_bytes_of_a_login_response_in_pieces_are_scanned_once(looks: list[int]) -> None:
    wire, request = a_login()
    wire.client(request)
    response = authenticate_response(b"t" * 50_000)
    looks.clear()

    assert wire.broker(*in_pieces(response)) == response

    assert sum(looks) < 4 * len(response)


def test_bytes_of_a_metadata_response_in_pieces_are_scanned_once(looks: list[int]) -> None:
    addresses = Addresses(lambda *_: None)
    addresses.advertised = {number: (b"proxy", 9_000 + number) for number in range(1_000)}
    wire = Wire(addresses=addresses)
    wire.client(metadata_request())
    response = metadata_response({number: (f"broker-{number}" * 10, 9_092) for number in range(1_000)})
    looks.clear()

    assert brokers_in(wire.broker(*in_pieces(response))) == {
        number: ("proxy", 9_000 + number) for number in range(1_000)
    }

    assert sum(looks) < 4 * len(response)
