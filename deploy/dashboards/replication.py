"""The dashboard of throttled replication."""

from typing import Final

from deploy.dashboards.panels import (
    Query,
    dashboard,
    graph,
    number,
    own,
)

_LAG: Final = own("sum_replica_lag")
_PANELS: Final = (
    number(
        "Behind by",
        "Offsets that throttled replicas still lack.",
        f"sum({_LAG}) or vector(0)",
        width=6,
    ),
    number(
        "Time left at this pace",
        "Until throttled replicas have caught up. Empty if they do not come nearer.",
        f"sum({_LAG}) / (-deriv((sum({_LAG}) > 0)[2m:10s]) > 0)",
        unit="s",
        width=6,
    ),
    number(
        "Is a throttle forgotten?",
        "Yes: the cluster throttles replication although nothing is being reassigned. Then run"
        " kafka-reassign-partitions.sh --verify.",
        f"max({own('replication_throttle_orphaned')})",
        alarm_at=1,
        words={"0": "no", "1": "yes"},
        width=6,
    ),
    number(
        "Last answer of the cluster",
        "Time since the cluster last told each proxy its topics and throttles; the longest.",
        f"time() - min({own('cluster_poll_timestamp_seconds')} > 0)",
        unit="s",
        warn_at=30,
        alarm_at=300,
        width=6,
    ),
    *(
        graph(
            title,
            "Rate of throttled replicas. The dashed line is the limit. A rate far below it, while replicas lag,"
            " has another cause than the throttle.",
            "binBps",
            Query(f"sum by (broker) ({own(f'{role}_replication_throttled_rate')})", "broker {{broker}}"),
            Query(f"max by (broker) ({own(f'{role}_replication_throttled_limit')})", "broker {{broker}} limit", True),
            width=12,
        )
        for title, role in (
            ("How fast do leaders send?", "leader"),
            ("How fast do followers fetch?", "follower"),
        )
    ),
    graph(
        "How far are followers behind?",
        "Offsets that the throttled replicas of each follower lack. It must fall.",
        "short",
        Query(f"sum by (broker) ({_LAG})", "broker {{broker}}"),
        width=12,
    ),
    graph(
        "What is written to moving partitions?",
        "The ten largest. If their sum nears the limit, replicas never catch up.",
        "binBps",
        Query(
            f"topk(10, max by (topic, partition) ({own('partition_bytes_in_rate')}) > 0)",
            "{{topic}} {{partition}}",
        ),
        width=12,
    ),
)
DASHBOARD: Final = dashboard(
    "kafka-quota-proxy-replication",
    "Kafka quota proxy: replication",
    "How fast do throttled replicas catch up, and when will they be done?",
    "kafka_quota_proxy_cluster_poll_successful",
    _PANELS,
)
