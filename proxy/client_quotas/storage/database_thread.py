"""A ``RuleDatabase`` for the loop: its calls run in a thread, one at a time."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.storage.rule_database import RuleDatabase, StoredRules

T = TypeVar("T")


class DatabaseThread:
    """See ``RuleDatabase`` for its arguments and errors. A call that is cancelled goes on in the thread."""

    def __init__(self, directory: str, *, is_copy: bool = False) -> None:
        self.database = RuleDatabase(Path(directory), is_copy=is_copy)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quota-store")

    async def open(self) -> StoredRules:
        """Open the database."""
        return await self._run(self.database.open)

    async def write(self, changes: Sequence[Change]) -> None:
        """Write changes at once."""
        await self._run(lambda: self.database.write(changes))

    async def close(self) -> None:
        """Close the database, and end the thread."""
        await self._run(self.database.close)
        self._thread.shutdown()

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
