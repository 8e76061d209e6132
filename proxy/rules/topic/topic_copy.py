"""Keeps a local copy of a topic's rules. The proxy uses the copy if it cannot read the topic when it starts."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice, starmap
from pathlib import Path
from typing import Final

from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import RuleDatabase
from kafka_quota_proxy.proxy.runtime.in_thread import WorkerThread

log = logging.getLogger(__name__)

_AT_ONCE: Final = 10_000
_RETRY_S: Final = 5.0


class TopicCopy:
    """Copies the quota rules of a topic to a database on the local disk as they change. Use it on the event loop.

    Changes are written in the background, so no client waits for the disk. Changes that arrive during a write are
    written together in the next transaction.
    """

    def __init__(self, directory: str) -> None:
        self.failures = 0
        self._directory = directory
        self._database = RuleDatabase(Path(directory), is_copy=True)
        self._thread = WorkerThread("quota-store")
        self._waiting: dict[Entity, StoredRule | None] = {}
        self._has_changes = asyncio.Event()
        self._is_failing = False

    async def open(self) -> Mapping[Entity, StoredRule]:
        """Open the copy, and return the rules in it. Rules that cannot be read are left out, with a warning in the log.

        Raises:
            OSError: The directory cannot be used, or another process has locked it.
        """
        stored = await self._thread.run(self._database.open)
        if stored.damage is not None:
            log.warning(
                "%s; it was set aside; %d of its quotas could be read; while the topic cannot be read, the others do "
                "not apply",
                stored.damage, len(stored.rules),
            )  # fmt: skip
        if stored.not_understood:
            # The most likely reason is a time zone that this machine no longer has.
            log.warning(
                "%s: %d of the %d last known quotas can be read; while the topic cannot be read, the others do "
                "not apply. First: %s",
                self._directory, len(stored.rules), len(stored.rules) + len(stored.not_understood),
                stored.not_understood[0],
            )  # fmt: skip
        return stored.rules

    def put(self, changes: Iterable[Change]) -> None:
        """Queue changes that the proxy has applied. ``run`` then writes them to the disk."""
        self._waiting.update(changes)
        self._has_changes.set()

    async def run(self) -> None:
        """Write queued changes to the disk, until cancelled."""
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            try:
                await self._write()
            except OSError as error:
                self._fail(error)
                await asyncio.sleep(_RETRY_S)
                self._has_changes.set()

    async def close(self) -> None:
        """Write the changes that are still queued, then close the database."""
        with suppress(OSError):
            await self._write()
        await self._thread.run(self._database.close)
        self._thread.shutdown()

    async def _write(self) -> None:
        while self._waiting:
            some = dict(islice(self._waiting.items(), _AT_ONCE))
            await self._thread.run(self._database.write, list(starmap(Change, some.items())))
            for entity, rule in some.items():
                # A rule that has changed during the write is kept, and written the next time.
                if self._waiting[entity] is rule:
                    del self._waiting[entity]
            self._is_failing = False

    def _fail(self, error: OSError) -> None:
        self.failures += 1
        if not self._is_failing:
            self._is_failing = True
            log.warning(
                "%s cannot be written: %s; quotas apply, but if the topic cannot be read at the next start, older ones "
                "will",
                self._directory, error,
            )  # fmt: skip
