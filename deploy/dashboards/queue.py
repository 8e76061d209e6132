"""The dashboard of the fair call queue."""

from typing import Final

from deploy.dashboards.panels import (
    Column,
    Query,
    dashboard,
    graph,
    own,
    rate,
    rows,
)


def _own(name: str, *labels: str) -> str:
    """Return the selector of a metric of the queue."""
    return own(f"call_queue_{name}", *labels)


def _rate(name: str, by: str = "level") -> str:
    """Return the rate of a counter of the queue."""
    return f"sum by ({by}) ({rate(f'call_queue_{name}')})"


_SLOTS: Final = "broker, pool"
_LIMIT: Final = _own("max_in_flight", 'pool="requests"')
_PANELS: Final = (
    graph(
        "How many requests wait?",
        "Only the lowest level: greedy users wait, as intended. Level 0 too: the broker is overloaded.",
        "short",
        Query(f"sum by (level) ({_own('size')})", "level {{level}}"),
    ),
    graph(
        "How long do requests wait?",
        "Mean wait in the queue.",
        "s",
        Query(f"{_rate('wait_seconds_total')} / ({_rate('requests_total')} > 0)", "level {{level}}"),
    ),
    graph(
        "How long does the broker take?",
        "Mean time at the broker. It grows if max_in_flight is too large.",
        "s",
        Query(f"{_rate('broker_seconds_total')} / ({_rate('requests_total')} > 0)", "level {{level}}"),
    ),
    graph(
        "Are the broker's slots full?",
        "Requests that the broker works on. The dashed line is max_in_flight.",
        "short",
        Query(f"sum by ({_SLOTS}) ({_own('in_flight')})", "{{broker}} {{pool}}"),
        Query(f"max by ({_SLOTS}) ({_LIMIT})", "{{broker}} limit", True),
    ),
    graph(
        "Which levels are served?",
        "Answered requests per second.",
        "reqps",
        Query(_rate("requests_total"), "level {{level}}"),
    ),
    graph(
        "Are requests refused, or is the queue full?",
        "Refused requests per second, with backoff.enable, and requests that found their level full.",
        "reqps",
        Query(_rate("refused_total", "level, api"), "refused: level {{level}} {{api}}"),
        Query(_rate("overflows_total"), "full: level {{level}}"),
    ),
    rows(
        "Which users cost most?",
        "Their share of the cost of all users decides their level. Level 0 is served first.",
        ["listener", "user"],
        Column("share", f"max by (listener, user) ({_own('top_user_share')})", "percentunit"),
        Column("level", f"max by (listener, user) ({_own('top_user_level')})"),
        height=8,
    ),
    graph(
        "Which polls leave the queue?",
        "Fetches and group requests that wait for data return their slot, or pass by the queue.",
        "reqps",
        Query(_rate("parked_total", "api"), "{{api}} returned its slot"),
        Query(_rate("passed_by_total", "api"), "{{api}} passed by"),
        width=12,
    ),
)
DASHBOARD: Final = dashboard(
    "kafka-quota-proxy-queue",
    "Kafka quota proxy: fair call queue",
    "Who waits in front of the broker, and for how long?",
    "kafka_quota_proxy_call_queue_identities",
    _PANELS,
)
