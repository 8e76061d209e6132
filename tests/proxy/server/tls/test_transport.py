"""Tests ``TlsTransport`` without sockets. The peer uses OpenSSL directly."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.server.tls import transport as tls_transport
from kafka_quota_proxy.proxy.server.tls.record_bounds import RecordBounds
from kafka_quota_proxy.proxy.server.tls.transport import TlsTransport
from tests.support.certificates import Authority

KIB = 1024


class Below(asyncio.Transport):
    """The transport below the ``TlsTransport``. It records bytes and calls."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_reading_now = True
        self.end = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.end, "written after the end"
        self.sent.append(bytes(data))

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def close(self) -> None:
        self.end = self.end or "closed"

    def abort(self) -> None:
        self.end = self.end or "aborted"

    def get_write_buffer_size(self) -> int:
        return 17

    def get_extra_info(self, name: str, default: object = None) -> object:
        return f"below's {name}"


class Above(asyncio.Protocol):
    """The protocol above the ``TlsTransport``. It records calls."""

    def __init__(self, *, stays: bool = False) -> None:
        self.transport: asyncio.Transport | None = None
        self.data: list[bytes] = []
        self.calls: list[object] = []
        self.stays = stays

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.data.append(data)

    def eof_received(self) -> bool:
        self.calls.append("end")
        return self.stays

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(exc)


class Pair:
    """A ``TlsTransport`` with the transport below, the protocol above, and its TLS peer."""

    def __init__(self, files: "Files", *, we_serve: bool = True, stays: bool = False, **wants: object) -> None:
        self.below = Below()
        self.above = Above(stays=stays)
        self.failures: list[tuple[bool, Exception]] = []
        self.refusal: ProtocolError | None = None
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours, its = (files.server, files.client) if we_serve else (files.client, files.server)
        self.transport = TlsTransport(
            ours, server_hostname=None if we_serve else "broker.example", welcome=self._welcome, fail=self._fail
        )
        hostname = "broker.example" if we_serve else None
        self.peer = its.wrap_bio(self.incoming, self.outgoing, server_side=not we_serve, server_hostname=hostname)

    def _welcome(self, tls: ssl.SSLObject) -> asyncio.Protocol:
        assert tls.version() is not None
        if self.refusal is not None:
            raise self.refusal
        return self.above

    def _fail(self, transport: TlsTransport, error: Exception) -> None:
        assert transport is self.transport
        self.failures.append((transport.is_up, error))

    def shake(self) -> "Pair":
        self.transport.connection_made(self.below)
        for _ in range(4):
            try:
                self.hear()
                self.peer.do_handshake()
            except ssl.SSLWantReadError:
                pass
            self.speak()
        return self

    def hear(self) -> None:
        """Give the peer the bytes that the transport has sent."""
        for data in self.below.sent:
            self.incoming.write(data)
        self.below.sent.clear()

    def speak(self) -> None:
        """Give the transport the bytes that the peer has sent."""
        data = self.outgoing.read()
        if data:
            self.transport.data_received(data)

    def said(self) -> bytes:
        """Return the plaintext that the peer can read."""
        self.hear()
        found = b""
        try:
            while piece := self.peer.read(256 * KIB):
                found += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return found


class Files:
    """A certificate authority, and the TLS contexts of server and client."""

    def __init__(self, directory: Path) -> None:
        authority = Authority("all")
        self.ca = authority.save(directory, "ca")
        certificate, key = authority.issue("broker", hosts=["broker.example"]).save(directory, "broker")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(certificate, key)
        self.client = ssl.create_default_context(cafile=self.ca)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def version(request: pytest.FixtureRequest, files: Files) -> Iterator[ssl.TLSVersion]:
    files.server.maximum_version = request.param
    yield request.param
    files.server.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED


def in_loop(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test that is not a coroutine in an event loop."""

    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        async def go() -> None:
            test(*args, **kwargs)

        asyncio.run(go())

    return run


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 200 * KIB), max_size=4),
    cuts=st.lists(st.integers(1, 40 * KIB), min_size=1, max_size=5),
)
def test_any_sizes_in_any_pieces(files: Files, sizes: list[int], cuts: list[int]) -> None:
    data = [bytes([number + 1]) * size for number, size in enumerate(sizes)]

    @in_loop
    def there_and_back() -> None:
        pair = Pair(files).shake()
        pair.transport.writelines(data)
        for piece in data:
            pair.transport.write(piece)
        assert pair.said() == b"".join(data) * 2

        for piece in data:
            at = 0
            while at < len(piece):
                at += pair.peer.write(memoryview(piece)[at:])
        wire, at, turn = pair.outgoing.read(), 0, 0
        while at < len(wire):
            cut = cuts[turn % len(cuts)]
            pair.transport.data_received(wire[at : at + cut])
            at, turn = at + cut, turn + 1
        assert b"".join(pair.above.data) == b"".join(data)

    there_and_back()


@in_loop
def test_data_after_the_handshake_in_the_same_read_is_delivered(files: Files) -> None:
    pair = Pair(files)
    pair.transport.connection_made(pair.below)
    with pytest.raises(ssl.SSLWantReadError):
        pair.peer.do_handshake()
    pair.speak()
    pair.hear()
    pair.peer.do_handshake()
    pair.peer.write(b"early")

    pair.speak()

    assert pair.above.data == [b"early"]


# -- the end of a connection --


@pytest.mark.usefixtures("version")
@in_loop
def test_close_sends_close_notify_and_does_not_wait(files: Files) -> None:
    pair = Pair(files).shake()
    pair.transport.write(b"last")

    pair.transport.close()
    pair.transport.close()
    pair.transport.write(b"too late")

    assert pair.below.end == "closed"
    assert pair.transport.is_closing()
    assert pair.said() == b"last"
    pair.peer.unwrap()  # raises SSLWantReadError if close_notify is missing


@pytest.mark.usefixtures("version")
@in_loop
def test_a_peer_that_ends_in_order_still_gets_its_answers(files: Files) -> None:
    pair = Pair(files, stays=True).shake()
    pair.peer.write(b"question")
    with pytest.raises(ssl.SSLWantReadError):
        pair.peer.unwrap()

    pair.speak()
    assert pair.transport.eof_received() is True  # the FIN, which follows close_notify

    assert (pair.above.data, pair.above.calls) == ([b"question"], ["end"])
    pair.transport.write(b"answer")
    pair.transport.close()
    assert pair.below.end == "closed"
    assert pair.below.sent[0][0] == 23  # application data


@in_loop
def test_an_end_without_notice_closes(files: Files) -> None:
    """A FIN without close_notify is not trusted, because anyone on the network path can send it."""
    pair = Pair(files, stays=True).shake()

    assert pair.transport.eof_received() is False
    pair.transport.connection_lost(None)

    assert pair.above.calls == [None]


@in_loop
def test_tampered_records_end_the_connection(files: Files) -> None:
    pair = Pair(files).shake()
    pair.peer.write(b"good")
    pair.peer.write(b"bad")
    wire = bytearray(pair.outgoing.read())
    wire[-1] ^= 1

    pair.transport.data_received(bytes(wire))
    pair.transport.connection_lost(None)

    assert pair.above.data == [b"good"]
    assert pair.below.end == "aborted"
    ((is_up, error),) = pair.failures
    assert is_up
    assert isinstance(error, ssl.SSLError)
    assert pair.above.calls == [error]


# -- handshakes that fail --


@given(st.binary(min_size=6, max_size=300))
@settings(max_examples=100, deadline=None)
def test_no_bytes_but_a_handshake_get_through(files: Files, garbage: bytes) -> None:
    @in_loop
    def shake() -> None:
        pair = Pair(files)
        pair.transport.connection_made(pair.below)
        pair.transport.data_received(garbage)
        pair.transport.data_received(b"more")
        pair.transport.connection_lost(None)
        assert not pair.transport.is_up
        assert [is_up for is_up, _ in pair.failures] == [False]

    shake()


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"\0\0\0\x12\0\x12\0\0\0\0\0\1\0\5kafka", "WRONG_VERSION_NUMBER"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP_REQUEST"),
    ],
)
@in_loop
def test_plaintext_is_recognized(files: Files, garbage: bytes, reason: str) -> None:
    pair = Pair(files)
    pair.transport.connection_made(pair.below)

    pair.transport.data_received(garbage)

    ((_, error),) = pair.failures
    assert cast(ssl.SSLError, error).reason == reason
    assert pair.below.end == "closed"


@pytest.mark.usefixtures("version")
@in_loop
def test_a_failed_handshake_sends_its_alert(files: Files) -> None:
    files.server.verify_mode = ssl.CERT_REQUIRED
    try:
        pair = Pair(files).shake()
    except ssl.SSLError as error:  # TLS 1.2 reports the failure in the handshake
        raised = error
    else:  # TLS 1.3 reports it after the handshake
        with pytest.raises(ssl.SSLError) as found:
            pair.said()
        raised = found.value
    finally:
        files.server.verify_mode = ssl.CERT_NONE

    assert "alert" in str(raised)


@in_loop
def test_peer_that_disconnects_in_the_handshake_fails_it(files: Files) -> None:
    pair = Pair(files)
    pair.transport.connection_made(pair.below)

    assert pair.transport.eof_received() is False
    pair.transport.connection_lost(None)

    ((is_up, error),) = pair.failures
    assert not is_up
    assert isinstance(error, ConnectionResetError)


def test_silent_peer_is_closed_after_the_timeout(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_TIMEOUT_S", 0.01)

    async def wait() -> list[tuple[bool, Exception]]:
        pair = Pair(files)
        pair.transport.connection_made(pair.below)
        async with asyncio.timeout(5):
            while not pair.below.end:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.005)
        return pair.failures

    ((is_up, error),) = asyncio.run(wait())
    assert not is_up
    assert isinstance(error, TimeoutError)


# -- flow control --


@in_loop
def test_flow_control_is_that_of_the_transport_below(files: Files) -> None:
    pair = Pair(files)
    pair.transport.pause_writing()  # during the handshake there is no protocol above
    pair.shake()

    pair.transport.pause_writing()
    pair.transport.resume_writing()
    pair.transport.pause_reading()

    assert pair.above.calls == ["pause", "resume"]
    assert not pair.below.is_reading_now
    pair.transport.resume_reading()
    assert pair.below.is_reading_now
    assert pair.transport.get_write_buffer_size() == 17
    assert pair.transport.get_extra_info("socket") == "below's socket"
    assert isinstance(pair.transport.get_extra_info("ssl_object"), ssl.SSLObject)


def test_data_that_arrives_while_paused_is_kept(files: Files) -> None:
    async def go() -> None:
        pair = Pair(files, stays=True).shake()
        pair.transport.pause_reading()
        pair.peer.write(b"wait")
        with pytest.raises(ssl.SSLWantReadError):
            pair.peer.unwrap()
        pair.speak()
        assert (pair.above.data, pair.above.calls) == ([], [])

        pair.transport.resume_reading()
        assert pair.above.data == []  # data does not arrive within the call
        await asyncio.sleep(0)
        pair.transport.resume_reading()
        await asyncio.sleep(0)

        assert (pair.above.data, pair.above.calls) == ([b"wait"], ["end"])

    asyncio.run(go())


@in_loop
def test_the_end_is_not_reported_while_reading_is_paused(files: Files) -> None:
    pair = Pair(files, stays=True).shake()
    pair.above.data_received = lambda _: pair.transport.pause_reading()  # type: ignore[assignment, method-assign]
    pair.peer.write(b"much")
    with pytest.raises(ssl.SSLWantReadError):
        pair.peer.unwrap()

    pair.speak()

    assert pair.above.calls == []


@in_loop
def test_abort_sends_nothing(files: Files) -> None:
    pair = Pair(files).shake()
    pair.below.sent.clear()

    pair.transport.abort()
    pair.transport.data_received(b"late")

    assert (pair.below.end, pair.below.sent) == ("aborted", [])


def record(length: int) -> bytes:
    return b"\x17\x03\x03" + length.to_bytes(2) + bytes(length)


@given(lengths=st.lists(st.integers(0, 600), max_size=8), cuts=st.lists(st.integers(0, 5_000), max_size=20))
def test_open_bytes_are_those_after_the_last_complete_record(lengths: list[int], cuts: list[int]) -> None:
    stream = b"".join(map(record, lengths))
    ends = [sum(5 + length for length in lengths[:count]) for count in range(len(lengths) + 1)]
    bounds = RecordBounds()
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    for begin, end in pairwise(places):
        bounds.add(memoryview(stream)[begin:end])
        assert bounds.open_bytes == end - max(one for one in ends if one <= end)


def test_longest_record_may_be_incomplete_and_a_longer_one_is_an_error_at_once() -> None:
    bounds = RecordBounds()
    bounds.add(record(16 * 1024 + 256)[:100])
    assert bounds.open_bytes == 100

    bounds = RecordBounds()
    bounds.add(b"\x17\x03\x03\xff\xff")
    assert bounds.open_bytes == 0
