"""Tests the sizes and durations that the demo chooses for any rate, and the configuration that it writes."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.proxy.cli.demo.clients import FETCH_OVERHEAD_BYTES, PRODUCE_OVERHEAD_BYTES
from kafka_quota_proxy.proxy.cli.demo.workload import (
    MAX_RATE,
    MIN_RATE,
    Options,
    Rule,
    max_fetch_bytes,
    preload_records,
    proxy_config,
    record_bytes,
)


@given(rate=st.integers(MIN_RATE, MAX_RATE))
def test_records_and_fetches_are_a_small_part_of_the_quota_and_fit_into_the_mock(rate: int) -> None:
    produced = record_bytes(rate, overhead_bytes=PRODUCE_OVERHEAD_BYTES)
    assert produced > 0
    assert produced + PRODUCE_OVERHEAD_BYTES == rate // 40

    fetched = record_bytes(rate, overhead_bytes=FETCH_OVERHEAD_BYTES)
    assert fetched + FETCH_OVERHEAD_BYTES <= max_fetch_bytes(rate) <= rate / 4
    assert 1 <= preload_records(fetched) <= 5 * 1024 * 1024 / (fetched + 100), "the mock keeps 5 MiB"


def test_sampled_runs_for_a_cycle_at_least() -> None:
    def planned(seconds: int, shaping: Shaping) -> int:
        return Options(produce_rate=MIN_RATE, fetch_rate=MIN_RATE, seconds=seconds, shaping=shaping).planned_seconds

    assert [planned(5, Shaping.PACED), planned(5, Shaping.SAMPLED), planned(60, Shaping.SAMPLED)] == [5, 15, 60]


def test_the_configuration_of_the_proxy_is_valid_and_has_the_options() -> None:
    quota: Rule = {"client-id": "demo-producer", "producer_byte_rate": 16_384}
    text = proxy_config([quota], Shaping.SAMPLED, port=19_092, admin_port=19_308, upstream="127.0.0.1:29092")

    loaded = load_bytes(text.encode(), file="demo.yaml")

    assert loaded.config.shaping is Shaping.SAMPLED
    assert loaded.config.testing
    assert not loaded.warnings
    (rule,) = loaded.config.quotas
    assert (rule.client_id, dict(rule.limits)) == ("demo-producer", {"producer_byte_rate": 16_384})
