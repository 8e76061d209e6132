"""What health and metrics ask of ``proxy.server.config_reloader.Reloader``, of a file that is never reloaded."""

from dataclasses import dataclass


@dataclass
class Reloads:
    last_reload_successful: bool = True
    last_reload_timestamp_seconds: float = 1_767_225_600.5
    hash: str = "cf76ad98"
