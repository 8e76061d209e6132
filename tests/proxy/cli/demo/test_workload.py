"""Tests the sizes and durations that the demo chooses for any rate."""

import pytest
from aiokafka.protocol.produce import ProduceRequest_v8
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.proxy.cli.demo.clients import FETCH_OVERHEAD_BYTES, PRODUCE_OVERHEAD_BYTES
from kafka_quota_proxy.proxy.cli.demo.workload import (
    MAX_RATE,
    MIN_RATE,
    PRODUCER_CLIENT_ID,
    PRODUCER_TOPIC,
    Options,
    max_fetch_bytes,
    preload_records,
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


@pytest.mark.parametrize("value_bytes", [300, 1_600_000])
def test_the_overhead_of_a_produce_request_is_that_of_aiokafka(value_bytes: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=0,
        batch_size=2 * value_bytes,
    )
    builder.append(0, timestamp=1_700_000_000_000, key=None, value=bytes(value_bytes), headers=[])
    body = ProduceRequest_v8(
        transactional_id=None,
        required_acks=1,
        timeout=60_000,
        topics=[(PRODUCER_TOPIC, [(0, bytes(builder.build()))])],
    ).encode()
    # The header has int16 api_key, int16 api_version, int32 correlation_id and string client_id.
    header_bytes = 2 + 2 + 4 + 2 + len(PRODUCER_CLIENT_ID)

    overhead_bytes = header_bytes + len(body) - value_bytes

    assert overhead_bytes == pytest.approx(PRODUCE_OVERHEAD_BYTES, abs=4)


def test_sampled_runs_for_a_cycle_at_least() -> None:
    def planned(seconds: int, shaping: Shaping) -> int:
        return Options(produce_rate=MIN_RATE, fetch_rate=MIN_RATE, seconds=seconds, shaping=shaping).planned_seconds

    assert [planned(5, Shaping.PACED), planned(5, Shaping.SAMPLED), planned(60, Shaping.SAMPLED)] == [5, 15, 60]
