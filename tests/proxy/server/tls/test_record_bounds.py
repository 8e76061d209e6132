"""Tests which bytes of a TLS stream belong to a record that is not complete."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.server.tls.record_bounds import RecordBounds


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
