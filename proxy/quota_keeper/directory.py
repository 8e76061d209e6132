"""Quotas on a disk of this proxy's own: written there, and then in force."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import time
from typing import ParamSpec, TypeVar

from proxy.quota_keeper.keeper import Hold, NotKeptError
from proxy.quota_store.alter import Change
from proxy.quota_store.directory import StoreDirectory
from proxy.quota_store.entity import Entity, StoredRule
from proxy.quota_store.errors import KAFKA_STORAGE_ERROR

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class DirectoryKeeper:
    """See ``Keeper``.

    Args:
        directory: Where.
        hold: See ``Hold``.
        stored: The rules that are kept, as ``hold`` makes them.

    Attributes:
        store: Its files.
        changes: How many entities had their quotas changed here.
        failures: How often what was decided could not be written.
        last_failure_s: When that was last so, Unix time; None: never.
        is_writable: Whether what was written last could be.
    """

    def __init__(self, directory: str, hold: Hold, stored: Mapping[Entity, StoredRule]) -> None:
        self.name = directory
        self.store = StoreDirectory(Path(directory))
        self.changes = 0
        self.failures = 0
        self.last_failure_s: float | None = None
        self.is_writable = True
        self._hold = hold
        self._stored = stored
        # One thread: all of the store but snapshots is for one.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quota-store")
        self._due: tuple[int, Mapping[Entity, StoredRule]] | None = None  # a snapshot that has been begun
        self._is_due = asyncio.Event()

    async def open(self) -> None:
        """See ``Keeper``."""
        restored = await self._off_loop(self.store.open)
        await self._hold([Change(entity, rule) for entity, rule in restored.rules.items()])
        log.info("%d entities have quotas in %s", len(restored.rules), self.name)

    async def run(self) -> None:
        """Write snapshots when they are due."""
        while True:
            await self._is_due.wait()
            if self._due is not None:
                await self._write_snapshot(*self._due)
            self._due = None
            self._is_due.clear()

    async def keep(self, changes: Sequence[Change]) -> None:
        """See ``Keeper``."""
        try:
            await self._off_loop(self.store.append, changes)
        except OSError as error:
            self.is_writable = False
            self.failures += 1
            self.last_failure_s = time()
            log.warning("no quota was changed: %s cannot be written: %s", self.name, error)
            told = f"The quotas cannot be kept: {error.strerror or error}"
            raise NotKeptError(KAFKA_STORAGE_ERROR, told) from error
        self.is_writable = True
        self.changes += len(changes)
        await self._hold(changes)
        if self.store.is_snapshot_due and self._due is None:
            await self._begin_snapshot()

    async def close(self) -> None:
        """See ``Keeper``."""
        await self._off_loop(self.store.close)
        self._thread.shutdown()

    def detail(self) -> dict[str, object]:
        """See ``Keeper``."""
        return {
            "directory": self.name,
            "entities": len(self._stored),
            "writable": self.is_writable,
            "damaged_files": self.store.damaged_files,
        }

    async def _begin_snapshot(self) -> None:
        try:
            number = await self._off_loop(self.store.begin_snapshot)
        except OSError as error:
            log.warning("%s: no snapshot could be begun: %s", self.name, error)
            return
        self._due = number, dict(self._stored)
        self._is_due.set()

    async def _write_snapshot(self, number: int, rules: Mapping[Entity, StoredRule]) -> None:
        try:
            await asyncio.to_thread(self.store.write_snapshot, number, rules)
        except OSError as error:
            log.warning("%s: a snapshot could not be written: %s", self.name, error)
        except Exception:
            log.exception("%s: a snapshot could not be written", self.name)

    async def _off_loop(self, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *arguments, **more))
