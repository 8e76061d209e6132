"""Defines the interface for reading quota rules from outside the configuration file (``quotas_from``)."""

import asyncio
from typing import Protocol

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.proxy.quota.rule_changes import QuotaChanges


class QuotaSource(Protocol):
    """Reads quota rules from a topic or from the brokers, keeps them up to date, and makes the proxy apply them.

    Attributes:
        name: The name of the topic, or ``broker``, for the log.
        has_read: Set once all rules have been read for the first time.
        may_serve: Set once the proxy may serve clients. This is when all rules have been read, or when reading fails
            for a reason that only the operator can remove.
        is_connected: Whether the last attempt to read succeeded.
        failures: The number of attempts to read that failed.
        using_rules: A lock for the rules. Nothing changes them while it is held, except for its holder.
    """

    name: str
    has_read: asyncio.Event
    may_serve: asyncio.Event
    is_connected: bool
    failures: int
    using_rules: asyncio.Lock

    def follow_file(self, config: ProxyConfig) -> QuotaChanges:
        """Apply the rules of a new version of the configuration file in place of the old ones.

        Return the rules that change, among them the source's rules that a removed rule of the file has hidden. This may
        be called in a thread, while the caller holds ``using_rules``. Call ``wake`` on the event loop afterwards.
        """

    def wake(self) -> None:
        """Begin to apply the rules of the file at the times that they contain."""

    def detail(self) -> dict[str, object]:
        """Return the state of reading the rules, as a part of the response to ``/readyz``."""

    def start(self) -> None:
        """Begin reading the rules."""

    async def run(self) -> None:
        """Keep the rules up to date until cancelled."""

    async def stop(self) -> None:
        """Stop reading the rules, and wait up to about a second until this has ended."""
