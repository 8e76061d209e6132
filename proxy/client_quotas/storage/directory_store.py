"""Quotas on a disk of this proxy's own: written there, and then in force."""

import logging
from collections.abc import Mapping, Sequence
from time import time

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import KAFKA_STORAGE_ERROR
from kafka_quota_proxy.proxy.client_quotas.storage.disk import Disk
from kafka_quota_proxy.proxy.client_quotas.storage.store import Hold, NotKeptError
from kafka_quota_proxy.proxy.client_quotas.storage.store_directory import NotTakenBackError

log = logging.getLogger(__name__)


class DirectoryStore:
    """See ``QuotaStore``.

    Args:
        directory: Where.
        hold: See ``Hold``.
        stored: The rules that are kept, as ``hold`` makes them.

    Attributes:
        files: The files.
        failures: How often what was decided could not be written.
        last_failure_s: When that was last so, Unix time; None: never.
        is_writable: Whether what was written last could be.
    """

    def __init__(self, directory: str, hold: Hold, stored: Mapping[Entity, StoredRule]) -> None:
        self.name = directory
        self.sources: Mapping[Entity, str] = {}
        self.failures = 0
        self.last_failure_s: float | None = None
        self.is_writable = True
        self._disk = Disk(directory, stored)
        self.files = self._disk.store
        self._stored = stored
        self._hold = hold

    async def open(self) -> None:
        """See ``QuotaStore``."""
        restored = await self._disk.open()
        await self._hold([Change(entity, rule) for entity, rule in restored.rules.items()])
        log.info("%d entities have quotas in %s", len(restored.rules), self.name)

    async def run(self) -> None:
        """Write snapshots when they are due."""
        await self._disk.run()

    async def catch_up(self) -> None:
        """See ``QuotaStore``. Nobody else keeps anything here."""

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """See ``QuotaStore``."""
        try:
            await self._disk.append(changes)
        except OSError as error:
            self.is_writable = False
            self.failures += 1
            self.last_failure_s = time()
            log.warning("no quota was changed: %s cannot be written: %s", self.name, error)
            told = f"The quotas cannot be kept: {error.strerror or error}"
            may_hold = isinstance(error, NotTakenBackError)
            if may_hold:
                told += "; after a restart the change may be in force all the same"
            raise NotKeptError(KAFKA_STORAGE_ERROR, told, may_hold=may_hold) from error
        self.is_writable = True
        await self._hold(changes)
        await self._disk.begin_snapshot_if_due()

    async def close(self) -> None:
        """See ``QuotaStore``."""
        await self._disk.close()

    def detail(self) -> dict[str, object]:
        """See ``QuotaStore``."""
        return {
            "directory": self.name,
            "entities": len(self._stored),
            "writable": self.is_writable,
            "damaged_files": self.files.damaged_files,
        }
