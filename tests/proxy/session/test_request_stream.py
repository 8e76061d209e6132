"""Tests which requests are forwarded, however their bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.protocol.errors import HeadTooLong
from tests.support.frames import (
    fetch_request,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

PRODUCE_VERSIONS = range(14)


FETCH_VERSIONS = range(19)


A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


def test_request_body_is_forwarded_in_pieces_without_buffering() -> None:
    wire = Wire()
    request = produce_request(size_bytes=1_000_000)

    passed = [wire.client(request[at : at + 65_536]) for at in range(0, len(request), 65_536)]

    assert [len(piece) for piece in passed] == [65_536] * 15 + [len(request) - 15 * 65_536]
    assert b"".join(passed) == request


def test_request_header_waits_until_it_is_complete() -> None:
    wire = Wire()
    request = produce_request(version=9)

    assert wire.client(request[:20]) == b""
    assert wire.session.state.blocked_by is None  # the session waits for bytes, and not for time
    assert wire.client(request[20:]) == request


def test_cut_off_request_is_not_awaited() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=400), produce_request(2, size_bytes=4_000)[:100])

    wire.session.receive_end_from_client()

    assert wire.bucket().reserved.amount == 400
    assert not wire.session.is_idle
    wire.broker(produce_response(1))
    assert wire.session.is_idle
    assert wire.bucket().reserved.amount == 0


def test_cut_off_request_without_acks_keeps_earlier_responses() -> None:
    wire = Wire()
    wire.client(other_request(1), produce_request(2, acks=0, size_bytes=4_000)[:100])

    wire.session.receive_end_from_client()

    assert not wire.session.is_idle
    wire.broker(other_response(1))
    assert wire.session.is_idle
    assert wire.bucket().usage.amount == 0


def test_short_remainder_does_not_keep_the_whole_read_in_memory() -> None:
    wire = Wire()
    requests = b"".join(produce_request(number, size_bytes=1_000) for number in range(200))

    wire.client(requests + produce_request(200)[:5])

    assert len(wire.session._requests._data) == 5


def test_endless_header_is_refused() -> None:
    wire = Wire()
    endless = other_request(1, api_key=3, version=12)[4:]
    header = endless[:8] + b"\x00\x01x" + b"\xff\x01" + b"\x00\xff\xff\x7f"  # the first tag has 2 MiB

    with pytest.raises(HeadTooLong):
        wire.client((50_000_000).to_bytes(4, "big") + header, *([bytes(10_000)] * 30))


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if end > start]


_REQUESTS = st.lists(
    st.one_of(
        st.builds(
            produce_request,
            version=st.sampled_from(PRODUCE_VERSIONS),
            acks=st.sampled_from([0, 1, -1]),
            size_bytes=st.integers(100, 900),
            client_id=st.sampled_from(["etl", "", "x" * 50]),
        ),
        st.builds(fetch_request, version=st.sampled_from(FETCH_VERSIONS), max_bytes=st.sampled_from([100, 1_000_000])),
        st.builds(other_request, version=st.sampled_from([5])),
    ),
    min_size=1,
    max_size=6,
)


@given(requests=_REQUESTS, cuts=st.lists(st.integers(0, 10_000), max_size=8), byte_by_byte=st.booleans())
@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_requests_are_forwarded_alike_for_any_split(
    enforcement: Enforcement, requests: list[bytes], cuts: list[int], byte_by_byte: bool
) -> None:
    stream = b"".join(requests)
    assume(not byte_by_byte or len(stream) < 300)  # a connection gets 300 looks at new heads in a millisecond
    whole = Wire(A_TIGHT_RULE, enforcement=enforcement)
    cut = Wire(A_TIGHT_RULE, enforcement=enforcement)

    pieces = [bytes([byte]) for byte in stream] if byte_by_byte else _pieces(stream, cuts)

    assert cut.client(*pieces) == whole.client(stream)
    assert (cut.session.state.blocked_by is None) == (whole.session.state.blocked_by is None)
    assert cut.muted_for_ms == whole.muted_for_ms
    assert cut.bucket().usage.amount == whole.bucket().usage.amount
