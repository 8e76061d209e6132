"""Stores quotas in a local directory that no other proxy uses. Each change is on the disk before it is applied.

A disk that hangs may hold a write up for any time. A client waits only some seconds for the outcome. Until the write
has ended, further changes are refused. If it succeeds in the end, its change applies then.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kafka_quota_proxy.proxy.rules.errors import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.source import ApplyChanges, NotKeptError
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import RuleDatabase, UncertainWriteError
from kafka_quota_proxy.proxy.runtime.isolation import report

log = logging.getLogger(__name__)

# How long a client waits for its change to be written. It is shorter than the 30 s after which Kafka's tools give up.
_WRITE_S: Final = 10.0


class DirectoryStore:
    """A ``RuleSource`` in a local directory of this proxy, which administrators can change.

    Attributes:
        entities: The number of entities that have quotas.
        failures: The number of writes that failed.
        is_connected: Whether the last write succeeded.
    """

    def __init__(self, directory: str) -> None:
        self.name = directory
        self.writer = self
        self.places: Mapping[Entity, str] = {}
        self.may_serve = asyncio.Event()
        self.has_read = False
        self.is_connected = True
        self.entities = self.failures = 0
        self.database = RuleDatabase(Path(directory))
        self._thread = ThreadPoolExecutor(1, "quota-store")
        self._apply: ApplyChanges
        self._late: asyncio.Task[None] | None = None  # a write for whose outcome its client no longer waits
        self._is_uncertain = False  # whether a failed write may still appear in the database after a restart

    async def start(self, apply: ApplyChanges) -> None:
        """Lock and read the directory, and apply the stored rules. ``RuleSource.start`` lists the errors."""
        self._apply = apply
        rules = await asyncio.get_running_loop().run_in_executor(self._thread, self.database.open)
        self.entities = len(rules)
        await apply([Change(entity, rule) for entity, rule in rules.items()])
        self.has_read = True
        self.may_serve.set()
        log.info("%d entities have quotas in %s", len(rules), self.name)

    async def changes(self) -> None:
        """Do nothing. No other program changes the directory."""

    async def catch_up(self) -> None:
        """Make sure that no earlier change can appear later. No other process changes this store.

        A request that changes nothing is acknowledged without a write. If an earlier write has failed, its change may
        still appear after a restart, and undo what was acknowledged. So the database is written to first.

        Raises:
            NotKeptError: An earlier write has not ended, or the disk fails.
        """
        if self._late is not None:
            message = f"No quota was changed: an earlier change is still being written to {self.name}; try again"
            raise NotKeptError(KAFKA_STORAGE_ERROR, message)
        if self._is_uncertain:
            try:
                await self.keep((), {})
            except NotKeptError as error:
                why = f"an earlier change may be in {self.name} or not, and the disk fails"
                raise NotKeptError(KAFKA_STORAGE_ERROR, f"No quota was changed: {why}; try again") from error

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Write changes to the database, then apply them. Raises ``NotKeptError``, as ``RuleWriter.keep`` describes."""
        writing = asyncio.get_running_loop().create_task(self._write(changes, before))
        ended: set[asyncio.Task[None]] = set()
        try:
            ended, _ = await asyncio.wait({writing}, timeout=_WRITE_S)
        finally:  # after a time-out or a cancellation, the thread still writes
            if not ended:
                self._late = writing
                writing.add_done_callback(self._end_late)
        if not ended:
            message = f"The outcome is unknown: the change is not written to {self.name} yet, and may apply later"
            raise self._failed(REQUEST_TIMED_OUT, message, may_hold=True)
        writing.result()

    async def _write(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self.database.write, changes)
        except OSError as error:
            message = f"The quotas cannot be kept: {error.strerror or error}"
            may_hold = isinstance(error, UncertainWriteError)
            self._is_uncertain |= may_hold
            if may_hold:
                message += "; after a restart the change may apply nevertheless"
            raise self._failed(KAFKA_STORAGE_ERROR, message, may_hold=may_hold) from error
        self.is_connected = True
        self._is_uncertain = False
        if changes:
            for entity, rule in changes:
                self.entities += (rule is not None) - (entity in before)
            await self._apply(changes)

    def _failed(self, error_code: int, message: str, *, may_hold: bool = False) -> NotKeptError:
        self.is_connected = False
        self.failures += 1
        log.warning("changed no quota in %s: %s", self.name, message)
        return NotKeptError(error_code, message, may_hold=may_hold)

    def _end_late(self, writing: asyncio.Task[None]) -> None:
        self._late = None
        error = None if writing.cancelled() else writing.exception()
        if error is None:
            log.info("the change that was written late to %s applies now", self.name)
        elif not isinstance(error, NotKeptError):
            report(error, "quotas in %s could not be applied, but are stored", self.name)

    async def stop(self) -> None:
        """Close the database, and stop the thread that writes to it."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.database.close)
        self._thread.shutdown()

    def status(self) -> dict[str, object]:
        """Return the state of this store of quotas, as a part of the response to ``/readyz``."""
        return {
            "directory": self.name,
            "entities": self.entities,
            "writable": self.is_connected,
            "damaged_files": self.database.damaged_files,
        }
