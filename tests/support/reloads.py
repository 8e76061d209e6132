"""Stands in for ``proxy.server.config_reloader.Reloader`` in tests of health and metrics. It never reloads."""

from dataclasses import dataclass, field

from kafka_quota_proxy.proxy.server.config_reloader import LastRead


@dataclass
class Reloads:
    last_reload_successful: bool = True
    last_reload_timestamp_seconds: float = 1_767_225_600.5
    hash: str = "cf76ad98"
    last_read: LastRead = field(
        default_factory=lambda: LastRead(1_767_225_600.5, "config_loaded", "proxy.yaml was read at the start")
    )
