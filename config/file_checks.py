"""Runs all checks of a configuration file that concern more than one key.

Some report errors, others warn of valid settings that are most likely a mistake. The checks run before validation, so
that the operator sees all faults at once. They ignore values of the wrong type, which the schema reports.
"""

from typing import Final

from kafka_quota_proxy.config.broker_address_checks import check_broker_addresses
from kafka_quota_proxy.config.fair_call_queue_checks import check_fair_call_queue
from kafka_quota_proxy.config.listener_checks import check_listeners
from kafka_quota_proxy.config.one_broker_checks import check_one_broker
from kafka_quota_proxy.config.quota_checks import check_quotas, warn_of_expired
from kafka_quota_proxy.config.quotas_from_checks import check_quotas_from
from kafka_quota_proxy.config.replication_checks import check_replication
from kafka_quota_proxy.config.rule_reach_checks import check_rule_reach
from kafka_quota_proxy.config.store_checks import check_store
from kafka_quota_proxy.config.testing_checks import check_testing
from kafka_quota_proxy.config.unvalidated import UncheckedFile
from kafka_quota_proxy.config.usage_log_checks import check_usage_log
from kafka_quota_proxy.config.weak_limit_checks import check_weak_limits

_NULLABLE: Final = {
    "max_connections": "a number such as 10000",
    "max_connections_per_ip": "a number such as 100",
    "login_timeout": "a duration such as 30s",
    "idle_timeout": "a duration such as 10m",
    "max_connection_age": "a duration such as 1h",
}


def check(file: UncheckedFile, *, now_ms: int | None = None) -> None:
    """Run all checks of a configuration file that concern more than one key, and add the faults they find to ``file``.

    ``now_ms`` is the Unix time. If it is None, expired rules are not reported.
    """
    check_listeners(file)
    check_broker_addresses(file)
    check_one_broker(file)
    check_quotas(file)
    if now_ms is not None:
        warn_of_expired(file, now_ms=now_ms)
    _check_nulls(file)
    check_replication(file)
    check_fair_call_queue(file)
    check_usage_log(file)
    check_quotas_from(file)
    check_store(file)
    check_rule_reach(file)
    check_weak_limits(file)
    check_testing(file)


def _check_nulls(file: UncheckedFile) -> None:
    file.check_null(("max_throttle_time",), "a duration such as 25s, or null for no bound")
    file.check_null(("replication", "lease"), "a duration such as 10m, or null for ever")
    file.check_null(("usage_log", "retention_size"), "a size such as 10GiB, or null for no bound")
    file.check_null(("store", "changes_per_second"), "a number such as 100, or null for no limit")
    for at, _ in file.elements("listeners"):
        for key, example in _NULLABLE.items():
            file.check_null((*at, key), f"{example}, or null for no limit")
