"""The rules of deploy/alerts.yaml fire when they should, in promtool.

The series of ``data/floods.json`` and ``data/faults.json`` were recorded at real proxies in front of a real Kafka, in
November 2026: floods beside calm clients, every 15 s, and faults, once a second. Other series are written here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from kafka_quota_proxy.proxy.session.address_rewrite import ADDRESSED
from kafka_quota_proxy.proxy.session.handlers.table import HANDLERS
from tests.support.promtool import promtool

_REPOSITORY: Final = Path(__file__).parents[1]
_RULES: Final = _REPOSITORY / "deploy" / "alerts.yaml"
_RECORDING: Final = Path(__file__).parent / "data" / "floods.json"
_FAULT_RECORDING: Final = _RECORDING.with_name("faults.json")
_END_M: Final = 60
_FIRING: Final = 'count by (alertname, client_id) (ALERTS{alertstate="firing"})'
_SHAPES: Final = ("sampled", "paced")
_FLOODS: Final = [
    f"{library}-{role}-{shape}"
    for library in ("java", "librdkafka")
    for role in ("producer", "consumer")
    for shape in _SHAPES
]
_CALM: Final = [f"calm-{client}-{shape}" for client in ("producer", "crowd") for shape in _SHAPES]


def _played(name: str, values: list[float], length: int) -> list[float]:
    """Repeat a recording until it has this many samples. Counters continue to grow."""
    played = values[:]
    while len(played) < length:
        above = played[-1] - values[0] if "_total{" in name else 0.0
        played += [round(value + above, 3) for value in values[1:]]
    return played[:length]


def _series(end_m: int) -> tuple[str, list[dict[str, str]]]:
    """Return the recording's interval, and its series for this many minutes."""
    recording = json.loads(_RECORDING.read_text(encoding="utf-8"))
    interval_s: int = recording["interval_s"]
    length = end_m * 60 // interval_s + 1
    return f"{interval_s}s", [
        {
            "series": name.replace("{", '{instance="proxy:9102",job="kafka-quota-proxy",'),
            "values": " ".join(map(str, _played(name, values, length))),
        }
        for name, values in recording["series"].items()
    ]


def _firing(minute: int, *alerts: tuple[str, str]) -> dict[str, Any]:
    """Return the assertion that exactly these alerts fire, as pairs of alert and client-id."""
    labels = [f'{{alertname="{alert}", client_id="{client_id}"}}' for alert, client_id in alerts]
    return {
        "expr": _FIRING,
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": text, "value": 1} for text in labels],
    }


def _test_rules(directory: Path, *tests: dict[str, Any], every: str = "30s") -> None:
    """Run promtool with tests of the rules."""
    file = directory / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(_RULES)], "evaluation_interval": every, "tests": list(tests)}))
    promtool("test", "rules", file)


def test_alert_rules_are_valid() -> None:
    promtool("check", "rules", _RULES)


def test_flood_fires_only_the_two_alerts_of_its_client(tmp_path: Path) -> None:
    interval, series = _series(_END_M)
    assert {name for name in (*_FLOODS, *_CALM) if any(f'"{name}"' in one["series"] for one in series)} == {
        *_FLOODS,
        *_CALM,
    }
    throttled = [("KafkaClientThrottled", client_id) for client_id in _FLOODS]
    near = [("KafkaClientNearItsQuota", client_id) for client_id in _FLOODS]
    expected = [_firing(10), _firing(25, *throttled), *(_firing(minute, *throttled, *near) for minute in (45, _END_M))]
    test = {"interval": interval, "input_series": series, "promql_expr_test": expected}

    _test_rules(tmp_path, test)


def test_the_first_internal_error_fires_and_each_later_one(tmp_path: Path) -> None:
    series = 'kafka_quota_proxy_internal_errors_total{instance="proxy:9102",where="connection"}'
    firing = {"labels": '{alertname="KafkaQuotaProxyFault"}', "value": 1}
    expected = [
        {"expr": _FIRING, "eval_time": f"{minute}m", "exp_samples": [firing] if is_firing else []}
        for minute, is_firing in ((5, False), (12, True), (100, False), (160, True), (230, False))
    ]
    # Nothing for ten minutes, one error, and a second one after two and a half hours.
    test = {
        "interval": "1m",
        "input_series": [{"series": series, "values": "_x10 1x139 2x100"}],
        "promql_expr_test": expected,
    }

    _test_rules(tmp_path, test)


_CPU: Final = 'process_cpu_seconds_total{instance="proxy:9102",job="kafka-quota-proxy"}'
_LAG: Final = 'kafka_quota_proxy_event_loop_lag_seconds_bucket{instance="proxy:9102",job="kafka-quota-proxy",le="%s"}'


@pytest.mark.parametrize(
    ("cpu_per_minute", "late_per_minute", "alerts"),
    [
        (45, 0, []),
        (60, 0, ["KafkaQuotaProxyCoreFull"]),
        (60, 60, ["KafkaQuotaProxyCoreFull"]),
        (15, 60, ["KafkaQuotaProxyLate"]),
        (15, 1, []),  # one late timer of 240 is no 99th percentile
    ],
)
def test_a_full_core_and_a_core_that_others_use_fire_an_alert_each(
    tmp_path: Path, cpu_per_minute: int, late_per_minute: int, alerts: list[str]
) -> None:
    on_time = 240 - late_per_minute
    lag = {"0.05": on_time, "0.1": 240, "+Inf": 240}
    series = [{"series": _CPU, "values": f"0+{cpu_per_minute}x40"}]
    series += [{"series": _LAG % bound, "values": f"0+{count}x40"} for bound, count in lag.items()]
    # Another program at the same Prometheus uses a whole core, too.
    series.append({"series": 'process_cpu_seconds_total{instance="web:80",job="web"}', "values": "0+60x40"})
    utilisation = {
        "expr": "instance:kafka_quota_proxy_core_utilisation:rate5m",
        "eval_time": "30m",
        "exp_samples": [
            {
                "labels": 'instance:kafka_quota_proxy_core_utilisation:rate5m{instance="proxy:9102",'
                'job="kafka-quota-proxy"}',
                "value": cpu_per_minute / 60,
            }
        ],
    }
    firing = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            utilisation,
            {"expr": _FIRING, "eval_time": "5m", "exp_samples": []},
            {"expr": _FIRING, "eval_time": "30m", "exp_samples": firing},
        ],
    }

    _test_rules(tmp_path, test)


class Fault(NamedTuple):
    """A series that is well for ten minutes, and then has a fault."""

    alert: str
    metric: str  # with its labels
    values: str  # one for each minute, as promtool reads them
    quiet_m: int  # the last minute at which the alert surely does not fire
    firing_m: int


_FAILS: Final = "1x9 0x60"  # from 1 to 0
_APPEARS: Final = "0x9 1x60"
_GROWS: Final = "0x9 1x60"
_FAULTS: Final = (
    Fault("KafkaQuotaProxyDown", "up", _FAILS, 10, 12),
    Fault("KafkaClientsBypassTheProxy", 'kafka_quota_proxy_upstream_bypassed{broker="b:9092"}', _APPEARS, 10, 12),
    Fault("KafkaQuotaConfigRejected", "kafka_quota_proxy_config_last_reload_successful", _FAILS, 10, 12),
    Fault("KafkaQuotaTopicNotRead", "kafka_quota_proxy_quotas_topic_connected", _FAILS, 14, 16),
    Fault("KafkaQuotaTopicNotUnderstood", "kafka_quota_proxy_quotas_topic_not_understood_records_total", _GROWS, 9, 12),
    Fault("KafkaBrokerQuotasNotRead", "kafka_quota_proxy_broker_quotas_connected", _FAILS, 14, 16),
    Fault("KafkaQuotaStoreTopicNotRead", "kafka_quota_proxy_store_topic_connected", _FAILS, 10, 12),
    Fault(
        "KafkaQuotaStoreTopicNotUnderstood", "kafka_quota_proxy_store_topic_not_understood_records_total", _GROWS, 9, 12
    ),
    Fault(
        "KafkaQuotaUsageLogNotWritten",
        'kafka_quota_proxy_usage_log_last_write_successful{sink="files"}',
        _FAILS,
        14,
        16,
    ),
    # A few errors are a port scan; many are a client with the wrong port.
    Fault("KafkaProtocolErrors", 'kafka_quota_proxy_protocol_errors_total{reason="size"}', "0x9 5x9 50x60", 19, 22),
    Fault("KafkaApiUnknownToTheProxy", 'kafka_quota_proxy_unknown_api_total{api_key="1"}', "_x10 1x60", 9, 12),
    Fault("KafkaApiUnknownToTheProxy", 'kafka_quota_proxy_unknown_api_total{api_key="18"}', "1x79 2x60", 79, 82),
    Fault("KafkaQuotaBucketsRunOut", 'kafka_quota_proxy_bucket_overflows_total{kind="produce"}', _GROWS, 9, 12),
    Fault("KafkaReplicationThrottleForgotten", "kafka_quota_proxy_replication_throttle_orphaned", _APPEARS, 14, 16),
    # Ten minutes of progress, then the lag grows. Its slope of fifteen minutes turns first.
    Fault("KafkaReplicasFallBehind", 'kafka_quota_proxy_sum_replica_lag{broker="3"}', "1000-50x9 600+50x60", 25, 40),
    Fault("KafkaQuotaProxyCannotAskTheCluster", "kafka_quota_proxy_cluster_poll_successful", _FAILS, 14, 16),
    Fault("KafkaQuotaStoreNotWritable", "kafka_quota_proxy_quota_store_writable", _FAILS, 10, 12),
    Fault("KafkaQuotaStoreDamaged", "kafka_quota_proxy_quota_store_damaged_files", _APPEARS, 9, 11),
    Fault("KafkaQuotasChangeTooFast", 'kafka_quota_proxy_quota_changes_total{result="throttled"}', _GROWS, 9, 12),
    Fault("KafkaQuotaChangeMayHold", 'kafka_quota_proxy_quota_changes_total{result="unknown"}', _GROWS, 9, 12),
    Fault("KafkaQuotaAuditLinesLost", "kafka_quota_proxy_quota_audit_lost_lines_total", _GROWS, 9, 12),
)


def test_each_fault_fires_its_alert_and_no_other(tmp_path: Path) -> None:
    tests = []
    for fault in _FAULTS:
        name, _, labels = fault.metric.rstrip("}").partition("{")
        series = f'{name}{{instance="proxy:9309",job="kafka-quota-proxy"{labels and ","}{labels}}}'
        firing = {"labels": f'{{alertname="{fault.alert}"}}', "value": 1}
        expected = [
            {"expr": _FIRING, "eval_time": f"{fault.quiet_m}m", "exp_samples": []},
            {"expr": _FIRING, "eval_time": f"{fault.firing_m}m", "exp_samples": [firing]},
        ]
        tests.append(
            {
                "name": fault.alert,
                "interval": "1m",
                "input_series": [{"series": series, "values": fault.values}],
                "promql_expr_test": expected,
            }
        )

    _test_rules(tmp_path, *tests, every="1m")


def test_a_broker_that_is_not_reached_fires_also_if_the_reason_changes(tmp_path: Path) -> None:
    name = 'kafka_quota_proxy_upstream_reachable{instance="proxy:9309",broker="b:9092",reason="%s"}'
    values = {"": "1x9 stale", "refused": "_x10 0x0 stale", "silent": "_x11 0x30"}
    expr = 'count by (alertname, broker) (ALERTS{alertstate="firing"})'
    firing = [{"labels": '{alertname="KafkaBrokerNotReached", broker="b:9092"}', "value": 1}]
    expected = [
        {"expr": expr, "eval_time": "10m", "exp_samples": []},
        {"expr": expr, "eval_time": "11m", "exp_samples": firing},
    ]
    series = [{"series": name % reason, "values": text} for reason, text in values.items()]

    _test_rules(tmp_path, {"interval": "1m", "input_series": series, "promql_expr_test": expected}, every="1m")


def test_recorded_faults_fire_their_alerts_and_no_other(tmp_path: Path) -> None:
    recording: dict[str, list[int | None]] = json.loads(_FAULT_RECORDING.read_text(encoding="utf-8"))
    # A recorded second lasts a minute here, because alerts wait for minutes. API 999, which passes unread, fires none.
    series = [
        {
            "series": name.replace("{", '{job="kafka-quota-proxy",'),
            "values": " ".join("_" if value is None else str(value) for value in values),
        }
        for name, values in recording.items()
    ]
    mistakes = [
        ("KafkaQuotaConfigRejected", "broker"),
        ("KafkaProtocolErrors", "small"),
        ("KafkaQuotaBucketsRunOut", "small"),
        ("KafkaQuotaStoreTopicNotUnderstood", "store"),
        ("KafkaQuotasChangeTooFast", "store"),
        ("KafkaQuotaTopicNotUnderstood", "topic"),
    ]
    lasting = [
        ("KafkaQuotaConfigRejected", "broker"),
        ("KafkaQuotaUsageLogNotWritten", "cluster"),
    ]
    broker_is_away = [
        ("KafkaBrokerQuotasNotRead", "broker"),
        ("KafkaQuotaProxyCannotAskTheCluster", "cluster"),
        ("KafkaQuotaStoreTopicNotRead", "store"),
        ("KafkaQuotaTopicNotRead", "topic"),
    ]
    expected = [
        {
            "expr": 'count by (alertname, instance) (ALERTS{alertstate="firing"})',
            "eval_time": f"{minute}m",
            "exp_samples": [
                {"labels": f'{{alertname="{alert}", instance="{instance}"}}', "value": 1} for alert, instance in alerts
            ],
        }
        for minute, alerts in ((9, []), (13, mistakes), (39, lasting + broker_is_away))
    ]

    _test_rules(tmp_path, {"interval": "1m", "input_series": series, "promql_expr_test": expected}, every="1m")


def test_slow_requests_of_one_api_fire_its_alert(tmp_path: Path) -> None:
    # A hundred requests a minute of each. Of one, two take longer than the alert allows; of the other, none.
    late = {"Produce": 2, "Fetch": 0}
    name = "kafka_quota_proxy_added_latency_seconds_bucket"
    series = [
        {
            "series": f'{name}{{instance="proxy:9309",api="{api}",le="{bound}"}}',
            "values": f"0+{100 - count * is_late}x40",
        }
        for api, count in late.items()
        for bound, is_late in (("0.033554431", True), ("0.067108863", True), ("0.134217727", False), ("+Inf", False))
    ]
    firing = [{"labels": '{alertname="KafkaQuotaProxySlow", api="Produce"}', "value": 1}]
    expr = 'count by (alertname, api) (ALERTS{alertstate="firing"})'
    expected = [
        {"expr": expr, "eval_time": "14m", "exp_samples": []},
        {"expr": expr, "eval_time": "20m", "exp_samples": firing},
    ]

    _test_rules(tmp_path, {"interval": "1m", "input_series": series, "promql_expr_test": expected})


def test_the_alert_for_unknown_apis_is_for_those_that_the_proxy_reads() -> None:
    rules = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    (expr,) = (rule["expr"] for rule in rules if rule.get("alert") == "KafkaApiUnknownToTheProxy")

    read = "|".join(map(str, sorted({*HANDLERS, *ADDRESSED})))

    assert set(re.findall(r'api_key=~"(.*?)"', expr)) == {read}
    assert expr.count(read) == 2


def test_each_alert_is_tested() -> None:
    rules = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    elsewhere = {
        "KafkaQuotaProxyFault",
        "KafkaBrokerNotReached",
        "KafkaClientThrottled",
        "KafkaClientNearItsQuota",
        "KafkaQuotaProxySlow",
        "KafkaQuotaProxyCoreFull",
        "KafkaQuotaProxyLate",
    }

    assert {rule["alert"] for rule in rules if "alert" in rule} == elsewhere | {fault.alert for fault in _FAULTS}
