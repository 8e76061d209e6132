"""Tests the relay in front of the mock cluster: the frames that it repairs, and how connections end."""

import asyncio
import select
import socket
import struct
from typing import Final

import pytest
from aiokafka.record._crc32c import crc

from kafka_quota_proxy.proxy.cli.demo.mock_relay import (
    Repairs,
    api_versions_request_v0,
    serve,
)

CLIENT_ID = struct.pack(">h", 4) + b"test"


def _api_versions_v0(correlation_id: int, *ranges: tuple[int, int, int]) -> bytes:
    return struct.pack(">ihi", correlation_id, 0, len(ranges)) + b"".join(struct.pack(">hhh", *each) for each in ranges)


def _produce(version: int, *, acks: int, correlation_id: int = 5) -> bytes:
    head = struct.pack(">hhi", 0, version, correlation_id) + CLIENT_ID
    if version >= 9:
        # The header has one tagged field (tag 0, two bytes), and the transactional id "ab" follows.
        return head + b"\x01\x00\x02xy" + b"\x03ab" + struct.pack(">hi", acks, 30_000) + b"rest"
    transactional_id = struct.pack(">h", 2) + b"ab" if version >= 3 else b""
    return head + transactional_id + struct.pack(">hi", acks, 30_000) + b"rest"


class _Admin:
    """Answers the API 99."""

    versions: Final = {99: (3, 5)}

    def answer(self, frame: bytes) -> bytes | None:
        return b"an answer" if frame[:2] == struct.pack(">h", 99) else None


def test_the_response_to_acks_0_is_dropped_and_that_to_acks_1_passes() -> None:
    repairs, answer = Repairs(), struct.pack(">i", 5) + b"answer"
    for acks, expected in ((0, None), (1, answer)):
        request = _produce(8, acks=acks, correlation_id=5)

        assert repairs.request(request) == request
        assert repairs.response(answer) == expected


def test_api_versions_is_sent_as_v0_and_answered_in_the_version_of_the_request() -> None:
    plain = _api_versions_v0(7, (18, 0, 4), (99, 3, 5))
    flexible = struct.pack(">ihB", 7, 0, 3) + struct.pack(">hhhBhhhB", 18, 0, 4, 0, 99, 3, 5, 0) + bytes(5)
    unknown = struct.pack(">ihi", 7, 35, 1) + struct.pack(">hhh", 18, 0, 2)  # by KIP-511
    for version, expected in ((0, plain), (1, plain + bytes(4)), (2, plain + bytes(4)), (4, flexible), (9, unknown)):
        repairs = Repairs(_Admin())  # type: ignore[arg-type]

        sent = repairs.request(struct.pack(">hhi", 18, version, 7) + CLIENT_ID + b"\x00\x05name\x02v\x00")

        assert sent == api_versions_request_v0(7)
        assert repairs.response(_api_versions_v0(7, (18, 0, 2))) == expected, version


def test_an_answer_takes_the_place_of_the_response_of_the_mock() -> None:
    repairs = Repairs(_Admin())  # type: ignore[arg-type]

    sent = [repairs.request(struct.pack(">hhi", api_key, 0, api_key)) for api_key in (1, 99)]

    assert sent == [struct.pack(">hhi", 1, 0, 1), api_versions_request_v0(99)]
    assert repairs.response(struct.pack(">i", 1) + b"the mock's") == struct.pack(">i", 1) + b"the mock's"
    assert repairs.response(_api_versions_v0(99, (18, 0, 2))) == b"an answer"


def test_control_batches_without_a_checksum_get_one() -> None:
    """The batch is one of the mock. Other bytes that look like its head stay as they are."""
    rest = struct.pack(">h", 0x30) + bytes(range(55))
    head = struct.pack(">qiib", 1, 66, 0, 2)
    looks_alike = struct.pack(">qiibIh", 1, 67, 0, 2, 0, 0x30) + bytes(70)
    batch = head + bytes(4) + rest
    assert len(batch) == 12 + 66
    answer = struct.pack(">i", 7) + batch + looks_alike + batch + b"end"
    repairs = Repairs()

    repairs.request(struct.pack(">hhi", 1, 4, 7))
    fetched = repairs.response(answer)
    repairs.request(struct.pack(">hhi", 2, 4, 7))
    other = repairs.response(answer)

    repaired = head + struct.pack(">I", crc(rest)) + rest
    assert fetched == struct.pack(">i", 7) + repaired + looks_alike + repaired + b"end"
    assert other == answer, "only Fetch is repaired"


def test_a_frame_that_ends_too_early_is_an_error() -> None:
    for size in range(12):
        with pytest.raises((struct.error, ValueError)):
            Repairs().request(_produce(9, acks=0)[:size])


async def test_the_mock_can_answer_a_client_that_has_left() -> None:
    """If the mock cannot write a response, it drops the requests that it has not read, such as those of acks=0."""
    request = _produce(8, acks=0)
    with socket.create_server(("127.0.0.1", 0)) as mock:
        relay = await serve(mock_port=mock.getsockname()[1])
        answering = asyncio.ensure_future(asyncio.to_thread(_answer_late, mock, answers=2))
        with socket.create_connection(relay.sockets[0].getsockname()) as client:
            client.sendall(2 * (struct.pack(">i", len(request)) + request))

        await answering
        relay.close()
        await relay.wait_closed()


async def test_a_client_cancelled_before_the_mock_was_reached_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mock:
        relay = await serve(mock_port=mock.getsockname()[1])
        reader, writer = await asyncio.open_connection(*relay.sockets[0].getsockname())
        ours = asyncio.all_tasks()
        for _ in range(10):
            if relays := asyncio.all_tasks() - ours:
                break
            await asyncio.sleep(0)
        for task in relays:
            task.cancel()
        await asyncio.wait(relays)

        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        relay.close()
        await relay.wait_closed()


def _answer_late(mock: socket.socket, *, answers: int) -> None:
    """Respond after the other side has ended its requests. Raises OSError if the connection is closed."""
    connection, _ = mock.accept()
    with connection:
        end = select.poll()
        end.register(connection, select.POLLRDHUP)
        assert end.poll(10_000)
        for _ in range(answers):
            connection.sendall(struct.pack(">ii", 4, 5))
