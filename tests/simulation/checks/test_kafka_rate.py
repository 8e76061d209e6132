"""Tests of Kafka's arithmetic against times that were computed by hand."""

from tests.simulation.checks.kafka_rate import KafkaRate


def test_the_first_record_counts_over_the_shortest_window() -> None:
    rate = KafkaRate(11, 1_000)
    rate.record(300_000, 0)
    assert rate.throttle_ms(10_000, 0) == 20_000  # 30 s of the limit, less ten windows


def test_a_window_is_forgotten_when_its_last_record_is_old() -> None:
    rate = KafkaRate(2, 1_000)
    rate.record(50_000, 0)
    rate.record(10_000, 999)  # in the same window, which counts until 2,999
    assert rate.throttle_ms(10_000, 2_998) == 60_000 / 10 - 2_998
    assert rate.throttle_ms(10_000, 2_999) == 0


def test_the_oldest_of_three_samples_is_used_again() -> None:
    rate = KafkaRate(2, 1_000)
    for at_ms in (0, 1_000, 2_000, 3_000):
        rate.record(10_000, at_ms)
    # The one of 1,000 is too old by now.
    assert rate.throttle_ms(5_000, 3_000) == 20_000 / 5 - 1_000
