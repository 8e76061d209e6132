"""Stores quotas in a local directory that no other proxy uses. Each change is on the disk before it is applied."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time

from kafka_quota_proxy.proxy.background.in_thread import WorkerThread
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import KAFKA_STORAGE_ERROR
from kafka_quota_proxy.proxy.client_quotas.storage.rule_database import RuleDatabase, UncertainWriteError
from kafka_quota_proxy.proxy.client_quotas.storage.store import ApplyChanges, NotKeptError

log = logging.getLogger(__name__)


class DirectoryStore:
    """Stores the quotas that clients set in a local directory of this proxy (a ``QuotaStore``).

    Args:
        apply: Called with changes that have been stored. Makes the proxy apply them.
        stored: A view of all stored rules. ``apply`` keeps them up to date.

    Attributes:
        failures: The number of writes that failed.
        last_failure_s: The Unix time of the last write that failed, or None if none has failed.
        is_writable: Whether the last write succeeded.
    """

    def __init__(self, directory: str, apply: ApplyChanges, stored: Mapping[Entity, StoredRule]) -> None:
        self.name = directory
        self.sources: Mapping[Entity, str] = {}
        self.failures = 0
        self.last_failure_s: float | None = None
        self.is_writable = True
        self.database = RuleDatabase(Path(directory))
        self._thread = WorkerThread("quota-store")
        self._stored = stored
        self._apply = apply

    async def open(self) -> None:
        """Lock and read the directory, and apply the stored rules. ``QuotaStore.open`` lists the errors."""
        read = await self._thread.run(self.database.open)
        await self._apply([Change(entity, rule) for entity, rule in read.rules.items()])
        log.info("%d entities have quotas in %s", len(read.rules), self.name)

    async def run(self) -> None:
        """Do nothing. This store has no background work."""

    async def catch_up(self) -> None:
        """Do nothing, because no other process changes this store."""

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Write changes to the database, then apply them. Raises ``NotKeptError``, as ``QuotaStore.keep`` describes."""
        try:
            await self._thread.run(self.database.write, changes)
        except OSError as error:
            self.is_writable = False
            self.failures += 1
            self.last_failure_s = time()
            log.warning("changed no quota: %s cannot be written: %s", self.name, error)
            message = f"The quotas cannot be kept: {error.strerror or error}"
            may_hold = isinstance(error, UncertainWriteError)
            if may_hold:
                message += "; after a restart the change may apply nevertheless"
            raise NotKeptError(KAFKA_STORAGE_ERROR, message, may_hold=may_hold) from error
        self.is_writable = True
        await self._apply(changes)

    async def close(self) -> None:
        """Close the database, and stop the thread that writes to it."""
        await self._thread.run(self.database.close)
        self._thread.shutdown()

    def detail(self) -> dict[str, object]:
        """Return the state of this store of quotas, as a part of the response to ``/readyz``."""
        return {
            "directory": self.name,
            "entities": len(self._stored),
            "writable": self.is_writable,
            "damaged_files": self.database.damaged_files,
        }
