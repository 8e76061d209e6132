"""The dashboard that an operator opens first: are all proxies well, and which clients do they throttle?"""

from pathlib import Path
from typing import Final

import yaml

from deploy.dashboards.panels import (
    BUILD,
    SELECTED,
    Column,
    Query,
    dashboard,
    graph,
    highest_rate,
    number,
    own,
    rate,
    rows,
    selector,
    states,
)

_RULE_FILE: Final = yaml.safe_load((Path(__file__).parents[1] / "alerts.yaml").read_text(encoding="utf-8"))
_ALERTS: Final = "|".join(rule["alert"] for group in _RULE_FILE["groups"] for rule in group["rules"] if "alert" in rule)
_BUCKET: Final = "kind, user, client_id"
_HEALTH: Final = "|".join(
    (
        "config_last_reload_successful",
        "tls_last_reload_successful",
        "quotas_topic_connected",
        "broker_quotas_connected",
        "store_topic_connected",
        "quota_store_writable",
        "usage_log_last_write_successful",
        "cluster_poll_successful",
    )
)
_THROTTLED: Final = f"{highest_rate('throttle_seconds_total')} > 0"
_USED: Final = highest_rate("quota_used_seconds_total")
_RULES: Final = own("rule_throttle_seconds_total")
_LATENCY: Final = f"sum by (le) ({rate('added_latency_seconds_bucket')})"
_CORE: Final = selector("instance:kafka_quota_proxy_core_utilisation:rate5m")
_LATE: Final = selector("instance:kafka_quota_proxy_event_loop_lag_seconds:p99_5m")
_CHECKS: Final = f'{{__name__=~"kafka_quota_proxy_({_HEALTH})", {SELECTED}}}'
_VERSIONS: Final = (
    f"max by (job, instance, hash) ({own('config_info')})"
    f" * on (job, instance) group_left (version, implementation) {own('build_info')}"
)
_UPTIME: Final = f"(time() - {selector('process_start_time_seconds')})"
_PANELS: Final = (
    number(
        "Proxies that do not answer",
        "Prometheus cannot scrape them. Clients of their brokers may be unable to connect.",
        'count(up{job=~"$job"} == 0) or vector(0)',
        alarm_at=1,
    ),
    number(
        "Throttled now",
        "Users and client-ids that wait because of a quota, counted once for each kind of quota.",
        f"count({_THROTTLED}) or vector(0)",
        warn_at=1,
    ),
    number(
        "Above 90 % of a limit",
        "Users and client-ids that use more than 90 % of a limit, in Kafka's window of some ten seconds.",
        f"count(max by ({_BUCKET}) ({own('quota_utilisation_ratio')}) > 0.9) or vector(0)",
        warn_at=1,
    ),
    number("Connections", "Open connections of clients.", f"sum({own('connections')})"),
    number(
        "Busiest core",
        "A proxy uses one core for traffic. This is the share of it that the busiest proxy used in five minutes.",
        f"max({_CORE})",
        unit="percentunit",
        warn_at=0.7,
        alarm_at=0.9,
    ),
    number(
        "Alerts",
        "Firing alerts of deploy/alerts.yaml, of all proxies.",
        f'count(ALERTS{{alertstate="firing", alertname=~"{_ALERTS}"}}) or vector(0)',
        alarm_at=1,
    ),
    rows(
        "Which clients are throttled now?",
        "Click on a user or a client-id to see this client. Of several proxies, the values are those of the proxy"
        " that throttles it most. 100 % means that at each time one of its connections waited.",
        _BUCKET.split(", "),
        Column("time throttled", f"topk(20, {_THROTTLED})", "percentunit", warn_at=0.5),
        Column("limit used", f"{_USED} and topk(20, {_THROTTLED})", "percentunit", warn_at=0.9),
        opens_client=True,
    ),
    rows(
        "Which rules throttled most in the selected time?",
        "Names are those of the rule, which may have <default>.",
        _BUCKET.split(", "),
        Column(
            "throttled",
            f"topk(20, sum by ({_BUCKET}) (increase({_RULES}[$__range])) > 0)",
            "s",
        ),
    ),
    graph(
        "How much do clients write and read?",
        "Bytes that quotas charge.",
        "binBps",
        Query(f"sum by (kind) ({rate('bytes_total')})", "{{kind}}"),
    ),
    graph(
        "Which clients write and read most?",
        "The ten largest at each time.",
        "binBps",
        Query(f"topk(10, sum by ({_BUCKET}) ({rate('bytes_total')}))", "{{kind}} {{user}} {{client_id}}"),
        width=16,
    ),
    graph(
        "How long do requests spend in the proxy?",
        "Time of a request and its response in the proxy, without waits for quotas.",
        "s",
        Query(f"histogram_quantile(0.99, {_LATENCY})", "99th percentile"),
        Query(f"histogram_quantile(0.5, {_LATENCY})", "median"),
    ),
    graph(
        "How full are the cores?",
        "Share of its core that each proxy used in five minutes. Above 90 % clients begin to wait.",
        "percentunit",
        Query(_CORE, "{{instance}}"),
        warn_at=0.9,
    ),
    graph(
        "How late is the event loop?",
        "99th percentile of five minutes. Clients wait as long.",
        "s",
        Query(_LATE, "{{instance}}"),
        warn_at=0.05,
    ),
    graph(
        "How many connections are open, and how many of them wait?",
        "A connection waits while the proxy does not read it because of a throttle time.",
        "short",
        Query(f"sum by (instance) ({own('connections')})", "{{instance}} open"),
        Query(f"sum by (instance) ({own('muted_connections')})", "{{instance}} waiting"),
    ),
    graph(
        "Why do connections end?",
        "Ends per second by cause. Causes that begin with upstream are the broker's.",
        "cps",
        Query(f"sum by (cause) ({rate('disconnects_total')}) > 0", "{{cause}}"),
    ),
    graph(
        "How much memory do proxies use?",
        "Resident memory.",
        "bytes",
        Query(selector("process_resident_memory_bytes"), "{{instance}}"),
    ),
    states(
        "What does not work?",
        "Sources of quotas, files and logs of each proxy. Red: the last attempt failed, or the connection is lost.",
        Query(
            f'min by (instance, check) (label_replace({_CHECKS}, "check", "$1", "__name__", "kafka_quota_proxy_(.*)"))',
            "{{instance}} {{check}}",
        ),
        {"0": ("failed", "red"), "1": ("works", "green")},
    ),
    rows(
        "Do proxies differ?",
        "Version and configuration file of each proxy. Files with the same hash are the same.",
        ["job", "instance", "version", "implementation", "hash"],
        Column("running for", f"{_VERSIONS} * on (job, instance) group_left () {_UPTIME}", "s"),
        height=8,
    ),
)
DASHBOARD: Final = dashboard(
    "kafka-quota-proxy-overview",
    "Kafka quota proxy: overview",
    "Are all proxies well, and which clients do they throttle?",
    BUILD,
    _PANELS,
)
