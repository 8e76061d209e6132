"""Tests the fields that are changed in frames that are forwarded."""

import pytest

from kafka_quota_proxy.protocol import fetch
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.session.frame_edits import (
    MAX_HELD_RESPONSE_BYTES,
    Edit,
    capped_fetch,
    response_edit,
    without_session,
)
from tests.support.frames import api_versions_response, fetch_response, framed, produce_response


def changed(data: bytes, change: Edit | None) -> bytes:
    assert change
    begin, end, replacement = change
    return data[:begin] + replacement + data[end:]


@pytest.mark.parametrize("version", range(1, 14))
def test_produce_response_is_edited_once_complete(version: int) -> None:
    frame = produce_response(version=version, throttle_time_ms=3)
    data = b"before" + frame

    for end in range(len(data)):
        assert response_edit(data[:end], 6, len(frame), ApiKey.PRODUCE, version, 9) is None
    assert changed(data, response_edit(data, 6, len(frame), ApiKey.PRODUCE, version, 9)) == (
        b"before" + produce_response(version=version, throttle_time_ms=9)
    )


@pytest.mark.parametrize("version", range(1, 19))
def test_fetch_response_is_edited_at_its_throttle_time(version: int) -> None:
    frame = fetch_response(version=version, size_bytes=5_000)
    needed = 12 if version < 12 else 13

    for end in range(8, needed):
        assert response_edit(frame[:end], 0, len(frame), ApiKey.FETCH, version, 9) is None
    assert response_edit(frame[:needed], 0, len(frame), ApiKey.FETCH, version, 9) == (
        needed - 4,
        needed,
        b"\0\0\0\x09",
    )


@pytest.mark.parametrize(("theirs", "ours"), [(0, 5), (5, 5), (6, 5), (2**31 - 1, 5)])
def test_the_larger_throttle_time_stays(theirs: int, ours: int) -> None:
    frame = fetch_response(throttle_time_ms=theirs)

    change = response_edit(frame, 0, len(frame), ApiKey.FETCH, 11, ours)

    assert changed(frame, change) == fetch_response(throttle_time_ms=max(theirs, ours))


@pytest.mark.parametrize(
    ("api_key", "frame"), [(ApiKey.PRODUCE, produce_response(version=0)), (ApiKey.FETCH, b"\0" * 99)]
)
def test_version_0_has_no_such_field(api_key: ApiKey, frame: bytes) -> None:
    assert response_edit(frame, 0, len(frame), api_key, 0, 9) == ()


def test_versions_are_narrowed() -> None:
    frame = api_versions_response(produce_max=20, fetch_max=17)

    change = response_edit(frame, 0, len(frame), ApiKey.API_VERSIONS, 0, 0)

    assert changed(frame, change) == api_versions_response(produce_max=13, fetch_max=17)


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.API_VERSIONS])
def test_unreadable_response_is_forwarded_unchanged(api_key: ApiKey) -> None:
    frame = framed(b"\xff" * 40)

    assert response_edit(frame, 0, len(frame), api_key, 9, 5) == ()


def test_response_too_long_to_hold_is_forwarded_unchanged() -> None:
    assert response_edit(b"\0" * 100, 0, MAX_HELD_RESPONSE_BYTES + 1, ApiKey.PRODUCE, 9, 5) == ()


@pytest.mark.parametrize(
    ("min_bytes", "max_bytes", "cap", "expected"),
    [
        (1, 1_000, 1_000, None),
        (1, 1_001, 1_000, (1, 1_000)),
        (5_000, 9_000, 1_000, (1_000, 1_000)),
        (1, -1, 1_000, None),
    ],
)
def test_a_fetch_is_capped_in_both_its_limits(
    min_bytes: int, max_bytes: int, cap: int, expected: tuple[int, int] | None
) -> None:
    change = capped_fetch(fetch.FetchLimits(12, 16, 500, min_bytes, max_bytes), cap)

    if expected is None:
        assert change == ()
    else:
        assert change == (12, 20, expected[0].to_bytes(4, "big") + expected[1].to_bytes(4, "big"))


def test_a_fetch_without_the_field_cannot_be_capped() -> None:
    assert capped_fetch(fetch.FetchLimits(8, -1, 500, 1, 2**31 - 1), 1_000) == ()


@pytest.mark.parametrize(
    ("edit", "before"), [((), b"\1\1\1\1"), ((0, 2, b"\7\7"), b"\7\7\1\1")], ids=["alone", "capped"]
)
def test_a_full_fetch_opens_no_session(edit: Edit, before: bytes) -> None:
    data = b"\1\1\1\1" + fetch.OPENS_SESSION.to_bytes(4)

    found = changed(data, without_session(data, edit, fetch.FetchSession(0, fetch.OPENS_SESSION, 4)))

    assert found == before + fetch.WITHOUT_SESSION.to_bytes(4, signed=True)
