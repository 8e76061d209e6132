"""Answers the requests of administrators about quotas, one request after another.

A change is decided on, stored, in force and audited before its request is answered. The work for large requests is done
outside the event loop, in a thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar, cast

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.config.terms import TermsChange
from kafka_quota_proxy.protocol.client_quotas import (
    AlterRequest,
    AlterResponse,
    DescribeRequest,
    read_request,
    write_response,
)
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.rules.alter import Decision, decide, refuse, with_unknown_outcome
from kafka_quota_proxy.proxy.rules.api import Origin, QuotaRequest, Ticket, TicketOwner, refusal
from kafka_quota_proxy.proxy.rules.audit import ChangeLog
from kafka_quota_proxy.proxy.rules.codec import RequestedChanges
from kafka_quota_proxy.proxy.rules.configured import source_of
from kafka_quota_proxy.proxy.rules.describe import describe
from kafka_quota_proxy.proxy.rules.effective import ListedRule
from kafka_quota_proxy.proxy.rules.errors import (
    POLICY_VIOLATION,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_SERVER_ERROR_MESSAGE,
)
from kafka_quota_proxy.proxy.rules.keeper import OnChanges, RuleKeeper
from kafka_quota_proxy.proxy.rules.keeper import wall_ms as unix_ms
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.source import NotKeptError, RuleSource, RuleWriter, UnusableSourceError
from kafka_quota_proxy.proxy.rules.text import shown_limits
from kafka_quota_proxy.proxy.runtime.disk_access import directory_fault
from kafka_quota_proxy.proxy.runtime.isolation import attempt, kept_up, report

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

# Requests up to these sizes are handled on the event loop, in two milliseconds at most. Under load a thread is slower.
_SMALL_BYTES: Final = 1_024
_SMALL_ENTITIES: Final = 10
# How many entities of a request are logged. Ten thousand lines would block the event loop for a tenth of a second.
_MOST_LOGGED: Final = 10
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

    def put(self, ticket: Ticket) -> bool:
        """Append a ticket, or return False if the queue is full. Dropped tickets take no room."""
        size_bytes = len(ticket.frame)
        if self.waiting and not self._has_room(size_bytes):
            self.waiting = deque(one for one in self.waiting if not one.is_dropped)
            if not self._has_room(size_bytes):
                return False
        self.waiting.append(ticket)
        self._has_come.set()
        return True

    async def next(self) -> Ticket:
        """Wait for the next ticket that is not dropped. No ticket is lost if the wait fails."""
        while True:
            while not self.waiting:
                self._has_come.clear()
                await self._has_come.wait()
            ticket = self.waiting.popleft()
            if not ticket.is_dropped:
                return ticket

    def _has_room(self, size_bytes: int) -> bool:
        waiting_bytes = sum(len(one.frame) for one in self.waiting)
        return len(self.waiting) < _MAX_WAITING and waiting_bytes + size_bytes <= _MAX_WAITING_BYTES


class _Task(NamedTuple):
    """A request to change quotas, from Kafka's AlterClientQuotas API or from the admin port.

    ``terms`` contains what the request changes about when and how limits apply, for example an expiry. Kafka's API has
    no such changes. If ``is_small`` is True, the request is processed on the event loop, otherwise in a thread.
    """

    request: AlterRequest
    origin: Origin
    terms: Mapping[Entity, TermsChange]
    is_small: bool


class QuotaManager:
    """Keeps the rules of one proxy, and answers administrators. For use on the event loop.

    Args:
        config: The configuration at the start.
        source: The source of rules, in place of the one that ``config`` names.

    Attributes:
        source: The source of rules beside the configuration file, or None if there is none.
        change_log: The changes of quotas that administrators have made. None if they cannot set any.
        submit: Queues a ticket from Kafka's API or the admin port, and returns False if the queue is full.
    """

    def __init__(
        self,
        config: ProxyConfig,
        *,
        wall_ms: Callable[[], int] = unix_ms,
        source: RuleSource | None = None,
    ) -> None:
        self.source = source_of(config) if source is None else source
        self.keeper = RuleKeeper(config, self.source, wall_ms=wall_ms)
        self.rules = self.keeper.rules
        self.change_log = None if config.store is None else ChangeLog(config.store)
        self._path = Path((config.store and config.store.directory) or "")
        self._thread = ThreadPoolExecutor(1, "quotas")
        self._queue = RequestQueue()
        self.submit = self._queue.put
        self._wall_ms = wall_ms
        self._next_refusal_ms = 0

    @property
    def store(self) -> RuleSource | None:
        """The source of rules, if administrators can change its rules."""
        return None if self.source is None or self.source.writer is None else self.source

    def listed(self) -> Iterator[ListedRule]:
        """Yield every rule as it was set, whether it is in force or not. Any thread may call this."""
        return self.rules.listed()

    def refused(self, origin: Origin, message: str, now_ms: int) -> None:
        """Log that a request was refused, at most once in ten seconds."""
        if now_ms >= self._next_refusal_ms:
            self._next_refusal_ms = now_ms + _REFUSED_EVERY_MS
            log.warning(
                "refused %s on listener %s a request about quotas: %s", origin.address, origin.listener, message
            )

    def follow_file(self, config: ProxyConfig) -> QuotaChanges:
        """Replace the rules that came from the configuration file by those of ``config``, its new content.

        Return all changes of the rules in force that have not been passed to ``on_changes``. This may be called in a
        thread, while the caller holds ``keeper.using_rules``. Call ``keeper.wake`` on the event loop afterwards.
        """
        return self.keeper.follow_file(config)

    async def read(self, on_changes: OnChanges) -> None:
        """Open the audit log and the source. The next ``follow_file`` returns the rules that were read by then.

        From then on, ``on_changes`` is called with the rules in force that have changed.

        Raises:
            StartError: If this fails.
        """
        if self.change_log is not None:
            await self._in_thread(self.change_log.open)
        if self.source is not None:
            try:
                await self.source.start(self.keeper.apply)
            except UnusableSourceError as error:
                raise StartError(_DIRECTORY, str(error)) from error
            except OSError as error:
                message = directory_fault(self._path) or f"{self._path} cannot be used: {error.strerror or error}"
                raise StartError(_DIRECTORY, message) from error
        self.keeper.begin(on_changes)

    async def run(self) -> None:
        """Answer requests, and keep the rules in force up to date, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kept_up(self.keeper.run))
            if self.source is not None:
                tasks.create_task(kept_up(self.source.changes))
            while True:
                ticket = await self._queue.next()
                try:
                    await self._serve(ticket)
                except Exception as error:  # noqa: BLE001 - later requests are still served
                    report(error)
                    if not ticket.is_dropped:
                        attempt(cast(TicketOwner, ticket.owner).fail)

    async def stop(self) -> None:
        """Close the source, and end the thread that works on large requests."""
        if self.source is not None:
            await self.source.stop()
        self._thread.shutdown()

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the thread, where it runs to its end even if the caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args, **kwargs))

    # -- one request --

    async def _serve(self, ticket: Ticket) -> None:
        """Answer the request of a ticket, and then call the ticket's owner."""
        if ticket.changes is not None:
            ticket.altered = await self._make_changes(ticket.changes, ticket.origin)
        else:
            frame, head = ticket.frame, cast(RequestHead, ticket.head)
            is_small = len(frame) <= _SMALL_BYTES
            try:
                request = read_request(frame, head) if is_small else await self._in_thread(read_request, frame, head)
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
                async with self.keeper.using_rules:
                    return await self._in_thread(_described, self.rules.rules, request)
            altered = await self._alter(_Task(request, origin, {}, is_small))
            return _altered(altered, request) if is_small else await self._in_thread(_altered, altered, request)
        except Exception as error:  # noqa: BLE001 - this request is refused, and later ones are answered
            report(error, "could not answer a request about quotas from %s", origin.principal)
            return await self._in_thread(refusal, request, UNKNOWN_SERVER_ERROR_MESSAGE, UNKNOWN_SERVER_ERROR)

    async def _make_changes(self, changes: RequestedChanges, origin: Origin) -> Decision:
        request = AlterRequest(0, 0, changes.alterations, changes.is_dry_run)
        task = _Task(request, origin, changes.terms, len(changes.alterations) <= _SMALL_ENTITIES)
        try:
            return await self._alter(task)
        except Exception as error:  # noqa: BLE001 - as above
            report(error, "quotas could not be changed for %s", origin.principal)
            return await self._refuse(task, UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR_MESSAGE)

    # -- changes --

    async def _alter(self, task: _Task) -> Decision:
        """Decide on a request, make its changes, and write its results to the audit log."""
        writer, change_log = None if self.source is None else self.source.writer, self.change_log
        if writer is None or change_log is None:
            return await self._refuse(task, POLICY_VIOLATION, _NO_STORE)
        now_ms = self._wall_ms()
        try:
            decision = await self._change(task, writer, change_log, now_ms)
        except NotKeptError as error:
            decision = await self._refuse(task, error.error_code, str(error))
        try:
            change_log.count(decision.outcomes, task.origin, unix_ms=now_ms)
            if change_log.audit is not None:
                await self._in_thread(change_log.write, decision.outcomes, task.origin, unix_ms=now_ms)
        except Exception as error:  # noqa: BLE001 - the change is made, so a refusal would be wrong
            report(error, "could not audit a quota change by %s", task.origin.principal)
        return decision

    async def _change(self, task: _Task, writer: RuleWriter, change_log: ChangeLog, now_ms: int) -> Decision:
        """Decide on a request and make its changes. Raises NotKeptError if the whole request is refused."""
        # The rate is limited before any I/O, because a client may repeat its request without end.
        wait_ms = change_log.begin(task.origin)
        if wait_ms:
            message = f"Too many quotas are changed (store.changes_per_second); try again in {wait_ms} ms"
            refused = await self._refuse(task, THROTTLING_QUOTA_EXCEEDED, message)
            return refused._replace(throttle_time_ms=wait_ms)
        await writer.catch_up()
        async with self.keeper.using_rules:
            stored, fixed, standing = self.rules.stored, self.rules.fixed, self.rules.rules
            work = partial(decide, stored, task.request, fixed, standing, now_ms=now_ms, terms=task.terms)
            decision = work() if task.is_small else await self._in_thread(work)
        changes = decision.changes
        if not changes:
            return decision
        if len(changes) > 1:
            change_log.charge(len(changes) - 1)
        try:
            await writer.keep(changes, decision.before)
        except NotKeptError as error:
            if not error.may_hold:
                raise
            work = partial(with_unknown_outcome, decision, error.error_code, str(error))
            return work() if task.is_small else await self._in_thread(work)
        except Exception as error:  # noqa: BLE001 - later requests are still answered
            report(error, "quotas could not be applied, but may be stored")
            work = partial(with_unknown_outcome, decision, UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR_MESSAGE)
            return work() if task.is_small else await self._in_thread(work)
        _log_changes(task.origin.principal, changes)
        return decision

    async def _refuse(self, task: _Task, error_code: int, message: str) -> Decision:
        """Return the results of a request that is refused as a whole: the same error for each of its changes."""
        work = partial(refuse, task.request, error_code, message, self.rules.rules, task.terms)
        return work() if task.is_small else await self._in_thread(work)


def _described(rules: Mapping[Entity, StoredRule], request: DescribeRequest) -> bytes:
    response = describe(rules, request)
    return write_response(response, correlation_id=request.correlation_id, api_version=request.api_version)


def _altered(decision: Decision, request: AlterRequest) -> bytes:
    response = AlterResponse(decision.throttle_time_ms, decision.results)
    return write_response(response, correlation_id=request.correlation_id, api_version=request.api_version)


def _log_changes(principal: str, changes: Sequence[Change]) -> None:
    if not log.isEnabledFor(logging.INFO):
        return
    for entity, rule in changes[:_MOST_LOGGED]:
        log.info("%s set the quotas of %s: %s", principal, entity, shown_limits(rule))
    if len(changes) > _MOST_LOGGED:
        log.info("%s set the quotas of %d others", principal, len(changes) - _MOST_LOGGED)
