"""The quotas of one proxy, in a directory of its own: a change is written, and then applied."""

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
    """See ``QuotaStore``. ``stored`` has the rules that ``apply`` has applied.

    Attributes:
        failures: How many changes could not be written.
        last_failure_s: The Unix time of the last of these; None: there was none.
        is_writable: Whether the last change could be written.
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
        """See ``QuotaStore``."""
        read = await self._thread.run(self.database.open)
        await self._apply([Change(entity, rule) for entity, rule in read.rules.items()])
        log.info("%d entities have quotas in %s", len(read.rules), self.name)

    async def run(self) -> None:
        """See ``QuotaStore``."""

    async def catch_up(self) -> None:
        """See ``QuotaStore``: no other process changes this store."""

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """See ``QuotaStore``."""
        try:
            await self._thread.run(self.database.write, changes)
        except OSError as error:
            self.is_writable = False
            self.failures += 1
            self.last_failure_s = time()
            log.warning("no quota was changed: %s cannot be written: %s", self.name, error)
            message = f"The quotas cannot be kept: {error.strerror or error}"
            may_hold = isinstance(error, UncertainWriteError)
            if may_hold:
                message += "; after a restart the change may be in force all the same"
            raise NotKeptError(KAFKA_STORAGE_ERROR, message, may_hold=may_hold) from error
        self.is_writable = True
        await self._apply(changes)

    async def close(self) -> None:
        """See ``QuotaStore``."""
        await self._thread.run(self.database.close)
        self._thread.shutdown()

    def detail(self) -> dict[str, object]:
        """See ``QuotaStore``."""
        return {
            "directory": self.name,
            "entities": len(self._stored),
            "writable": self.is_writable,
            "damaged_files": self.database.damaged_files,
        }
