"""Tells the checks what the configuration file says, as plain numbers."""

from collections.abc import Mapping
from typing import Any, Final

from tests.simulation.checks.settings import Settings

_UNITS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}
_MIB: Final = 1 << 20


def _ms(text: str | None, default: float | None) -> float | None:
    if text is None:
        return default
    number = text.rstrip("msh")
    return float(number) * _UNITS[text[len(number) :]]


def _limited_ports(settings: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """Return the addresses of the listeners for clients, and which listener each belongs to."""
    found: dict[tuple[str, int], int] = {}
    for index, listener in enumerate(settings["listeners"]):
        if listener.get("inter_broker"):
            continue
        host, _, port = listener["bind"].partition(":")
        found[host, int(port)] = index
        first, _, last = listener.get("broker_ports", "").partition("-")
        if first:
            found |= {(host, number): index for number in range(int(first), int(last) + 1)}
    return found


def check_settings(settings: Mapping[str, Any], *, memory_divisor: int = 1) -> Settings:
    """Return the numbers of a configuration file. See ``Theme.memory_divisor``."""
    listener = settings["listeners"][0]
    limits = ("max_connections", "max_connections_per_ip", "max_connection_creation_rate")
    has_limits = any(key in listener for key in limits)
    has_limits = has_limits or any("connections" in rule or "ip" in rule for rule in settings["quotas"])
    queue = settings.get("fair_call_queue", {})
    max_in_flight = queue.get("max_in_flight")
    return Settings(
        shaping=settings.get("shaping", "sampled"),
        enforcement=settings.get("enforcement", "respond"),
        max_throttle_ms=_ms(settings.get("max_throttle_time"), 25_000.0),
        window_num=settings.get("kafka", {}).get("quota.window.num", 11),
        max_buckets=settings.get("max_buckets", 100_000),
        max_buffered=int(settings.get("max_buffered", "512MiB").removesuffix("MiB")) * _MIB // memory_divisor,
        idle_ms=_ms(listener.get("idle_timeout"), None),
        age_ms=_ms(listener.get("max_connection_age"), None),
        limits_connections=has_limits,
        limited_ports=_limited_ports(settings),
        max_connections=listener.get("max_connections"),
        max_connections_per_host=listener.get("max_connections_per_ip"),
        max_creation_rate=listener.get("max_connection_creation_rate"),
        has_proxy_header=bool(listener.get("proxy_protocol")),
        has_queue="fair_call_queue" in settings,
        max_in_flight=max_in_flight if isinstance(max_in_flight, int) else None,
        queue_capacity=queue.get("callqueue.capacity"),
        queues_users="identity-provider.impl" not in queue,
        hides_addresses="bootstrap_servers" in listener,
        administers_quotas=True,
        replication=settings.get("replication"),
    )
