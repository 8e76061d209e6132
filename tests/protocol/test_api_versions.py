"""Tests how the versions that a broker advertises are limited. kio reads the result."""

import struct
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from kafka_quota_proxy.protocol.api_versions import (
    CEILINGS,
    VersionRange,
    advertise_versions,
    limit_versions,
    throttle_time_offset,
)
from kafka_quota_proxy.protocol.errors import MalformedLength, ProtocolError, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.primitives import write_uvarint
from tests.protocol.support import kio_messages
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import FEW_EXAMPLES, each_case

API_VERSIONS = 18
VERSIONS = range(6)
# Version 5 changed the request only (KIP-1242), and kio does not know it.
NEWEST_OF_KIO = 4
# The key, lowest and highest version of each API that a newer broker may advertise.
BROKER = [(0, 0, 14), (1, 4, 19), (3, 0, 13), (18, 0, 4), (0x7FFF, 0, 0x7FFF)]
LIMITED = [(0, 0, 13), (1, 4, 18), (3, 0, 13), (18, 0, 4), (0x7FFF, 0, 0x7FFF)]


def kio_response(version: int, announced: list[tuple[int, int, int]], *, tagged: bool = True) -> bytes:
    cls = kio_messages.response_class(API_VERSIONS, min(version, NEWEST_OF_KIO))
    entry: Any = cls.__dataclass_fields__["api_keys"].type.__args__[0]
    entries = tuple(entry(api_key=key, min_version=low, max_version=high) for key, low, high in announced)
    return kio_messages.response_frame(kio_messages.example(cls, {"api_keys": entries}, tagged=tagged))


def decode(frame: bytes, version: int) -> Untyped:
    message, size = entity_reader(kio_messages.response_class(API_VERSIONS, min(version, NEWEST_OF_KIO)))(frame, 8)
    assert size == len(frame) - 8
    return message


def advertised(frame: bytes, version: int) -> list[tuple[int, int, int]]:
    return [(entry.api_key, entry.min_version, entry.max_version) for entry in decode(frame, version).api_keys]


def changed_bytes(before: bytes, after: bytes) -> int:
    assert len(before) == len(after)
    return sum(old != new for old, new in zip(before, after, strict=True))


@each_case("version", VERSIONS)
@each_case("tagged", [True, False])
def test_only_highest_versions_above_the_ceilings_change(version: int, tagged: bool) -> None:
    frame = kio_response(version, BROKER, tagged=tagged)

    limited = limit_versions(frame, version)

    assert advertised(limited, version) == LIMITED
    assert changed_bytes(frame, limited) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_response_with_readable_versions_stays_the_same_object(version: int) -> None:
    frame = kio_response(version, [(0, 0, 13), (1, 0, 18), (2, 1, 99)])

    assert limit_versions(frame, version) is frame


@pytest.mark.parametrize("version", VERSIONS)
def test_api_with_a_lowest_version_above_the_ceiling_is_unchanged(version: int) -> None:
    """Otherwise the API would have versions 14 to 13. Clients differ in how they handle that."""
    frame = kio_response(version, [(0, 14, 15), (1, 18, 19)])

    assert advertised(limit_versions(frame, version), version) == [(0, 14, 15), (1, 18, 18)]


@pytest.mark.parametrize("version", VERSIONS)
@FEW_EXAMPLES
@given(data=st.data())
def test_highest_version_is_at_most_that_of_broker_and_ceiling(version: int, data: st.DataObject) -> None:
    versions = st.integers(0, 0x7FFF)
    entries = data.draw(st.lists(st.tuples(st.integers(0, 5), versions, versions), max_size=8))
    ceilings: Mapping[int, int] = data.draw(st.dictionaries(st.integers(0, 5), versions))
    frame = kio_response(version, entries)

    limited = advertised(limit_versions(frame, version, ceilings), version)

    for (key, low, high), after in zip(entries, limited, strict=True):
        ceiling = ceilings.get(key, 0x7FFF)
        assert after == (key, low, high if ceiling < low else min(high, ceiling))


OWN = {48: VersionRange(0, 1), 49: VersionRange(0, 1)}


@each_case(
    "entries, expected",
    [
        ([(0, 0, 8), (18, 0, 3)], [(0, 0, 8), (18, 0, 3), (48, 0, 1), (49, 0, 1)]),
        ([(48, 0, 0), (0, 3, 8), (49, 0, 0)], [(48, 0, 1), (0, 3, 8), (49, 0, 1)]),
        ([(49, 1, 2), (50, 0, 0)], [(49, 0, 1), (50, 0, 0), (48, 0, 1)]),
        ([(48, 0, 1), (49, 0, 1)], [(48, 0, 1), (49, 0, 1)]),
        ([], [(48, 0, 1), (49, 0, 1)]),
    ],
)
@each_case("version", VERSIONS)
@each_case("tagged", [True, False])
def test_own_versions_are_advertised_whatever_the_broker_has(
    version: int, tagged: bool, entries: list[tuple[int, int, int]], expected: list[tuple[int, int, int]]
) -> None:
    frame = kio_response(version, entries, tagged=tagged)

    more = advertise_versions(frame, version, OWN)

    assert advertised(more, version) == expected
    assert all(
        getattr(decode(more, version), name) == getattr(decode(frame, version), name)
        for name in decode(frame, version).__dataclass_fields__
        if name != "api_keys"
    )
    assert throttle_time_offset(more, version) == (
        None if (at := throttle_time_offset(frame, version)) is None else at + len(more) - len(frame)
    )
    assert advertise_versions(more, version, OWN) == more


@pytest.mark.parametrize(
    ("version", "frame", "expected"),
    [
        (0, "00000010 00000007 0000 00000001 000000000008", "0000001c 00000007 0000 00000003 000000000008"
            "003000000001 003100000001"),
        (1, "00000014 00000007 0000 00000001 000000000008 00000005", "00000020 00000007 0000 00000003 000000000008"
            "003000000001 003100000001 00000005"),
        (3, "00000013 00000007 0000 02 000000000008 00 00000005 00", "00000021 00000007 0000 04 000000000008 00"
            "003000000001 00 003100000001 00 00000005 00"),
    ],
)  # fmt: skip
def test_own_versions_are_added_in_each_layout(version: int, frame: str, expected: str) -> None:
    assert advertise_versions(bytes.fromhex(frame), version, OWN) == bytes.fromhex(expected)


def test_count_of_a_longer_array_may_take_another_byte() -> None:
    frame = kio_response(3, [(key, 0, 0) for key in range(100, 226)])

    assert len(advertised(advertise_versions(frame, 3, OWN), 3)) == 128


@pytest.mark.parametrize("version", [0, 3, 99])
def test_error_response_gets_no_own_versions(version: int) -> None:
    frame = kio_messages.framed(struct.pack(">ihi", 7, 35, 1) + struct.pack(">hhh", 18, 0, 3))

    assert advertise_versions(frame, version, OWN) == frame


@each_case("version", [0, 1, 3, 4, 5, 99])
@each_case("entries", [[], [(18, 0, 4)], BROKER])
def test_unsupported_version_is_read_in_v0_layout(version: int, entries: list[tuple[int, int, int]]) -> None:
    """A broker answers an unknown version of ApiVersions in v0, with UNSUPPORTED_VERSION (KIP-511)."""
    payload = struct.pack(">ihi", 7, 35, len(entries)) + b"".join(struct.pack(">hhh", *entry) for entry in entries)
    frame = kio_messages.framed(payload)

    limited = limit_versions(frame, version)

    assert advertised(limited, 0) == (LIMITED if entries == BROKER else entries)
    assert throttle_time_offset(frame, version) is None


@pytest.mark.parametrize("version", [3, 4, 5, 99])
def test_unknown_tags_survive_byte_for_byte(version: int) -> None:
    tags = b"\x02\x63" + write_uvarint(200) + bytes(range(200)) + b"\x64\x00"
    entry = struct.pack(">hhh", 1, 0, 19) + tags
    front = struct.pack(">ih", 7, 0) + b"\x02"
    frame = kio_messages.framed(front + entry + struct.pack(">i", 3) + tags)

    limited = limit_versions(frame, version)

    assert limited == frame.replace(struct.pack(">hhh", 1, 0, 19), struct.pack(">hhh", 1, 0, 18))
    assert throttle_time_offset(frame, version) == len(frame) - len(tags) - 4


@pytest.mark.parametrize(
    ("version", "payload", "error"),
    [
        (0, struct.pack(">ihi", 7, 0, 1_000_000), MalformedLength),
        (0, struct.pack(">ihi", 7, 0, -2), MalformedLength),
        (3, struct.pack(">ih", 7, 0) + b"\xff\xff\xff\xff\x0f" + bytes(40), MalformedLength),
        (3, struct.pack(">ih", 7, 0) + b"\x01" + bytes(4) + b"\xff\xff\xff\xff\x0f" + bytes(40), Truncated),
        (0, struct.pack(">ihi", 7, 0, 0) + b"?", TrailingBytes),
        (3, struct.pack(">ih", 7, 0) + b"\x01" + bytes(4) + b"\0?", TrailingBytes),
        (3, b"", Truncated),
    ],
)
def test_impossible_counts_are_refused_at_once(version: int, payload: bytes, error: type[ProtocolError]) -> None:
    with pytest.raises(error):
        limit_versions(kio_messages.framed(payload), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_cut_anywhere_is_refused(version: int) -> None:
    frame = kio_response(version, BROKER)

    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            limit_versions(frame[:size], version)


def test_ceilings_are_the_readable_versions() -> None:
    assert dict(CEILINGS) == {0: 13, 1: 18, 17: 1, 19: 7, 20: 6, 36: 2, 37: 3, 48: 1, 49: 1, 78: 2}
