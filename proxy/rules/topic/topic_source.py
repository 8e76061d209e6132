"""Reads rules from a Kafka topic, and stores quotas in it if several proxies share it as their store.

Each proxy applies the records in the order of their offsets. Before a change is decided on, this proxy applies all
records that are in the topic. It then writes the change as one batch. The client receives its answer once the proxy has
read the batch back and applied it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kafka_quota_proxy.config.quota_record import encode
from kafka_quota_proxy.proxy.rules.errors import KAFKA_STORAGE_ERROR, POLICY_VIOLATION, REQUEST_TIMED_OUT
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.source import ApplyChanges, NotKeptError
from kafka_quota_proxy.proxy.rules.text import shown_limits
from kafka_quota_proxy.proxy.rules.topic.clients import (
    EndReached,
    EventHandler,
    NotWrittenError,
    ReaderBridge,
    ReaderEvent,
    ReaderThread,
    ReadFailed,
    ReadingBegan,
    Record,
    RecordsRead,
    TopicWriter,
)
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicState, settings_of
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.isolation import report

log = logging.getLogger(__name__)

# How long it may take until the reader of this proxy has read a change that was written to the topic.
_READ_BACK_S: Final = 5.0
# How many entities are looked at before other tasks have a turn. They take some milliseconds.
_AT_ONCE: Final = 250
# The shortest time between two checks of the topic's configuration.
_CHECK_S: Final = 5.0
_UNPACKED: Final = ("producer", "uncompressed", "gzip")


class TopicSource:
    """A ``RuleSource`` in a Kafka topic. With a ``writer`` it is the store of this proxy, and of others.

    Attributes:
        name: The bootstrap servers and the topic, as ``kafka://SERVERS/TOPIC``.
        state: The rules that follow from the records that were read from the topic so far.
        is_connected: Whether the topic has been read to its end since the last failure to read it.
        offset: The offset up to which records have been applied: the offset of the last of them plus 1.
        failures: How many times reading the topic failed.
        refused: How many requests to change quotas failed, or may have failed.
    """

    def __init__(
        self,
        name: str,
        state: TopicState,
        *,
        reader: Callable[[EventHandler], ReaderThread],
        writer: TopicWriter | None = None,
    ) -> None:
        self.name = name
        self.state = state
        self.places: Mapping[Entity, str] = state.places
        self.has_read = self.is_connected = False
        self.may_serve = asyncio.Event()
        self.failures = self.refused = self.offset = 0
        self._bridge = ReaderBridge(reader, self._on_event)
        self._writer = writer
        self.writer = None if writer is None else self  # what stores the changes of administrators
        self._apply: ApplyChanges
        self._writing = asyncio.Lock()
        self._key = "quotas_from" if writer is None else "store"  # of the configuration, for the log
        self._is_failing = False
        self._reason = "it has not been read yet"  # why the topic is not connected
        self._has_moved = asyncio.Event()
        self._must_check = asyncio.Event()
        self._is_within_batch = False
        self._warned: set[str] = set()

    def status(self) -> dict[str, object]:
        """Return the state of the topic, as a part of the response to ``/readyz``."""
        status = {"topic": self.name, "connected": self.is_connected, "read": self.has_read}
        if self._writer is None:
            return {**status, "rules": self.state.entities}
        reason = {} if self.is_connected else {"reason": self._reason}
        return {**status, **reason, "entities": self.state.entities, "offset": self.offset}

    async def start(self, apply: ApplyChanges) -> None:
        """Begin to read the topic."""
        self._apply = apply
        self._bridge.start()

    async def changes(self) -> None:
        """Check the configuration of the topic, until cancelled.

        The reader's thread applies what it reads by itself. The configuration is checked after the topic has been read
        for the first time, and after it has been read again because of a failure.
        """
        while True:
            await self._must_check.wait()
            self._must_check.clear()
            try:
                await self._check_configuration()
            except Exception as error:  # noqa: BLE001 - only a warning is lost
                report(error, "store %s: its configuration could not be read", self.name)
            await asyncio.sleep(_CHECK_S)

    async def stop(self) -> None:
        """Stop the reader, and close the writer's connection."""
        await self._bridge.stop()
        if self._writer is not None:
            await self._writer.close()

    # -- writing --

    async def catch_up(self) -> None:
        """Wait until this proxy has applied all records that are in the topic now.

        Raises:
            NotKeptError: The topic cannot be read, or this takes too long.
        """
        writer = self._checked_writer()
        was_read_to = self.offset
        try:
            async with self._writing:
                end_offset = await writer.end_offset()
                if end_offset < was_read_to:
                    # The topic was created again, or has another leader, which the next call must look for.
                    await writer.close()
        except NotWrittenError as error:
            raise self._not_kept(error) from error
        if end_offset < was_read_to:
            message = f"{self.name} ends at offset {end_offset}, and was read up to {was_read_to} before"
            raise self._refusal(KAFKA_STORAGE_ERROR, f"No quota was changed: {message}; try again")
        if not await self._is_read_to(end_offset):
            raise self._refusal(KAFKA_STORAGE_ERROR, f"No quota was changed: {self.name} is behind; try again")

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Write changes of quotas to the topic, and wait until this proxy has read them back and applied them.

        ``RuleWriter.keep`` describes the arguments and the error.
        """
        writer = self._checked_writer()
        records = await self._records_of(changes, before)
        was_read_to = self.offset
        try:
            async with self._writing:
                offset = await writer.append(records)
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
        # Terms that this proxy does not understand may have been written meanwhile.
        for entity, _ in changes:
            if entity in self.places:
                message += f", but does not apply here because of the terms of {entity} in {self.places[entity]}"
                raise self._refusal(REQUEST_TIMED_OUT, message, may_hold=True)

    def _checked_writer(self) -> TopicWriter:
        if self._writer is None or not self.is_connected:
            message = f"No quota can be changed while {self.name} cannot be read: {self._reason}"
            raise self._refusal(KAFKA_STORAGE_ERROR, message)
        return self._writer

    async def _records_of(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> Sequence[Record]:
        left = self.state.left_terms(entity for entity, _ in changes if entity not in before)
        try:
            # In a thread, because the records of a large request take long to encode.
            return await in_thread(lambda: list(map(encode, settings_of(changes, before, left))), name="topic")
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
        """Log a warning, once, for each value in the topic's configuration that is unsuitable for storing quotas."""
        if self._writer is None:
            return
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
            log.warning("%s %s: %s", self._key, self.name, text)

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
        # The rest of a record batch may contain the terms of a limit, without which the limit must not apply.
        if self._is_within_batch:
            return
        await self._apply_changes()
        self.offset = self.state.next_offset
        if isinstance(event, EndReached):
            await self._apply(())  # changes that could not be applied before
            self._succeed()
        self._has_moved.set()

    async def _apply_changes(self) -> None:
        """Apply changed rules, and log them."""
        self._log_notices()
        while self.state.is_unsettled:
            found = self.state.changes(_AT_ONCE)
            self._log_notices()
            if found:
                await self._apply([one.change for one in found])
            for (entity, rule), offset in found if self.writer and self.is_connected else ():
                log.info("%s@%d sets the quotas of %s: %s", self.name, offset, entity, shown_limits(rule))
            # Let other tasks run even if nothing changed, as when a topic is read again.
            await asyncio.sleep(0)

    def _succeed(self) -> None:
        if not self.is_connected:
            log.info("%s %s: read, %d entities have quotas", self._key, self.name, self.state.entities)
        self.has_read = self.is_connected = True
        self._is_failing = False
        self.may_serve.set()
        self._must_check.set()

    def _fail(self, failure: ReadFailed) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.warning(
                "%s %s: cannot be read: %s; trying again, and known quotas still apply",
                self._key, self.name, failure.reason,
            )  # fmt: skip
        self.failures += 1
        self.is_connected = False
        self._reason = failure.reason
        if failure.is_own_fault:
            self.may_serve.set()

    def _log_notices(self) -> None:
        while self.state.notices:
            log.warning("%s %s: %s", self._key, self.name, self.state.notices.popleft())
