"""Tests the time that copying takes at a rate, and the rate at which it ends in a given time."""

from kafka_quota_proxy.proxy.cli.reassignment.model import Load

MB = 1_000_000


def test_a_load_answers_in_both_directions() -> None:
    load = Load(left_bytes=600 * MB, rate=12 * MB, incoming_rate=2 * MB, in_sync_rate=MB)

    assert load.time_left_ms == 60_000
    assert load.rate_to_end_in(60_000) == 13 * MB  # the throttle of a leader also counts what followers in sync fetch


def test_copying_nothing_takes_no_time_and_copying_at_the_incoming_rate_never_ends() -> None:
    assert Load(left_bytes=0, rate=None, incoming_rate=1).time_left_ms == 0
    assert Load(left_bytes=1, rate=2.0, incoming_rate=2).time_left_ms is None
