"""The fake broker answers each request once, with its correlation id, wherever the stream is split."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fake_broker import Responder, UnknownApiError
from bench.frames import NEW_FETCH_VERSION, fetch_request, fetch_response, produce_request, produce_response


def with_correlation_id(frame: bytes, correlation_id: int, offset: int) -> bytes:
    return frame[:offset] + struct.pack(">i", correlation_id) + frame[offset + 4 :]


REQUESTS = [
    with_correlation_id(produce_request(b"one", 700), 1, 8),
    with_correlation_id(fetch_request(b"another", 1_500), 2, 8),
    with_correlation_id(produce_request(b"", 300), 3, 8),
    with_correlation_id(fetch_request(b"one", 400), 4, 8),
    with_correlation_id(fetch_request(b"new", 900, version=NEW_FETCH_VERSION), 5, 8),
]
STREAM = b"".join(REQUESTS)
ANSWERS = b"".join(
    [
        with_correlation_id(produce_response(), 1, 4),
        with_correlation_id(fetch_response(1_500), 2, 4),
        with_correlation_id(produce_response(), 3, 4),
        with_correlation_id(fetch_response(400), 4, 4),
        with_correlation_id(fetch_response(900, version=NEW_FETCH_VERSION), 5, 4),
    ]
)


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=8))
def test_answers_do_not_depend_on_how_requests_are_split(cuts: list[int]) -> None:
    responder = Responder()
    ends = sorted({*cuts, len(STREAM)})

    answers = b""
    for start, end in zip([0, *ends], ends, strict=False):
        answers += b"".join(responder.feed(bytearray(STREAM[start:end] + b"left from before"), end - start))

    assert answers == ANSWERS


def test_produce_request_is_answered_after_its_last_byte() -> None:
    responder = Responder()

    assert responder.feed(REQUESTS[0], len(REQUESTS[0]) - 1) == []
    assert responder.feed(REQUESTS[0][-1:], 1) != []


def test_another_api_is_no_fetch() -> None:
    api_versions = struct.pack(">ihhi", 8, 18, 3, 1)

    with pytest.raises(UnknownApiError):
        Responder().feed(REQUESTS[0] + api_versions, len(REQUESTS[0] + api_versions))
