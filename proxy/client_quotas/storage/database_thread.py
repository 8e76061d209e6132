"""A ``RuleDatabase`` for the loop: its calls run in a thread, one at a time."""

from collections.abc import Sequence
from pathlib import Path

from kafka_quota_proxy.proxy.background.in_thread import WorkerThread
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.storage.rule_database import RuleDatabase, StoredRules


class DatabaseThread:
    """See ``RuleDatabase`` for its arguments and errors."""

    def __init__(self, directory: str, *, is_copy: bool = False) -> None:
        self.database = RuleDatabase(Path(directory), is_copy=is_copy)
        self._thread = WorkerThread("quota-store")

    async def open(self) -> StoredRules:
        """Open the database."""
        return await self._thread.run(self.database.open)

    async def write(self, changes: Sequence[Change]) -> None:
        """Write changes at once."""
        await self._thread.run(self.database.write, changes)

    async def close(self) -> None:
        """Close the database, and end the thread."""
        await self._thread.run(self.database.close)
        self._thread.shutdown()
