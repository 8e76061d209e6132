"""Tests when a frame that arrives in pieces is parsed again."""

import tracemalloc
from struct import pack

from kafka_quota_proxy.protocol.partial_frame import SMALL_BYTES, PartialFrame, bytes_to_wait_for
from tests.support.cases import each_case

FRAME = pack(">i", 99_996) + bytes(99_996)


def test_pieces_are_joined_when_no_bytes_are_missing() -> None:
    large = bytes(5_000)
    partial = PartialFrame(b"ab", 5_003)

    assert partial.add(b"c") == b""
    assert partial.add(b"d") == b""
    assert partial.add(large) == b""
    assert (partial.missing_bytes, len(partial)) == (1, 5_004)
    assert partial.add(b"e and the next") == b"abcd" + large + b"e and the next"


def test_tiny_pieces_take_little_more_memory_than_their_bytes() -> None:
    partial = PartialFrame(b"", 65_536)
    tracemalloc.start()

    for _ in range(32_000):
        partial.add(bytes(bytearray(2)))
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(partial) == 64_000
    assert taken_bytes < 2 * 64_000


@each_case(
    "arrived_bytes, missing_bytes",
    [
        (0, 1),
        (3, 1),
        (SMALL_BYTES - 1, 1),
        (SMALL_BYTES, SMALL_BYTES),
        (30_000, 30_000),
        (50_000, 50_000),
        (50_001, 49_999),
        (99_999, 1),
        (100_000, 1),
    ],
)
def test_next_try_waits_for_as_many_bytes_again_or_the_end(arrived_bytes: int, missing_bytes: int) -> None:
    assert bytes_to_wait_for(FRAME[:arrived_bytes], most_bytes=200_000) == missing_bytes


def test_next_try_comes_once_the_limit_is_exceeded() -> None:
    assert bytes_to_wait_for(FRAME[:30_000], most_bytes=40_000) == 10_001


def test_without_a_limit_the_next_try_waits_for_the_whole_frame() -> None:
    assert bytes_to_wait_for(FRAME[:SMALL_BYTES]) == len(FRAME) - SMALL_BYTES
