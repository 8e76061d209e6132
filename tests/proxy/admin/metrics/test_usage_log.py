"""Tests the metrics of the usage log."""

from pathlib import Path

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, UsageFiles, UsageLog
from kafka_quota_proxy.proxy.admin.metrics.registry import usage_log_metrics
from kafka_quota_proxy.proxy.usage.log import usage_log

PREFIX = "kafka_quota_proxy_usage_log"


def test_samples_name_their_sink(tmp_path: Path) -> None:
    config = ProxyConfig(
        listeners=(Listener(name="clients", bind=Address(host="h", port=1)),),
        usage_log=UsageLog(to=UsageFiles(directory=str(tmp_path))),
    )
    usage = usage_log(config, brokers=lambda: (), replicas=lambda: ())
    assert usage is not None
    sink = usage.sink
    sink.written, sink.dropped, sink.failures, sink.is_failing, sink.last_write_s = 5, 2, 3, True, 1e9
    usage.postponed = 4

    found = {family.name: list(family.samples) for family in usage_log_metrics(usage)}

    of_files = '{sink="files"}'
    assert found == {
        f"{PREFIX}_records_total": [(of_files, 5.0)],
        f"{PREFIX}_dropped_records_total": [(of_files, 2.0)],
        f"{PREFIX}_queued_records": [(of_files, 0.0)],
        f"{PREFIX}_failures_total": [(of_files, 3.0)],
        f"{PREFIX}_last_write_successful": [(of_files, 0.0)],
        f"{PREFIX}_last_write_timestamp_seconds": [(of_files, 1e9)],
        f"{PREFIX}_postponed_intervals_total": [("", 4)],
    }


def test_without_a_usage_log_there_are_no_families() -> None:
    assert list(usage_log_metrics(None)) == []
