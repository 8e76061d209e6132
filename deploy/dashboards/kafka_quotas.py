"""The dashboard of the names of Kafka's JMX attributes, which exporters of brokers use too."""

from typing import Final

from deploy.dashboards.panels import (
    CLIENT,
    Query,
    dashboard,
    graph,
    selector,
)

_LEGEND: Final = "{{instance}} {{user}} {{client_id}}"


def _selector(name: str) -> str:
    """Return the selector of a metric that has the name of Kafka's JMX attribute."""
    return selector(f"kafka_server_{name}", *CLIENT)


_USED: Final = (
    ("Write rate", "produce_byte_rate", "produce_byte_quota_value", "Bps", "Bytes per second"),
    ("Read rate", "fetch_byte_rate", "fetch_byte_quota_value", "Bps", "Bytes per second"),
    ("Request time", "request_request_time", "request_request_quota_value", "percent", "Per cent of a thread"),
)
_WAITS: Final = (("writes", "produce"), ("reads", "fetch"), ("request time", "request"))
_PANELS: Final = (
    *(
        graph(title, f"{what}. The dashed line is the limit.", unit, Query(_selector(value), _LEGEND),
              Query(_selector(limit), f"{_LEGEND} limit", is_limit=True))
        for title, value, limit, unit, what in _USED
    ),
    *(
        graph(f"Throttle time for {what}", "Mean wait.", "ms", Query(_selector(f"{kind}_throttle_time"), _LEGEND))
        for what, kind in _WAITS
    ),
    graph(
        "Topic mutations",
        "Partitions that are created or deleted per second.",
        "short",
        Query(_selector("controllermutation_mutation_rate"), _LEGEND),
    ),
    graph(
        "Replication",
        "Bytes per second of throttled replicas.",
        "Bps",
        Query(selector("kafka_server_leaderreplication_byte_rate"), "{{instance}} {{broker}} sent as leader"),
        Query(selector("kafka_server_followerreplication_byte_rate"), "{{instance}} {{broker}} fetched"),
    ),
    graph(
        "New connections",
        "Accepted per second, by listener.",
        "cps",
        Query(
            selector("kafka_server_socket_server_metrics_connection_accept_rate"),
            "{{instance}} {{listener}}",
        ),
    ),
)  # fmt: skip
DASHBOARD: Final = dashboard(
    "kafka-quota-proxy-kafka-quotas",
    "Kafka quotas",
    "Quotas by the names of Kafka's JMX attributes, of proxies and of brokers whose exporter uses the same names.",
    "kafka_server_produce_byte_rate",
    _PANELS,
    by_client="kafka_server_produce_byte_rate",
)
