"""Tests the responses that a test reads, and the table of them."""

import pytest

from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports
from kafka_quota_proxy.testing import ControlError, ObservedResponses, ThrottledResponse
from kafka_quota_proxy.testing.control import Control


def response(number: int) -> ThrottledResponse:
    return ThrottledResponse(
        time_ms=1_000 + number,
        api="Produce",
        version=9,
        user="ANONYMOUS",
        client_id="app",
        throttle_time_ms=300,
        bytes=123,
        reason="testing",
        broker=2,
    )


def test_responses_are_a_sequence_with_a_sum() -> None:
    found = ObservedResponses([response(number) for number in range(3)])

    assert (len(found), found.throttle_time_ms, found[1].time_ms) == (3, 900, 1_001)
    assert found[1:].throttle_time_ms == 600
    assert ObservedResponses([]).throttle_time_ms == 0


def test_text_is_a_table_of_the_last_responses() -> None:
    lines = repr(ObservedResponses([response(number) for number in range(60)])).splitlines()

    assert lines[0] == "<60 throttled responses, 18000 ms in all>"
    assert lines[1] == "after_ms  api      version  user       client_id  broker  throttle_time_ms  bytes  reason"
    assert lines[2] == "(10 earlier ones are left out)"
    assert lines[-1].split() == ["59", "Produce", "9", "ANONYMOUS", "app", "2", "300", "123", "testing"]
    assert repr(ObservedResponses([])) == "<no throttled response>"


def test_proxy_that_does_not_answer_is_named() -> None:
    (port,) = adjacent_ports(1)

    with pytest.raises(ControlError, match=f"does not answer at http://127.0.0.1:{port}/testing"):
        Control(f"127.0.0.1:{port}").reset()
