"""The interface of a place outside the file that rules are read from (``quotas_from``)."""

import asyncio
from typing import Protocol

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.proxy.quota.rule_changes import QuotaChanges


class QuotaSource(Protocol):
    """A place that rules are read from. It reports changed rules as they come.

    Attributes:
        name: Its name, for the log.
        has_read: Set once all its rules have been read.
        may_serve: Set once clients need not wait for that: the rules have been read, or cannot be.
        is_connected: Whether the last reading worked.
        failures: The number of readings that failed.
    """

    name: str
    has_read: asyncio.Event
    may_serve: asyncio.Event
    is_connected: bool
    failures: int

    def follow_file(self, config: ProxyConfig) -> QuotaChanges | None:
        """Use the rules of a new file; return the changes. None: any rule may have changed."""

    def detail(self) -> dict[str, object]:
        """Return its part of ``/readyz``."""

    def start(self) -> None:
        """Begin to read."""

    async def run(self) -> None:
        """Keep its rules up to date until cancelled."""

    async def stop(self) -> None:
        """Stop reading, within a moment."""
