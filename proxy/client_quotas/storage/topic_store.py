"""Stores quotas in a topic that several proxies share. Each proxy applies the records in the order of their offsets.

Before the quota manager decides on a change, this proxy applies all records that are in the topic. The proxy then
writes the change as one batch. The client receives its answer once the proxy has read the batch back and applied it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from kafka_quota_proxy.config.quota_record import encode
from kafka_quota_proxy.proxy.background.isolation import kept_up, report
from kafka_quota_proxy.proxy.client_quotas.formats.format_rule import log_words
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import KAFKA_STORAGE_ERROR, POLICY_VIOLATION, REQUEST_TIMED_OUT
from kafka_quota_proxy.proxy.client_quotas.storage.store import (
    ApplyChanges,
    NotKeptError,
    NotWrittenError,
    Record,
    TopicWriter,
)
from kafka_quota_proxy.proxy.client_quotas.storage.topic_copy import TopicCopy
from kafka_quota_proxy.proxy.client_quotas.storage.topic_store_state import StoreTopicState, settings_of
from kafka_quota_proxy.proxy.client_quotas.topic.reader_events import (
    EndReached,
    ReaderEvent,
    ReadFailed,
    ReadingBegan,
    RecordsRead,
)
from kafka_quota_proxy.proxy.client_quotas.topic.reader_thread import EventHandler, ReaderBridge, ReaderThread

log = logging.getLogger(__name__)

# How long the proxy waits at its start for the topic to be read, before it serves clients with the copy.
_START_S: Final = 15.0
# How long it may take until the reader of this proxy has read a change that was written to the topic.
_READ_BACK_S: Final = 5.0
# How many entities are looked at before other tasks have a turn. They take some milliseconds.
_AT_ONCE: Final = 250
# The shortest time between two checks of the topic's configuration.
_CHECK_S: Final = 5.0
_UNPACKED: Final = ("producer", "uncompressed", "gzip")


class TopicStore:
    """Stores the quotas that clients set in a Kafka topic (a ``QuotaStore``). Use it on the event loop.

    Attributes:
        name: The bootstrap servers and the topic, as ``kafka://SERVERS/TOPIC``.
        copy: The local copy of the topic's rules, or None if none is kept.
        state: The rules that follow from the records that were read from the topic so far.
        has_read: Whether the topic has been read to its end at least once.
        is_connected: Whether the topic has been read to its end since the last failure to read it.
        offset: The offset up to which records have been applied: the offset of the last of them plus 1.
        failures: How many times reading the topic failed.
        refused: How many requests to change quotas failed, or may have failed.
    """

    def __init__(
        self,
        name: str,
        apply: ApplyChanges,
        copy: TopicCopy | None,
        *,
        reader: Callable[[EventHandler], ReaderThread],
        writer: TopicWriter,
    ) -> None:
        self.name = name
        self.state = StoreTopicState(name=name)
        self.has_read = self.is_connected = False
        self.failures = self.refused = self.offset = 0
        self.copy = copy
        self._apply = apply
        self._bridge = ReaderBridge(reader, self._on_event)
        self._writer = writer
        self._writing = asyncio.Lock()
        self._is_failing = False
        self._reason = "it has not been read yet"  # why the topic is not connected
        self._may_serve = asyncio.Event()
        self._has_moved = asyncio.Event()
        self._must_check = asyncio.Event()
        self._is_within_batch = False
        self._warned: set[str] = set()

    @property
    def sources(self) -> Mapping[Entity, str]:
        """The entities whose rules cannot be changed through the proxy, and where each of these rules is defined."""
        return self.state.sources

    def detail(self) -> dict[str, object]:
        """Return the state of this store of quotas, as a part of the response to ``/readyz``."""
        return {
            "topic": self.name,
            "connected": self.is_connected,
            **({} if self.is_connected else {"reason": self._reason}),
            "read": self.has_read,
            "entities": self.state.entities,
            "offset": self.offset,
        }

    async def open(self) -> None:
        """Read the topic to its end and apply its rules.

        If the topic cannot be read in time, apply the rules of the local copy.
        """
        if self.copy is not None:
            self.state.restore(await self.copy.open())
        known = self.state.entities
        self._bridge.start()
        began_s = monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                await self._may_serve.wait()
        if self.has_read:
            return
        await self._apply_changes(is_logged=False)
        log.warning(
            "store %s: not read to its end within %.0f s: clients are served with the quotas of %d entities, as they "
            "were known last; none can be changed until it is read",
            self.name, monotonic() - began_s, known,
        )  # fmt: skip

    async def run(self) -> None:
        """Write changes to the local copy, and check the configuration of the topic, until cancelled.

        The configuration is checked after the topic has been read for the first time, and after it has been read again
        because of a failure.
        """
        async with asyncio.TaskGroup() as tasks:
            if self.copy is not None:
                tasks.create_task(kept_up(self.copy.run))
            while True:
                await self._must_check.wait()
                self._must_check.clear()
                try:
                    await self._check_configuration()
                except Exception as error:  # noqa: BLE001 - only a warning is lost
                    report(error, "store %s: its configuration could not be read", self.name)
                await asyncio.sleep(_CHECK_S)

    async def catch_up(self) -> None:
        """Wait until this proxy has applied all records that are in the topic now.

        Raises:
            NotKeptError: The topic cannot be read, or this takes too long.
        """
        self._check_connected()
        was_read_to = self.offset
        try:
            async with self._writing:
                end_offset = await self._writer.end_offset()
                if end_offset < was_read_to:
                    # The topic was created again, or has another leader, which the next call must look for.
                    await self._writer.close()
        except NotWrittenError as error:
            raise self._not_kept(error) from error
        if end_offset < was_read_to:
            message = f"{self.name} ends at offset {end_offset}, and was read up to {was_read_to} before"
            raise self._refusal(KAFKA_STORAGE_ERROR, f"No quota was changed: {message}; try again")
        if not await self._is_read_to(end_offset):
            raise self._refusal(KAFKA_STORAGE_ERROR, f"No quota was changed: {self.name} is behind; try again")

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Write changes of quotas to the topic, and wait until this proxy has read them back and applied them.

        ``QuotaStore.keep`` describes the arguments and the error.
        """
        self._check_connected()
        records = await self._records_of(changes, before)
        was_read_to = self.offset
        try:
            async with self._writing:
                offset = await self._writer.append(records)
        except NotWrittenError as error:
            raise self._not_kept(error) from error
        message = f"The change is in {self.name} at offset {offset}"
        if offset < was_read_to:
            # The topic was created again, so the change was computed from rules that the topic does not have.
            message += f", of a topic that was read up to {was_read_to} before"
            raise self._refusal(REQUEST_TIMED_OUT, message, may_hold=True)
        if not await self._is_read_to(offset + len(records)):
            raise self._refusal(REQUEST_TIMED_OUT, f"{message}, but does not apply at this proxy yet", may_hold=True)
        if not self.state.has(len(records), offset=offset):
            message += ", but could not be read back; see the proxy's log"
            # A proxy of another version may understand the change.
            raise self._refusal(KAFKA_STORAGE_ERROR, message, may_hold=True)
        self._check_not_hidden(changes, message)

    async def close(self) -> None:
        """Stop the reader, close the writer's connection, then write remaining changes to the copy and close it."""
        await self._bridge.stop()
        await self._writer.close()
        if self.copy is not None:
            await self.copy.close()

    # -- writing --

    def _check_connected(self) -> None:
        if not self.is_connected:
            message = f"No quota can be changed while {self.name} cannot be read: {self._reason}"
            raise self._refusal(KAFKA_STORAGE_ERROR, message)

    def _check_not_hidden(self, changes: Sequence[Change], message: str) -> None:
        """Raise ``NotKeptError`` if a rule that another program has meanwhile published hides one of the changes."""
        for entity, _ in changes:
            source = self.state.sources.get(entity)
            if source is not None:
                message += f", and {source} holds in its place for {entity}"
                raise self._refusal(REQUEST_TIMED_OUT, message, may_hold=True)

    async def _records_of(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> Sequence[Record]:
        left = self.state.left_terms(entity for entity, _ in changes if entity not in before)
        try:
            # In a thread, because the records of a large request take long to encode.
            return await asyncio.to_thread(lambda: list(map(encode, settings_of(changes, before, left))))
        except ValueError as error:
            message = f"A quota cannot be kept in {self.name}: {error}"
            raise self._refusal(POLICY_VIOLATION, message) from error

    def _not_kept(self, error: NotWrittenError) -> NotKeptError:
        if error.may_be_there:
            message = f"The outcome is unknown: the change may be in {self.name} and apply later: {error}"
            return self._refusal(REQUEST_TIMED_OUT, message, may_hold=True)
        error_code = POLICY_VIOLATION if error.is_final else KAFKA_STORAGE_ERROR
        return self._refusal(error_code, f"No quota was changed: {self.name} cannot be written: {error}")

    def _refusal(self, error_code: int, message: str, *, may_hold: bool = False) -> NotKeptError:
        self.refused += 1
        log.warning("store: %s", message)
        return NotKeptError(error_code, message, may_hold=may_hold)

    async def _is_read_to(self, offset: int) -> bool:
        """Wait until all records before ``offset`` are applied. Return False if this takes too long."""
        try:
            async with asyncio.timeout(_READ_BACK_S):
                while self.offset < offset:
                    self._has_moved.clear()
                    await self._has_moved.wait()
        except TimeoutError:
            return False
        return True

    async def _check_configuration(self) -> None:
        """Log a warning for each value in the topic's configuration that is unsuitable for storing quotas.

        Each warning is logged only once.
        """
        try:
            async with self._writing:
                found = await self._writer.configuration()
        except NotWrittenError:
            return
        if found is None:
            self._warn(
                "the cluster does not say whether it is compacted; grant DESCRIBE_CONFIGS for the topic, or make "
                "sure that it has cleanup.policy=compact"
            )
            return
        policy, compression = found.get("cleanup.policy", "compact"), found.get("compression.type", "producer")
        if policy != "compact":
            self._warn(
                f"has cleanup.policy={policy}, and quotas would expire with its retention; set cleanup.policy=compact "
                "(kafka-configs --alter --add-config)"
            )
        if compression not in _UNPACKED:
            self._warn(
                f"has compression.type={compression}, which no proxy can read, so that no change would apply; set "
                "compression.type=producer (kafka-configs --alter --add-config)"
            )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("store %s: %s", self.name, text)

    # -- reading --

    async def _on_event(self, event: ReaderEvent) -> None:
        if isinstance(event, ReadingBegan):
            self.state.begin()
        elif isinstance(event, RecordsRead):
            if not self.state.is_read_again:
                self._is_within_batch = not event.is_whole
            self.state.take(event.records, next_offset=event.next_offset)
        elif isinstance(event, EndReached):
            self._is_within_batch = False  # if a failure cut off a batch, the whole batch has been read by now
            self.state.end_reached(next_offset=event.next_offset)
        else:
            self._fail(event)
        if self._is_within_batch:
            return
        await self._apply_changes(is_logged=isinstance(event, RecordsRead))
        self.offset = self.state.next_offset
        if isinstance(event, EndReached):
            self._succeed()
        self._has_moved.set()

    async def _apply_changes(self, *, is_logged: bool) -> None:
        """Apply changed rules, unless only part of a record batch has been read.

        The rest of the batch may contain the terms of a limit, without which the limit must not apply.
        """
        while self.state.is_unsettled and not self._is_within_batch:
            changes = self.state.changes(_AT_ONCE)
            self._log_notices()
            if changes:
                try:
                    await self._apply([one.change for one in changes])
                except Exception:
                    self.state.take_back(changes)
                    raise
                if self.copy is not None:
                    self.copy.put(one.change for one in changes)
            for (entity, rule), offset in changes if is_logged else ():
                log.info("%s@%d sets the quotas of %s: %s", self.name, offset, entity, log_words(rule))
            # Let other tasks run even if nothing changed, as when a topic is read again.
            await asyncio.sleep(0)
        self._log_notices()

    def _succeed(self) -> None:
        if not self.is_connected:
            log.info("store %s: read, %d entities have quotas", self.name, self.state.entities)
        self.has_read = self.is_connected = True
        self._is_failing = False
        self._may_serve.set()
        self._must_check.set()

    def _fail(self, failure: ReadFailed) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.warning(
                "store %s: cannot be read: %s; trying again, and known quotas still apply",
                self.name, failure.reason,
            )  # fmt: skip
        self.failures += 1
        self.is_connected = False
        self._reason = failure.reason
        if failure.is_own_fault:
            self._may_serve.set()

    def _log_notices(self) -> None:
        for notice in self.state.notices:
            log.warning("store %s: %s", self.name, notice)
