"""Tests the time that moves take at a rate, and the rate at which they end in a given time."""

from kafka_quota_proxy.proxy.cli.reassignment.model import Holder, Load, Side, time_to_copy_ms

MB = 1_000_000


def test_a_load_answers_in_both_directions() -> None:
    load = Load(
        holder=Holder(Side.LEADER, 1, None), left_bytes=600 * MB, incoming_rate=2 * MB, in_sync_rate=MB, effect=1.0
    )

    assert load.smallest_rate == 3 * MB
    assert load.rate_to_end_in(60_000) == 13 * MB
    assert load.time_left_ms(13 * MB) == 60_000
    assert load.time_left_ms(3 * MB) is None


def test_copying_nothing_takes_no_time() -> None:
    assert time_to_copy_ms(0, -1) == 0
    assert time_to_copy_ms(1, 0) is None
