"""Tests that node_endpoints are replaced in a whole frame, and hidden in a frame that arrives in pieces."""

import uuid
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol import node_endpoints
from kafka_quota_proxy.protocol.broker_list import AdvertisedAddresses
from kafka_quota_proxy.protocol.errors import HeadTooLong, ProtocolError, TrailingBytes
from kafka_quota_proxy.protocol.node_endpoints import (
    FIRST_VERSION,
    MAX_HELD_BYTES,
    EndpointHider,
    find_endpoints,
    has_no_endpoints,
    replace_endpoints,
)
from kafka_quota_proxy.protocol.primitives import skip_tags
from tests.protocol.support import kio_messages
from tests.protocol.support.broker_lists import decoded
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import FEW_EXAMPLES, each_case

PRODUCE, FETCH, METADATA, SHARE_FETCH, SHARE_ACKNOWLEDGE = 0, 1, 3, 78, 79
ADVERTISED: Final[AdvertisedAddresses] = {0: (b"proxy", 9193), 3: (b"2001:db8::1", 9216)}
VERSIONS = [(key, version) for key, version in kio_messages.api_versions() if version >= FIRST_VERSION.get(key, 0x8000)]

_NODES = st.lists(
    st.tuples(
        st.sampled_from([0, 3, 4, 2**31 - 1]),
        st.text(min_size=1, max_size=300),
        st.integers(1, 65_535),
        st.none() | st.text(max_size=20),
    ),
    max_size=4,
)


def _replaced(frame: bytes, api_key: int, version: int) -> bytes:
    found = find_endpoints(frame, api_key, version)
    return replace_endpoints(frame, found, ADVERTISED) if found else frame


def _response(
    api_key: int, version: int, nodes: list[tuple[int, str, int, str | None]], *, topics: int = 1, records: bytes = b""
) -> Untyped:
    """Return a response with these endpoints and no other tags."""
    kind = kio_messages.response_class(api_key, version)
    endpoint = kind.__annotations__["node_endpoints"].__args__[0]
    endpoints = tuple(endpoint(node_id=node_id, host=host, port=port, rack=rack) for node_id, host, port, rack in nodes)
    message = kio_messages.example(kind, {"node_endpoints": endpoints}, array_length=topics, tagged=False)
    if records and api_key in (FETCH, SHARE_FETCH):
        (topic,) = message.responses
        (partition,) = topic.partitions
        partition = replace(partition, records=records)
        message = replace(message, responses=(replace(topic, partitions=(partition,)),))
    return message


@given(api=st.sampled_from(VERSIONS), nodes=_NODES, topics=st.integers(0, 3))
def test_endpoints_of_a_whole_frame_are_replaced_and_all_else_is_unchanged(
    api: tuple[int, int], nodes: list[tuple[int, str, int, str | None]], topics: int
) -> None:
    api_key, version = api
    message = _response(api_key, version, nodes, topics=topics)
    frame = kio_messages.response_frame(message)

    after = _replaced(frame, api_key, version)

    expected = tuple(
        replace(endpoint, host=ADVERTISED[endpoint.node_id][0].decode(), port=ADVERTISED[endpoint.node_id][1])
        for endpoint in message.node_endpoints
        if endpoint.node_id in ADVERTISED
    )
    assert decoded(after, type(message)) == replace(message, node_endpoints=expected)
    assert nodes or after == frame


@given(api=st.sampled_from(VERSIONS), nodes=_NODES, topics=st.integers(0, 3))
def test_frame_with_endpoints_is_never_taken_as_one_without(
    api: tuple[int, int], nodes: list[tuple[int, str, int, str | None]], topics: int
) -> None:
    api_key, version = api
    frame = kio_messages.response_frame(_response(api_key, version, nodes, topics=topics))

    assert not (nodes and has_no_endpoints(b"before" + frame + b"behind", 6, len(frame), api_key, version))


@each_case("api_key, version", [pair for pair in VERSIONS if pair[0] in (PRODUCE, FETCH)])
@each_case("records", [b"", b"r", bytes(100)])
def test_plain_frames_are_recognised_as_without_endpoints(api_key: int, version: int, records: bytes) -> None:
    message = _response(api_key, version, [], records=records)
    values = {"throttle_time": kio_messages.milliseconds(0)}
    frame = kio_messages.response_frame(replace(message, **values))

    assert has_no_endpoints(b"before" + frame + b"behind", 6, len(frame), api_key, version)


def _fetched(version: int, nodes: list[tuple[int, str, int, str | None]], records: bytes) -> bytes:
    """Return a Fetch response with the records of one partition and without aborted transactions."""
    message = _response(FETCH, version, nodes, records=records)
    (topic,) = message.responses
    (partition,) = topic.partitions
    partition = replace(partition, aborted_transactions=None)
    return kio_messages.response_frame(replace(message, responses=(replace(topic, partitions=(partition,)),)))


@pytest.mark.parametrize("version", [version for api_key, version in VERSIONS if api_key == FETCH])
@FEW_EXAMPLES
@given(nodes=_NODES, topics=st.integers(0, 3), records=st.binary(max_size=300), at=st.integers(0, 400))
def test_front_of_a_frame_with_endpoints_is_never_taken_as_one_without(
    version: int, nodes: list[tuple[int, str, int, str | None]], topics: int, records: bytes, at: int
) -> None:
    frame = _fetched(version, nodes, records or b"r")
    any_frame = kio_messages.response_frame(_response(FETCH, version, nodes, topics=topics))

    leaves_none = has_no_endpoints(b"before" + frame[: min(at, len(frame) - 1)], 6, len(frame), FETCH, version)

    assert leaves_none is (not nodes and min(at, len(frame) - 1) >= 77)
    assert not (nodes and has_no_endpoints(any_frame[:-1], 0, len(any_frame), FETCH, version))


@each_case("size_bytes", [12, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152])
def test_frame_with_bytes_after_its_records_is_parsed(size_bytes: int) -> None:
    frame = _fetched(17, [], bytes(size_bytes))
    front = frame[:80]

    assert has_no_endpoints(front, 0, len(frame), FETCH, 17)
    for more_bytes in (-3, -1, 1, 7):
        assert not has_no_endpoints(front, 0, len(frame) + more_bytes, FETCH, 17)
    for at in (8, 19, 36, 67):  # header tags, topics, partitions, aborted transactions
        assert not has_no_endpoints(front[:at] + b"\3" + front[at + 1 :], 0, len(frame), FETCH, 17)
    for api_key, version in ((FETCH, 19), (PRODUCE, 13), (SHARE_FETCH, 1), (METADATA, 13)):
        assert not has_no_endpoints(front, 0, len(frame), api_key, version)


@pytest.mark.parametrize(("api_key", "first"), FIRST_VERSION.items())
def test_older_versions_have_no_endpoints(api_key: int, first: int) -> None:
    assert has_no_endpoints(b"\xff" * 50, 0, 50, api_key, first - 1)


@given(api=st.sampled_from(VERSIONS), nodes=_NODES, topics=st.integers(0, 2), cuts=st.lists(st.integers(0, 2_000)))
def test_streamed_frame_cut_anywhere_has_no_endpoints(
    api: tuple[int, int], nodes: list[tuple[int, str, int, str | None]], topics: int, cuts: list[int]
) -> None:
    api_key, version = api
    message = _response(api_key, version, nodes, topics=topics)
    frame = kio_messages.response_frame(message)

    after = _streamed(frame, api_key, version, cuts)

    assert len(after) == len(frame)
    _assert_hidden(after, message)
    assert nodes or after == frame


@each_case("api_key, version", VERSIONS)
def test_frame_that_arrives_byte_by_byte_has_no_endpoints(api_key: int, version: int) -> None:
    message = _response(api_key, version, [(3, "broker3", 9092, "rack"), (4, "b", 1, None)], records=b"some records")
    frame = kio_messages.response_frame(message)

    after = _streamed(frame, api_key, version, list(range(len(frame))))

    _assert_hidden(after, message)


def _assert_hidden(frame: bytes, message: Untyped) -> None:
    """Assert that the frame is the message without endpoints, with no tag or one unknown tag at its end."""
    bare = kio_messages.response_frame(replace(message, node_endpoints=()))
    tags_at = len(bare) - 1
    assert frame[4:tags_at] == bare[4:tags_at]
    assert frame[tags_at : tags_at + 2] in (b"\x00", b"\x01\x7f")
    assert skip_tags(frame, tags_at) == len(frame)


def _streamed(frame: bytes, api_key: int, version: int, cuts: list[int]) -> bytes:
    hidden = EndpointHider(api_key, version)
    edges = [0, *sorted({cut for cut in cuts if cut < len(frame)}), len(frame)]
    return b"".join(hidden.feed(frame[begin:end]) for begin, end in pairwise(edges)) + hidden.end()


@each_case("length", [*range(1, 8), *range(100, 150), *range(16_360, 16_420)])
def test_endpoints_of_any_length_are_hidden_in_a_share_group_s_response(length: int) -> None:
    message = _response(SHARE_ACKNOWLEDGE, 1, [(3, "h" * length, 9092, None)])
    frame = kio_messages.response_frame(message)

    after = _streamed(frame, SHARE_ACKNOWLEDGE, 1, [])

    _assert_hidden(after, message)


@pytest.mark.parametrize("api_key", [FETCH, SHARE_FETCH])
def test_records_pass_as_they_arrive(api_key: int) -> None:
    version = max(version for key, version in VERSIONS if key == api_key)
    frame = kio_messages.response_frame(_response(api_key, version, [], records=bytes(300_000)))
    hidden = EndpointHider(api_key, version)
    hidden.feed(frame[:1_000])
    chunk = frame[1_000:200_000]

    assert hidden.feed(chunk) is chunk


@pytest.mark.parametrize("api_key", FIRST_VERSION)
def test_field_above_the_limit_is_refused(api_key: int) -> None:
    version = max(version for key, version in VERSIONS if key == api_key)
    # The tag section of this header does not end.
    endless = (2**31 - 1).to_bytes(4, "big") + bytes(4) + b"\xff\xff\x7f" + 200_000 * b"\x01\x02xx"

    with pytest.raises(HeadTooLong):
        EndpointHider(api_key, version).feed(endless[: MAX_HELD_BYTES + 100])


def test_small_pieces_of_a_field_are_not_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    parse = node_endpoints._ResponseParser.parse

    def counted(parser: node_endpoints._ResponseParser, data: bytes) -> None:
        read.append(len(data))
        parse(parser, data)

    monkeypatch.setattr(node_endpoints._ResponseParser, "parse", counted)
    message = _response(SHARE_ACKNOWLEDGE, 1, [(number, "h" * 200, 9092, None) for number in range(500)])
    frame = kio_messages.response_frame(message)

    after = _streamed(frame, SHARE_ACKNOWLEDGE, 1, list(range(0, len(frame), 50)))

    _assert_hidden(after, message)
    assert sum(read) < 4 * len(frame)


def test_unknown_tags_are_kept_next_to_endpoints() -> None:
    message = _response(FETCH, 18, [(3, "broker3", 9092, None)])
    frame = kio_messages.response_frame(message)
    found = find_endpoints(frame, FETCH, 18)
    assert found
    tags_at = found.size_at - 2
    assert frame[tags_at : found.size_at] == b"\x01\x00"
    more = frame[:tags_at] + b"\x02" + frame[tags_at + 1 :] + b"\x63\x03new"
    more = (len(more) - 4).to_bytes(4, "big") + more[4:]

    assert _replaced(more, FETCH, 18).endswith(b"2001:db8::1\x00\x00\x24\x00\x00\x00\x63\x03new")
    assert _streamed(more, FETCH, 18, []) == more[: tags_at + 1] + b"\x7f" + more[tags_at + 2 :]


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x00\x0a\x02\x00\x00\x00\x03\x01\x00\x00\x23\x84\x00\x00",  # a tag size below the size of the array
        b"\x01\x00\x0f\x02\x00\x00\x00\x03\x01\x00\x00\x23\x84\x00\x00host",  # a tag size above the size of the array
        b"\x01\x00\x05\x00host",
        b"\x02\x00\x0c\x02\x00\x00\x00\x03\x01\x00\x00\x23\x84\x00\x00\x00\x01\x01",  # tag 0 twice
    ],
)
def test_endpoints_that_do_not_fill_one_tag_are_refused(tags: bytes) -> None:
    """Otherwise bytes after the array, or the first of two arrays, would be forwarded unchanged."""
    body = bytes(4) + b"\x00" + bytes(4 + 2 + 4) + b"\x01" + tags
    frame = len(body).to_bytes(4, "big") + body

    with pytest.raises(ProtocolError):
        find_endpoints(frame, FETCH, 18)
    with pytest.raises(ProtocolError):
        _streamed(frame, FETCH, 18, [])


def test_topic_ids_are_sixteen_bytes_and_names_are_not() -> None:
    """Produce v13 has topic ids where v12 has names, which may be empty."""
    message = _response(PRODUCE, 13, [(3, "broker3", 9092, None)])
    (topic,) = message.responses
    message = replace(message, responses=(replace(topic, topic_id=uuid.UUID(int=2**127)),))

    assert find_endpoints(kio_messages.response_frame(message), PRODUCE, 13) is not None


@each_case("api_key, version", VERSIONS)
def test_frame_with_missing_or_extra_bytes_is_refused(api_key: int, version: int) -> None:
    frame = kio_messages.response_frame(_response(api_key, version, [(3, "host", 9092, None)], records=b"records"))
    assert find_endpoints(frame, api_key, version)

    for size in range(8, len(frame)):
        with pytest.raises(ProtocolError):
            find_endpoints(frame[:size], api_key, version)
    with pytest.raises(TrailingBytes):
        find_endpoints(frame + b"\0", api_key, version)
