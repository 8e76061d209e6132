"""Answers the requests of administrators about quotas, one request after another.

A change is stored and in force before its request is answered. The work for large requests is done outside the event
loop, in a thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, cast

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.protocol.client_quotas import (
    AlterRequest,
    AlterResponse,
    DescribeRequest,
    write_alter_response,
    write_describe_response,
)
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.background.disk_access import directory_fault
from kafka_quota_proxy.proxy.background.in_thread import WorkerThread
from kafka_quota_proxy.proxy.background.isolation import alone, kept_up, report
from kafka_quota_proxy.proxy.client_quotas.alter_handler import AlterHandler, AlterTask, refuse
from kafka_quota_proxy.proxy.client_quotas.api import (
    QuotaRequest,
    QuotasAltered,
    Ticket,
    TicketOwner,
    read_request,
    refusal,
)
from kafka_quota_proxy.proxy.client_quotas.audit.log import ChangeLog
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import RequestedChanges
from kafka_quota_proxy.proxy.client_quotas.rule_applier import RuleApplier
from kafka_quota_proxy.proxy.client_quotas.rule_timer import OnChanges
from kafka_quota_proxy.proxy.client_quotas.rule_timer import wall_ms as unix_ms
from kafka_quota_proxy.proxy.client_quotas.rules.describe import describe
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import ListedRule
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import (
    POLICY_VIOLATION,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_SERVER_ERROR_MESSAGE,
)
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin
from kafka_quota_proxy.proxy.client_quotas.storage.directory_store import DirectoryStore
from kafka_quota_proxy.proxy.client_quotas.storage.rule_database import UnusableStoreError
from kafka_quota_proxy.proxy.client_quotas.storage.store import ApplyChanges, QuotaStore
from kafka_quota_proxy.proxy.client_quotas.storage.topic_copy import TopicCopy
from kafka_quota_proxy.proxy.client_quotas.storage.topic_store import TopicStore
from kafka_quota_proxy.proxy.client_quotas.topic.reader_thread import topic_reader
from kafka_quota_proxy.proxy.quota.rule_changes import QuotaChanges
from kafka_quota_proxy.proxy.usage.log import proxy_name

log = logging.getLogger(__name__)

# Requests up to these sizes are handled on the event loop, in two milliseconds at most. Under load a thread is slower.
_SMALL_BYTES: Final = 1_024
_SMALL_ENTITIES: Final = 10

_MAX_WAITING: Final = 1_000
# A few of the largest requests fit into this. If there is no room, the session submits its request again later.
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
_REFUSED_EVERY_MS: Final = 10_000
_DIRECTORY: Final = ("store", "directory")
_NO_STORE: Final = "Quotas cannot be changed: this proxy has no store for them"


class RequestQueue:
    """The queue of requests about quotas, as tickets. It limits how many requests and how many bytes may wait."""

    def __init__(self) -> None:
        self.waiting: deque[Ticket] = deque()
        self._has_come = asyncio.Event()

    def put(self, ticket: Ticket) -> Ticket | None:
        """Append a ticket and return it, or return None if the queue is full. Dropped tickets take no room."""
        size_bytes = len(ticket.frame)
        if not self._has_room(size_bytes):
            self.waiting = deque(one for one in self.waiting if not one.is_dropped)
            if not self._has_room(size_bytes):
                return None
        self.waiting.append(ticket)
        self._has_come.set()
        return ticket

    async def wait(self) -> None:
        """Wait until ``pop`` may return a ticket. No ticket is lost if the wait fails."""
        if not self.waiting:
            self._has_come.clear()
            await self._has_come.wait()

    def pop(self) -> Ticket | None:
        """Return the next ticket that is not dropped, or None if there is none."""
        while self.waiting:
            ticket = self.waiting.popleft()
            if not ticket.is_dropped:
                return ticket
        return None

    def _has_room(self, size_bytes: int) -> bool:
        waiting_bytes = sum(len(one.frame) for one in self.waiting)
        return len(self.waiting) < _MAX_WAITING and waiting_bytes + size_bytes <= _MAX_WAITING_BYTES


class QuotaManager:
    """Manages the quotas that administrators set at this proxy. For use on the event loop.

    ``store`` and ``change_log`` are None if administrators cannot set quotas.
    """

    def __init__(self, config: ProxyConfig, *, on_changes: OnChanges, wall_ms: Callable[[], int] = unix_ms) -> None:
        directory = None if config.store is None else config.store.path
        self._path = Path(directory or "")
        self._applier = RuleApplier(config, name=str(config.store or ""), on_changes=on_changes, wall_ms=wall_ms)
        self.rules = self._applier.rules
        self._thread = WorkerThread("quotas")
        self._queue = RequestQueue()
        self._next_refusal_ms = 0
        self.store: QuotaStore | None = make_store(config, self._applier.apply, self.rules.stored)
        self.change_log = None if config.store is None else ChangeLog(config.store)
        self._alter_handler: AlterHandler | None = None
        if self.store is not None and self.change_log is not None:
            self._alter_handler = AlterHandler(
                self.store, self._applier, self.change_log, self._thread, wall_ms=wall_ms
            )

    @property
    def topic(self) -> TopicStore | None:
        """The store of quotas, if it is a Kafka topic. None if the quotas are stored in a directory, or not at all."""
        return self.store if isinstance(self.store, TopicStore) else None

    def listed(self) -> Iterator[ListedRule]:
        """Yield every rule as it was set, whether it is in force or not. Any thread may call this."""
        store = self.store
        sources = {} if store is None else dict(store.sources)
        for one in self.rules.listed():
            published = sources.get(one.entity)
            is_here = store is not None and published is None
            if one.can_change and not is_here:
                yield one._replace(source=published or one.source, can_change=False)
            elif one.shadowed_by is None or is_here:
                yield one

    @property
    def using_rules(self) -> asyncio.Lock:
        """A lock for the rules. Nothing changes them while it is held, except for its holder."""
        return self._applier.using_rules

    def follow_file(self, config: ProxyConfig) -> QuotaChanges:
        """Replace the rules that came from the configuration file by those of ``config``, its new content.

        Return all changes of the rules in force that have not been passed to ``on_changes``. This may be called in a
        thread, while the caller holds ``using_rules``. Call ``wake`` on the event loop afterwards.
        """
        changes = self._applier.follow_file(config)
        for double in self.rules.doubles:
            log.warning("%s", double)
        return changes

    def wake(self) -> None:
        """Begin to apply the rules of the file at the times that they contain."""
        self._applier.timer.wake()

    def submit(self, frame: bytes, origin: Origin, owner: object) -> Ticket | None:
        """Queue a request of Kafka's API and return its ticket, or None if the queue is full."""
        return self._queue.put(Ticket(frame, origin, owner))

    def refused(self, origin: Origin, message: str, now_ms: int) -> None:
        """Log that a request was refused, at most once in ten seconds."""
        if now_ms >= self._next_refusal_ms:
            self._next_refusal_ms = now_ms + _REFUSED_EVERY_MS
            log.warning(
                "refused %s on listener %s a request about quotas: %s", origin.address, origin.listener, message
            )

    def submit_changes(self, changes: RequestedChanges, origin: Origin, owner: object) -> Ticket | None:
        """Queue changes from the admin port and return their ticket, or None if too many requests are waiting."""
        return self._queue.put(Ticket(b"", origin, owner, changes))

    async def read(self) -> None:
        """Open the audit log and the store, and read the stored rules.

        The next ``follow_file`` includes the stored rules in the changes that it returns. Raises StartError if this
        fails.
        """
        if self.store is None or self.change_log is None:
            return
        await self._thread.run(self.change_log.open)
        try:
            await self.store.open()
        except UnusableStoreError as error:
            raise StartError(_DIRECTORY, str(error)) from error
        except OSError as error:
            message = directory_fault(self._path) or f"{self._path} cannot be used: {error.strerror or error}"
            raise StartError(_DIRECTORY, message) from error
        self._applier.begin()

    async def run(self) -> None:
        """Answer requests, and keep the rules in force up to date, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for part in (self._applier.timer, self.store):
                if part is not None:
                    tasks.create_task(kept_up(part.run))
            while True:
                await self._queue.wait()
                ticket = self._queue.pop()
                if ticket is not None:
                    await alone(partial(self._serve, ticket), fail=partial(_fail, ticket))

    async def stop(self) -> None:
        """Close the store and the audit log, and end the thread that works on large requests."""
        if self.store is not None:
            await self.store.close()
        if self.change_log is not None:
            await self._thread.run(self.change_log.close)
        self._thread.shutdown()

    async def _serve(self, ticket: Ticket) -> None:
        """Answer the request of a ticket, and then call the ticket's owner."""
        if ticket.changes is not None:
            ticket.altered = await self._make_changes(ticket.changes, ticket.origin)
        else:
            is_small = len(ticket.frame) <= _SMALL_BYTES
            try:
                request = await self._thread.run_large(is_small, read_request, ticket.frame)
            except ProtocolError as error:
                ticket.error = error
            else:
                ticket.answer = await self._answer(request, ticket.origin, is_small)
        # The client may have disconnected in the meantime. An error of the owner must not count as one of the manager,
        # so the event loop calls the owner.
        if not ticket.is_dropped:
            asyncio.get_running_loop().call_soon(cast(TicketOwner, ticket.owner).take_turn)

    async def _answer(self, request: QuotaRequest, origin: Origin, is_small: bool) -> bytes:
        try:
            if isinstance(request, DescribeRequest):
                async with self._applier.using_rules:
                    return await self._thread.run(_described, self.rules.rules, request)
            altered = await self._alter(AlterTask(request, origin, {}, is_small))
            return await self._thread.run_large(is_small, _altered, altered, request)
        except Exception as error:  # noqa: BLE001 - this request is refused, and later ones are answered
            report(error, "could not answer a request about quotas from %s", origin.principal)
            return await self._thread.run(refusal, request, UNKNOWN_SERVER_ERROR_MESSAGE, UNKNOWN_SERVER_ERROR)

    async def _make_changes(self, changes: RequestedChanges, origin: Origin) -> QuotasAltered:
        request = AlterRequest(0, 0, changes.alterations, changes.is_dry_run)
        task = AlterTask(request, origin, changes.terms, len(changes.alterations) <= _SMALL_ENTITIES)
        try:
            return await self._alter(task)
        except Exception as error:  # noqa: BLE001 - as above
            report(error, "quotas could not be changed for %s", origin.principal)
            code, message = UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR_MESSAGE
            return await self._thread.run(refuse, task, self.rules.rules, code, message)

    async def _alter(self, task: AlterTask) -> QuotasAltered:
        if self._alter_handler is None:
            rules = self.rules.rules
            return await self._thread.run_large(task.is_small, refuse, task, rules, POLICY_VIOLATION, _NO_STORE)
        return await self._alter_handler.alter(task)


def _fail(ticket: Ticket) -> None:
    if not ticket.is_dropped:
        cast(TicketOwner, ticket.owner).fail()


def _described(rules: Mapping[Entity, StoredRule], request: DescribeRequest) -> bytes:
    return write_describe_response(
        describe(rules, request), correlation_id=request.correlation_id, api_version=request.api_version
    )


def _altered(altered: QuotasAltered, request: AlterRequest) -> bytes:
    response = AlterResponse(altered.throttle_time_ms, altered.results)
    return write_alter_response(response, correlation_id=request.correlation_id, api_version=request.api_version)


def make_store(
    config: ProxyConfig, apply: ApplyChanges, stored: Mapping[Entity, StoredRule]
) -> DirectoryStore | TopicStore | None:
    """Return the configured store, or None if no store is configured.

    The store passes its rules to ``apply``, which keeps them in ``stored``.
    """
    store = config.store
    if store is None:
        return None
    if store.topic is None:
        return DirectoryStore(store.path or "", apply, stored)
    reader = topic_reader(config, store.topic)
    # This is imported only if it is needed, because it loads aiokafka.
    from kafka_quota_proxy.proxy.client_quotas.storage.topic_writer import Writer

    binds = tuple(listener.bind for listener in config.listeners)
    writer = Writer(store.topic, f"kafka-quota-proxy-{proxy_name(config)}", binds)
    copy = None if store.path is None else TopicCopy(store.path)
    return TopicStore(str(store.topic), apply, copy, reader=reader, writer=writer)
