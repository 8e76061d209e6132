"""Tests what all responses that list brokers have in common."""

import pytest

from kafka_quota_proxy.protocol.broker_list import MAX_FRONT_BYTES
from kafka_quota_proxy.protocol.errors import HeadTooLong
from tests.protocol.support import kio_messages
from tests.protocol.support.broker_lists import (
    DESCRIBE_CLUSTER,
    FIND,
    FIND_COORDINATOR,
    METADATA,
    rewritten,
    versions,
)
from tests.support.cases import each_case


@each_case(
    "api_key, version", [(key, v) for key in (METADATA, DESCRIBE_CLUSTER, FIND_COORDINATOR) for v in versions(key)]
)
def test_unknown_tags_are_kept(api_key: int, version: int) -> None:
    """The test adds a tag to each empty tag section, and counts the tags in the rewritten part."""
    message = kio_messages.example(kio_messages.response_class(api_key, version), array_length=1)
    frame = kio_messages.response_frame(message)
    tagged = frame[:-1] + b"\x01\x63\x03new"
    if type(message).__flexible__:
        tagged = (len(tagged) - 4).to_bytes(4, "big") + tagged[4:]
        assert rewritten(tagged, api_key, version).endswith(b"\x01\x63\x03new")


@pytest.mark.parametrize(("api_key", "version"), [(3, 0), (3, 8), (3, 13), (60, 0), (60, 2), (10, 0), (10, 3), (10, 6)])
def test_more_bytes_are_needed_until_the_brokers_are_complete(api_key: int, version: int) -> None:
    version = max(version, min(versions(api_key)))
    message = kio_messages.example(kio_messages.response_class(api_key, version), array_length=5)
    frame = kio_messages.response_frame(message)

    answers = [FIND[api_key](frame[:size], 0, version) for size in range(len(frame) + 1)]

    first = next(size for size, answer in enumerate(answers) if answer is not None)
    assert None not in answers[first:]
    assert answers[-1] == answers[first]
    assert first == len(frame) if api_key == FIND_COORDINATOR else first < len(frame)


_PLAIN_BROKER = bytes(4) + b"\x00\x10sixteen bytes..." + bytes(4)
_COMPACT_BROKER = bytes(4) + b"\x11sixteen bytes..." + bytes(4) + b"\x00\x00"


@pytest.mark.parametrize(
    ("api_key", "front"),
    [
        (METADATA, (50_000).to_bytes(4, "big") + 50_000 * _PLAIN_BROKER),
        (DESCRIBE_CLUSTER, bytes(8) + b"\x01" + bytes(4) + b"\xd1\x86\x03" + 50_000 * _COMPACT_BROKER),
        (FIND_COORDINATOR, bytes(100)),
    ],
)
def test_endless_list_of_brokers_is_refused(api_key: int, front: bytes) -> None:
    endless = (2**31 - 1).to_bytes(4, "big") + bytes(4) + front

    with pytest.raises(HeadTooLong):
        FIND[api_key](endless[: MAX_FRONT_BYTES + 1_000], 0, 0)
