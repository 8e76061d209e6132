"""The metrics of changed quotas."""

from pathlib import Path

from kafka_quota_proxy.config.model import Store
from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.quota_sources import quota_change_metrics
from kafka_quota_proxy.proxy.client_quotas.audit.log import ChangeLog


def test_without_a_store_there_are_no_families() -> None:
    assert list(quota_change_metrics(None)) == []


def test_changes_are_counted_by_result_and_lost_audit_lines_with_an_audit_log(tmp_path: Path) -> None:
    change_log = ChangeLog(Store(directory="d", audit_log=str(tmp_path / "a.jsonl")))
    change_log.counts["throttled"] += 7

    changes, lost = quota_change_metrics(change_log)

    assert changes == Family(
        "kafka_quota_proxy_quota_changes_total",
        "counter",
        "Changes of an entity's quotas that were requested, by their result.",
        [
            ('{result="applied"}', 0.0),
            ('{result="validated"}', 0.0),
            ('{result="unchanged"}', 0.0),
            ('{result="refused"}', 0.0),
            ('{result="unknown"}', 0.0),
            ('{result="throttled"}', 7.0),
        ],
    )
    assert (lost.name, lost.samples) == ("kafka_quota_proxy_quota_audit_lost_lines_total", [("", 0.0)])
    assert len(list(quota_change_metrics(ChangeLog(Store(directory="d"))))) == 1
