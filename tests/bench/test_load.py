"""The load generator counts responses wherever the stream is split."""

from hypothesis import given
from hypothesis import strategies as st

from bench.frames import fetch_response, produce_response
from bench.load import ResponseCounter

STREAM = produce_response() + fetch_response(2_000) + produce_response() + produce_response()


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=8))
def test_responses_are_counted_once_however_the_stream_is_split(cuts: list[int]) -> None:
    counter = ResponseCounter()
    ends = sorted({*cuts, len(STREAM)})

    counted = 0
    for start, end in zip([0, *ends], ends, strict=False):
        counted += counter.feed(STREAM[start:end] + b"left from before", end - start)

    assert counted == 4


def test_response_counts_after_its_last_byte() -> None:
    counter = ResponseCounter()
    response = produce_response()

    assert counter.feed(response, len(response) - 1) == 0
    assert counter.feed(response[-1:], 1) == 1
