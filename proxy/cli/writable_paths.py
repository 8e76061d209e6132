"""Checks whether the proxy can write to the audit log and the usage log named in its configuration file."""

from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.proxy.runtime.disk_access import directory_fault, file_fault

AUDIT_LOG: Final = ("store", "audit_log")
USAGE_LOG: Final = ("usage_log", "directory")


def audit_log_fault(config: ProxyConfig) -> str | None:
    """Return why the audit log cannot be opened, or None if it can. Without its audit log the proxy does not start."""
    path = config.store.audit_log if config.store else None
    return file_fault(Path(path)) if path else None


def usage_log_fault(config: ProxyConfig) -> str | None:
    """Return why the usage log cannot be written, or None if it can.

    The proxy starts even if the usage log cannot be written, and tries again later.
    """
    files = config.usage_log.files if config.usage_log else None
    return directory_fault(Path(files.directory)) if files else None
