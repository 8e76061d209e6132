"""The dashboard of one client."""

from typing import Final

from deploy.dashboards.panels import (
    BUILD,
    CLIENT,
    CLIENT_UID,
    Query,
    dashboard,
    graph,
    highest_rate,
    number,
    rate,
    selector,
)


def _rate(name: str, *labels: str, by: str = "kind, user, client_id") -> str:
    """Return the rate of a counter of the selected client."""
    return f"sum by ({by}) ({rate(name, *CLIENT, *labels)})"


def _limit(kind: str) -> str:
    """Return the limit of the selected client at each proxy."""
    return f"sum by (instance, user, client_id) ({selector(f'kafka_server_{kind}_byte_quota_value', *CLIENT)})"


_WRITES: Final = 'kind="produce"'
_READS: Final = 'kind="fetch"'
_TRANSFERRED: Final = ("Bytes per second. The dashed line is the limit, which holds at each proxy.", "binBps")
_BY_PROXY: Final = "instance, user, client_id"
_BY_KIND: Final = "instance, kind, user, client_id"
_LEGEND_BY_PROXY: Final = "{{instance}} {{kind}} {{user}} {{client_id}}"
_LEGEND: Final = "{{kind}} {{user}} {{client_id}}"
_PANELS: Final = (
    number(
        "Time throttled",
        "Share of the time in which it waited, for the proxy and the kind of quota that throttled it most.",
        f"max({highest_rate('throttle_seconds_total', *CLIENT)})",
        unit="percentunit",
        warn_at=0.1,
        alarm_at=0.5,
        width=6,
    ),
    number(
        "Limit used",
        "For the proxy and the kind of quota of which it used most.",
        f"max({highest_rate('quota_used_seconds_total', *CLIENT)})",
        unit="percentunit",
        warn_at=0.8,
        alarm_at=0.9,
        width=6,
    ),
    number("Writes", "Bytes per second.", f"sum({_rate('bytes_total', _WRITES)}) or vector(0)", unit="binBps", width=6),
    number("Reads", "Bytes per second.", f"sum({_rate('bytes_total', _READS)}) or vector(0)", unit="binBps", width=6),
    graph(
        "How fast does it write?",
        *_TRANSFERRED,
        Query(_rate("bytes_total", _WRITES, by=_BY_PROXY), "{{instance}} {{user}} {{client_id}}"),
        Query(_limit("produce"), "{{instance}} {{user}} {{client_id}} limit", is_limit=True),
        width=12,
    ),
    graph(
        "How fast does it read?",
        *_TRANSFERRED,
        Query(_rate("bytes_total", _READS, by=_BY_PROXY), "{{instance}} {{user}} {{client_id}}"),
        Query(_limit("fetch"), "{{instance}} {{user}} {{client_id}} limit", is_limit=True),
        width=12,
    ),
    graph(
        "How much of its limits does it use?",
        "By proxy and kind of quota. It is throttled when it stays at 100 %.",
        "percentunit",
        Query(_rate("quota_used_seconds_total", by=_BY_KIND), _LEGEND_BY_PROXY),
        width=12,
        warn_at=0.9,
    ),
    graph(
        "How long does it wait?",
        "Share of the time in which it waited. Waits of several connections at the same time count once.",
        "percentunit",
        Query(_rate("throttle_seconds_total", by=_BY_KIND), _LEGEND_BY_PROXY),
        width=12,
    ),
    graph(
        "How many of its requests are answered with a wait?",
        "Share of its requests.",
        "percentunit",
        Query(f"{_rate('throttled_requests_total')} / {_rate('requests_total')}", _LEGEND),
    ),
    graph(
        "Does it send large requests?",
        "Mean bytes of a request. A client with many small ones does not batch.",
        "bytes",
        Query(f"{_rate('bytes_total')} / ({_rate('requests_total')} > 0)", _LEGEND),
    ),
    graph(
        "Would enforcement throttle it?",
        "Only for rules with enforcement: observe. Share of the time in which it would have waited.",
        "percentunit",
        Query(_rate("observed_throttle_seconds_total", by=_BY_KIND), _LEGEND_BY_PROXY),
    ),
)
DASHBOARD: Final = dashboard(
    CLIENT_UID,
    "Kafka quota proxy: one client",
    "Is this client throttled, by which kind of quota, and how does it use its limits?",
    BUILD,
    _PANELS,
    by_client="kafka_quota_proxy_requests_total",
)
