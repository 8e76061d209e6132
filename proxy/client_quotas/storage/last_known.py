"""What a topic had when it was last read, on a disk of this proxy's own: for when the topic is away at the start."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from kafka_quota_proxy.proxy.background.isolation import kept_up
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.disk import Disk
from kafka_quota_proxy.proxy.client_quotas.storage.journal import ForeignStoreError

log = logging.getLogger(__name__)

_AT_ONCE: Final = 10_000
# How long until a disk that failed is tried again.
_AGAIN_S: Final = 5.0


class TopicCopy:
    """Follows the topic, by what the disk takes: nobody waits for it. All of it belongs to the loop.

    What comes while it writes is one line, and one fsync.

    Args:
        directory: Where.
        stored: The rules in force.

    Attributes:
        failures: How often the disk took nothing.
    """

    def __init__(self, directory: str, stored: Mapping[Entity, StoredRule]) -> None:
        self.failures = 0
        self._directory = directory
        self._disk = Disk(directory, stored)
        self._waiting: dict[Entity, StoredRule | None] = {}
        self._has_come = asyncio.Event()
        self._is_failing = False

    async def open(self) -> Mapping[Entity, StoredRule]:
        """Return what was known last, as far as it is understood: the topic has all of it.

        Raises:
            OSError: The directory cannot be used, or another process does.
        """
        try:
            restored = await self._disk.open(is_lenient=True)
        except ForeignStoreError as error:
            # Of another version, whose lines may mean anything.
            log.warning(
                "%s: what was known last cannot be read: %s; it is set aside, and were the topic away now, no quota "
                "that was set would hold until it is back",
                self._directory, error,
            )  # fmt: skip
            await self._disk.begin_anew()
            return {}
        if restored.not_understood or restored.lost:
            # Of a time zone that is no longer there, above all. Of a damaged journal nobody knows how many it had.
            amiss = (*restored.not_understood, *restored.faults)
            log.warning(
                "%s: of what was known last of %d entities %d can be read; were the topic away now, no quota of the "
                "others would hold until it is back. First: %s",
                self._directory, restored.lost + len(restored.rules), len(restored.rules), amiss[0],
            )  # fmt: skip
        return restored.rules

    def put(self, changes: Iterable[Change]) -> None:
        """Take what is in force from now on."""
        self._waiting.update(changes)
        self._has_come.set()

    async def run(self) -> None:
        """Write it down, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kept_up(self._disk.run))
            while True:
                await self._has_come.wait()
                self._has_come.clear()
                try:
                    await self._write()
                except OSError as error:
                    self._fail(error)
                    await asyncio.sleep(_AGAIN_S)
                    self._has_come.set()

    async def close(self) -> None:
        """Write down what has not been, and let go of the directory."""
        with suppress(OSError):
            await self._write()
        await self._disk.close()

    async def _write(self) -> None:
        while self._waiting:
            some = dict(islice(self._waiting.items(), _AT_ONCE))
            await self._disk.append([Change(entity, rule) for entity, rule in some.items()])
            for entity, rule in some.items():
                # What has changed meanwhile waits for the next turn.
                if self._waiting[entity] is rule:
                    del self._waiting[entity]
            self._is_failing = False
            await self._disk.begin_snapshot_if_due()

    def _fail(self, error: OSError) -> None:
        self.failures += 1
        if not self._is_failing:
            self._is_failing = True
            log.warning(
                "%s cannot be written: %s; quotas hold, but were the topic away at the next start, older ones would",
                self._directory, error,
            )  # fmt: skip
