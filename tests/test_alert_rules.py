"""The rules of deploy/alerts.yaml fire when they should, in promtool. Series of floods are those of a real proxy.

``tests/end_to_end/support/flood_recording.py`` recorded the series.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.promtool import promtool

_REPOSITORY: Final = Path(__file__).parents[1]
_RULES: Final = _REPOSITORY / "deploy" / "alerts.yaml"
_RECORDING: Final = Path(__file__).parent / "data" / "floods.json"
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
    file = tmp_path / "floods.yaml"
    test = {"interval": interval, "input_series": series, "promql_expr_test": expected}
    file.write_text(yaml.safe_dump({"rule_files": [str(_RULES)], "evaluation_interval": "30s", "tests": [test]}))

    promtool("test", "rules", file)


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
    file = tmp_path / "faults.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(_RULES)], "evaluation_interval": "30s", "tests": [test]}))

    promtool("test", "rules", file)


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
    file = tmp_path / "core.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(_RULES)], "evaluation_interval": "30s", "tests": [test]}))

    promtool("test", "rules", file)
