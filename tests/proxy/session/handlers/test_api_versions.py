"""Tests the API versions that clients are offered."""

from tests.support.frames import (
    api_versions_response,
    other_request,
)
from tests.support.wire import Wire


def test_announced_versions_are_narrowed_to_what_can_be_read() -> None:
    wire = Wire()
    wire.client(other_request(1, api_key=18, version=0))
    answer = api_versions_response(1, produce_max=99, fetch_max=99)

    assert wire.broker(answer[:20]) == b""
    assert wire.broker(answer[20:]) == api_versions_response(1, produce_max=13, fetch_max=18)
