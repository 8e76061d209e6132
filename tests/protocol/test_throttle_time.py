"""Tests where throttle_time_ms is in each response, beside what test_generated.py finds."""

import struct

import pytest

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, response_header_version
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.throttle_time import throttle_time_offset, write_throttle_time
from tests.protocol.support import kio_messages
from tests.support.cases import each_case

THROTTLE_TIME_MS = 0x5EAF00D
NEEDLE = THROTTLE_TIME_MS.to_bytes(4, "big")
WITH_TAGS = [(key, version) for key, version in kio_messages.api_versions() if response_header_version(key, version)]


def kio_frame(api_key: int, version: int, *, array_length: int = 2, tagged: bool = True) -> bytes:
    """Return a response that has THROTTLE_TIME_MS if it has the field."""
    cls = kio_messages.response_class(api_key, version)
    duration = kio_messages.milliseconds(THROTTLE_TIME_MS)
    values = {"throttle_time": duration} if "throttle_time" in cls.__dataclass_fields__ else {}
    return kio_messages.response_frame(kio_messages.example(cls, values, array_length=array_length, tagged=tagged))


def assert_found(frame: bytes, api_key: int, version: int) -> None:
    """Assert that the offset of the field is returned, or None if the frame does not have the field."""
    assert frame.count(NEEDLE) <= 1
    where = frame.find(NEEDLE)
    assert throttle_time_offset(frame, api_key, version) == (where if where >= 0 else None)


@each_case("api_key, version", WITH_TAGS)
def test_throttle_time_is_found_after_unknown_header_tags(api_key: int, version: int) -> None:
    frame = kio_frame(api_key, version)
    tags = b"\x02\x05\x03abc\x63\x81\x01" + bytes(129)
    assert frame[8] == 0

    assert_found(kio_messages.framed(frame[4:8] + tags + frame[9:]), api_key, version)


@each_case(
    "api_key, version, payload",
    [
        # Kafka 4.0 removed these versions, and no codec can write them. The offsets are those of Kafka 3.9.
        (ApiKey.CREATE_DELEGATION_TOKEN, 0, bytes(2) + b"\0\1a\0\1b" + bytes(24) + b"\0\1i\0\0\0\1h" + NEEDLE),
        (ApiKey.RENEW_DELEGATION_TOKEN, 0, bytes(10) + NEEDLE),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, 0, bytes(10) + NEEDLE),
        (ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, bytes(2) + bytes(4) + NEEDLE),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, 0, NEEDLE + bytes(4)),
        (ApiKey.DESCRIBE_LOG_DIRS, 0, NEEDLE + bytes(4)),
        (ApiKey.ALTER_PARTITION, 0, b"\0" + NEEDLE + bytes(2) + b"\1\0"),
        (ApiKey.SHARE_FETCH, 0, b"\0" + NEEDLE + bytes(2) + b"\0\1\1\0"),
        # These are requests between brokers, which are never throttled.
        (ApiKey.CONTROLLED_SHUTDOWN, 0, bytes(6)),
        (ApiKey.LEADER_AND_ISR, 7, bytes(6)),
        (ApiKey.WRITE_TXN_MARKERS, 0, bytes(4)),
    ],
)
def test_throttle_time_is_found_where_older_kafkas_write_it(api_key: int, version: int, payload: bytes) -> None:
    assert_found(kio_messages.framed(bytes(4) + payload), api_key, version)


def test_unknown_api_or_version_has_no_throttle_time() -> None:
    frame = kio_messages.framed(bytes(40))

    assert throttle_time_offset(frame, 1_000, 0) is None
    for api_key in set(ApiKey) - {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS}:
        assert throttle_time_offset(frame, api_key, HIGHEST_VERSION[api_key] + 1) is None


@each_case("api_key, version", kio_messages.api_versions())
def test_longer_throttle_time_replaces_a_shorter_one_and_nothing_else(api_key: int, version: int) -> None:
    frame = kio_frame(api_key, version)

    written = write_throttle_time(frame, api_key, version, THROTTLE_TIME_MS + 1)

    assert written == frame.replace(NEEDLE, (THROTTLE_TIME_MS + 1).to_bytes(4, "big"))


@pytest.mark.parametrize("throttle_time_ms", [0, 1, THROTTLE_TIME_MS])
def test_longer_throttle_time_of_the_broker_is_kept(throttle_time_ms: int) -> None:
    frame = kio_frame(ApiKey.METADATA, 12)

    assert write_throttle_time(frame, ApiKey.METADATA, 12, throttle_time_ms) is frame


def test_throttle_time_above_int32_is_cut() -> None:
    frame = kio_messages.framed(bytes(12))

    written = write_throttle_time(frame, ApiKey.HEARTBEAT, 1, 2**40)

    assert written == struct.pack(">iiii", 12, 0, 2**31 - 1, 0)


@each_case("api_key, version", kio_messages.api_versions())
def test_truncated_response_never_has_throttle_time_elsewhere(api_key: int, version: int) -> None:
    frame = kio_frame(api_key, version, array_length=1)
    where = throttle_time_offset(frame, api_key, version)

    for size in range(4, len(frame)):
        try:
            found = throttle_time_offset(frame[:size], api_key, version)
        except ProtocolError:
            continue
        assert found == where
