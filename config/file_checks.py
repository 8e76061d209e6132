"""Faults that concern more than one key, and warnings about what is allowed but likely a mistake.

The checks read the values before validation, so all faults of a file are reported at once. They ignore a value of the
wrong type, which the schema reports.
"""

from typing import Final

from kafka_quota_proxy.config.document import Document, Location, key_path
from kafka_quota_proxy.config.errors import Fault, Severity
from kafka_quota_proxy.config.fair_call_queue_checks import check_fair_call_queue
from kafka_quota_proxy.config.listener_checks import check_listeners
from kafka_quota_proxy.config.one_broker_checks import check_one_broker
from kafka_quota_proxy.config.quota_checks import check_quotas, warn_of_expired
from kafka_quota_proxy.config.quotas_from_checks import check_quotas_from
from kafka_quota_proxy.config.replication_checks import check_replication
from kafka_quota_proxy.config.rule_reach_checks import check_rule_reach
from kafka_quota_proxy.config.store_checks import check_store
from kafka_quota_proxy.config.unvalidated import Report, elements, mapping_at
from kafka_quota_proxy.config.usage_log_checks import check_usage_log
from kafka_quota_proxy.config.weak_limit_checks import check_weak_limits

_NULLABLE: Final = {
    "max_connections": "a number such as 10000",
    "max_connections_per_ip": "a number such as 100",
    "login_timeout": "a duration such as 30s",
    "idle_timeout": "a duration such as 10m",
    "max_connection_age": "a duration such as 1h",
}


def check(document: Document, *, now_ms: int | None = None) -> list[Fault]:
    """Return faults that concern more than one key, and warnings; with a time, also about expired rules.

    ``now_ms`` is Unix time.
    """
    if not isinstance(document.data, dict):
        return []
    faults: list[Fault] = []

    def report(location: Location, message: str, severity: Severity = Severity.ERROR) -> None:
        line = document.line(location)
        faults.append(Fault(file=document.file, line=line, key=key_path(location), message=message, severity=severity))

    def warn(location: Location, message: str) -> None:
        report(location, message, Severity.WARNING)

    check_listeners(document, report)
    check_one_broker(document, warn)
    check_quotas(document, report, warn)
    if now_ms is not None:
        warn_of_expired(document, warn, now_ms=now_ms)
    _check_nulls(document, report)
    check_replication(document, report, warn)
    check_fair_call_queue(document, report, warn)
    check_usage_log(document, report, warn)
    check_quotas_from(document, report, warn)
    check_store(document, report, warn)
    check_rule_reach(document, warn)
    check_weak_limits(document, warn)
    return faults


def _check_nulls(document: Document, report: Report) -> None:
    """Report keys without a value: in YAML that is null, which here means "no limit" and must be written."""
    location: Location = ("max_throttle_time",)
    if isinstance(document.data, dict) and location[0] in document.data and not document.text(location):
        report(location, "has no value; write a duration such as 25s, or null for no bound")
    location = ("replication", "lease")
    if "lease" in (mapping_at(document, "replication") or ()) and not document.text(location):
        report(location, "has no value; write a duration such as 10m, or null for ever")
    for index, listener in elements(document, "listeners"):
        for key, example in _NULLABLE.items():
            location = ("listeners", index, key)
            if listener.get(key, key) is None and not document.text(location):
                report(location, f"has no value; write {example}, or null for no limit")
