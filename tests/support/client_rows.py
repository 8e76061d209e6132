"""Makes rows as the admin port lists clients."""

from typing import Any


def row(client_id: str | None = "etl", **changed: Any) -> dict[str, Any]:  # noqa: ANN401 - of any field
    """Return the row of a client that is held at its limit, with some fields changed."""
    return {
        "kind": "produce",
        "user": "ANONYMOUS",
        "client_id": client_id,
        "addresses": ["10.0.0.5", "10.0.0.6"],
        "connections": 3,
        "waits_for": {"throttle_time": 2},
        "listener": "clients",
        "broker": 1,
        "rate": 10_465_092.1,
        "limit": 10_485_760.0,
        "limit_written": "10MiB",
        "utilisation": 0.998,
        "rule": {"user": None, "client-id": "etl", "source": "/etc/kafka-quota-proxy/proxy.yaml:7"},
        "level": 7,
        "shaping": "paced",
        "enforcement": "respond",
        "throttled": True,
        "throttled_since": "2026-11-22T16:00:00.120Z",
        "throttled_for_ms": 81_200,
        "throttle_seconds_last_minute": 51.2,
    } | changed


def unlimited(client_id: str, **changed: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return the row of a client without a limit."""
    empty = ("limit", "limit_written", "utilisation", "rule", "level", "shaping", "enforcement", "throttled_since")
    calm = {"throttled": False, "throttled_for_ms": 0, "throttle_seconds_last_minute": 0.0}
    return row(client_id, **dict.fromkeys(empty), **calm) | changed


def page(*rows: dict[str, Any], total: int | None = None) -> dict[str, Any]:
    """Return an answer of the admin port with these rows."""
    return {"time": "2026-11-22T16:00:01.000Z", "clients": list(rows), "total": len(rows) if total is None else total}
