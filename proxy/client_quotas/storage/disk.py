"""A ``StoreDirectory`` on the loop: what blocks is done in threads, and snapshots when they are due."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.journal import Restored
from kafka_quota_proxy.proxy.client_quotas.storage.store_directory import StoreDirectory

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Disk:
    """The files of one directory. All of it belongs to the loop.

    Args:
        directory: Where.
        stored: The rules as of what has been appended, or later; they are read when a snapshot is begun.

    Attributes:
        store: The files.
    """

    def __init__(self, directory: str, stored: Mapping[Entity, StoredRule]) -> None:
        self._directory = directory
        self.store = StoreDirectory(Path(directory))
        self._stored = stored
        # One thread: all of the store but snapshots is for one.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quota-store")
        self._due: tuple[int, Mapping[Entity, StoredRule]] | None = None  # a snapshot that has been begun
        self._is_due = asyncio.Event()

    async def open(self, *, is_lenient: bool = False) -> Restored:
        """See ``StoreDirectory.open``."""
        return await self._off_loop(self.store.open, is_lenient=is_lenient)

    async def begin_anew(self) -> None:
        """See ``StoreDirectory.begin_anew``."""
        await self._off_loop(self.store.begin_anew)

    async def append(self, changes: Sequence[Change]) -> None:
        """See ``StoreDirectory.append``."""
        await self._off_loop(self.store.append, changes)

    async def begin_snapshot_if_due(self) -> None:
        """Have ``run`` write a snapshot where the journal is long. ``stored`` has all that was appended."""
        if not self.store.is_snapshot_due or self._due is not None:
            return
        try:
            number = await self._off_loop(self.store.begin_snapshot)
        except OSError as error:
            log.warning("%s: no snapshot could be begun: %s", self._directory, error)
            return
        self._due = number, dict(self._stored)
        self._is_due.set()

    async def run(self) -> None:
        """Write snapshots when they are due, until cancelled."""
        while True:
            await self._is_due.wait()
            if self._due is not None:
                await self._write_snapshot(*self._due)
            self._due = None
            self._is_due.clear()

    async def close(self) -> None:
        """Let go of the directory."""
        await self._off_loop(self.store.close)
        self._thread.shutdown()

    async def _write_snapshot(self, number: int, rules: Mapping[Entity, StoredRule]) -> None:
        try:
            await asyncio.to_thread(self.store.write_snapshot, number, rules)
        except OSError as error:
            log.warning("%s: a snapshot could not be written: %s", self._directory, error)
        except Exception as error:  # noqa: BLE001 - the journal has it all
            report(error, "%s: a snapshot could not be written", self._directory)

    async def _off_loop(self, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *arguments, **more))
