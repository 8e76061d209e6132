"""Answers administrators: one request after another, and in a thread what takes long.

What is decided here goes to a store (``proxy.quota_keeper``), and is in force and kept before anybody is told of it.
"""

import asyncio
import logging
from collections import ChainMap, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar, cast

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.terms import TermsChange, written_terms
from kafka_quota_proxy.protocol.client_quotas import (
    AlterRequest,
    AlterResponse,
    DescribeRequest,
    write_alter_response,
    write_describe_response,
)
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.background.disk_access import directory_fault
from kafka_quota_proxy.proxy.background.isolation import alone, kept_up, report
from kafka_quota_proxy.proxy.client_quotas.api import (
    QuotaRequest,
    QuotasAltered,
    Ticket,
    Waiting,
    read_request,
    refusal,
)
from kafka_quota_proxy.proxy.client_quotas.audit.log import ChangeLog
from kafka_quota_proxy.proxy.client_quotas.formats import json_codec as json_form
from kafka_quota_proxy.proxy.client_quotas.host_resolver import HostResolver, Lookups
from kafka_quota_proxy.proxy.client_quotas.rule_timer import OnChanges, RuleTimer
from kafka_quota_proxy.proxy.client_quotas.rule_timer import wall_ms as unix_ms
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change, Decision, Hidden, decide, hosts_of, refuse_alter
from kafka_quota_proxy.proxy.client_quotas.rules.describe import describe
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import EffectiveRules, Listed
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import (
    POLICY_VIOLATION,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_SERVER_ERROR_MESSAGE,
)
from kafka_quota_proxy.proxy.client_quotas.rules.ip_rules import Addresses
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, outcomes
from kafka_quota_proxy.proxy.client_quotas.storage.open_store import make_store
from kafka_quota_proxy.proxy.client_quotas.storage.rule_database import UnusableStoreError
from kafka_quota_proxy.proxy.client_quotas.storage.store import NotKeptError, QuotaStore
from kafka_quota_proxy.proxy.client_quotas.storage.topic_store import TopicStore
from kafka_quota_proxy.proxy.quota.rule_changes import Changes, IpChanges, RuleChanges, merge_changes

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# How many rules are put in force before others have a turn: some milliseconds.
_AT_ONCE: Final = 250
# What is no longer is read, decided and answered on the loop, in less than a way to a thread and back takes where
# others have the processor. At worst, some hundred entities of no name, it is two milliseconds.
_SMALL_BYTES: Final = 1_024
# Likewise of entities, where it is no frame.
_FEW: Final = 10
# Of a request, the log need not have each: ten thousand lines would hold the loop for a tenth of a second.
_MOST_SAID: Final = 10
# Of requests that have not begun: some of the largest that there are. Who has no room asks again.
_MAX_WAITING: Final = 1_000
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024

# As long as the second of ``quota_changes.sums`` is.
_SUMMED_UP_AFTER_S: Final = 1.0

_DIRECTORY: Final = ("store", "directory")
_NO_STORE: Final = "No quota can be changed here: there is no store for them"


class QuotaManager:
    """The quotas that are administered at this proxy. All of it belongs to the loop.

    Args:
        config: What the process is started with.
        on_changes: See ``OnChanges``.
        wall_ms: Returns Unix time.

    Attributes:
        change_log: How many changes there were and may be; None where there is no store.
    """

    def __init__(self, config: ProxyConfig, *, on_changes: OnChanges, wall_ms: Callable[[], int] = unix_ms) -> None:
        store = config.store
        self._wall_ms = wall_ms
        self._in_force = EffectiveRules(config, name=str(store or ""), now_ms=wall_ms())
        self._timer = RuleTimer(self._in_force, on_changes=self._by_time, wall_ms=wall_ms)
        self._path = Path("" if store is None or store.path is None else store.path)
        self._store: QuotaStore | None = make_store(config, self._hold, self._in_force.stored)
        self.change_log = None if store is None else ChangeLog(store)
        self._on_changes = on_changes
        self._lookups = Lookups()
        self._hosts = HostResolver(self._lookups, on_found=self._know)
        # What is read of the rules in this thread nobody changes meanwhile: who reads or changes them has the lock.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quotas")
        self._using_rules = asyncio.Lock()
        self._waiting: deque[Ticket] = deque()
        self._has_come = asyncio.Event()
        self._owes_sums = asyncio.Event()
        self._is_open = False
        self._untold: list[Changes] = []
        self._addresses: Addresses = {}  # of the hosts in the request that was looked at last

    @property
    def topic(self) -> TopicStore | None:
        """The topic that quotas are kept in, if they are in one."""
        return self._store if isinstance(self._store, TopicStore) else None

    @property
    def quotas(self) -> tuple[QuotaRule, ...]:
        """Every rule of users and client-ids that holds: the file's, and the store's."""
        return self._in_force.quotas

    @property
    def ip_quotas(self) -> tuple[IpRule, ...]:
        """Every rule of addresses that holds."""
        return self._in_force.ip_quotas

    @property
    def store(self) -> QuotaStore | None:
        """Who keeps what is set here; None: nothing can be."""
        return self._store

    @property
    def entities(self) -> int:
        """How many entities have quotas that were set here."""
        return len(self._in_force.stored)

    @property
    def unknown_hosts(self) -> int:
        """How many hosts have a limit that does not hold, for no address of theirs is known."""
        return len(self._in_force.unknown_hosts)

    def listed(self) -> Iterator[Listed]:
        """Yield every rule as it was set. For any thread."""
        store = self._store
        elsewhere = {} if store is None else dict(store.sources)
        for one in self._in_force.listed():
            published = elsewhere.get(one.entity)
            is_here = store is not None and published is None
            if one.can_change and not is_here:
                yield one._replace(source=published or one.source, can_change=False)
            elif one.shadowed_by is None or is_here:
                yield one

    def follow_file(self, config: ProxyConfig) -> Changes:
        """Take the file's rules from now on; return what has changed that ``on_changes`` was not told of."""
        changes = merge_changes(*self._untold, self._in_force.follow_file(config, now_ms=self._wall_ms()))
        self._untold = []
        self._timer.wake()
        for double in self._in_force.doubles:
            log.warning("%s", double)
        return changes

    def submit(self, frame: bytes, origin: Origin, owner: object) -> Ticket | None:
        """Begin to answer a request. See ``proxy.client_quotas.api.QuotaRequestHandler``."""
        return self._queue(Ticket(frame, origin, owner))

    def submit_changes(self, changes: json_form.Changes, origin: Origin, owner: object) -> Ticket | None:
        """Begin to make changes that have come otherwise; ``altered`` of the ticket is set then, and all else alike."""
        return self._queue(Ticket(b"", origin, owner, changes))

    def _queue(self, ticket: Ticket) -> Ticket | None:
        size_bytes = len(ticket.frame)
        if not self._has_room(size_bytes):
            self._waiting = deque(one for one in self._waiting if not one.is_dropped)
            if not self._has_room(size_bytes):
                return None
        self._waiting.append(ticket)
        self._has_come.set()
        return ticket

    def _has_room(self, size_bytes: int) -> bool:
        waiting = self._waiting
        return len(waiting) < _MAX_WAITING and sum(len(one.frame) for one in waiting) + size_bytes <= _MAX_WAITING_BYTES

    async def read(self) -> None:
        """Read what is kept, before anybody is served. It is among what ``follow_file`` returns next.

        Raises:
            StartError: It cannot be used, or another process does.
        """
        if self._store is None or self.change_log is None:
            return
        await self._off_loop(self.change_log.open)
        try:
            await self._store.open()
        except UnusableStoreError as error:
            raise StartError(_DIRECTORY, str(error)) from error
        except OSError as error:
            told = directory_fault(self._path) or f"{self._path} cannot be used: {error.strerror or error}"
            raise StartError(_DIRECTORY, told) from error
        self._untold.append(self._in_force.know(await self._lookups.find(self._in_force.unknown_hosts)))
        self._hosts.follow(self._in_force.unknown_hosts)
        self._is_open = True

    async def run(self) -> None:
        """Answer, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kept_up(self._hosts.run))
            tasks.create_task(kept_up(self._timer.run))
            if self._store is not None:
                tasks.create_task(kept_up(self._store.run))
            if self.change_log is not None:
                tasks.create_task(kept_up(partial(self._sum_up, self.change_log)))
            while True:
                while self._waiting:
                    ticket = self._waiting.popleft()
                    if not ticket.is_dropped:
                        await alone(partial(self._serve, ticket), fail=partial(_fail, ticket))
                self._has_come.clear()
                await self._has_come.wait()

    async def _sum_up(self, change_log: ChangeLog) -> None:
        """Have the audit log told of what was summed up, also where nobody asks for anything any more."""
        while True:
            await self._owes_sums.wait()
            self._owes_sums.clear()
            await asyncio.sleep(_SUMMED_UP_AFTER_S)
            await self._off_loop(change_log.write_sums)
            if change_log.owes_sums:
                self._owes_sums.set()

    async def stop(self) -> None:
        """Let go of what is kept."""
        if self._store is not None:
            await self._store.close()
        if self.change_log is not None:
            await self._off_loop(self.change_log.close)
        self._thread.shutdown()

    async def _serve(self, ticket: Ticket) -> None:
        """Answer a request, and wake its owner."""
        if ticket.changes is not None:
            ticket.altered = await self._change_in_any_case(ticket.changes, ticket.origin)
        else:
            is_small = len(ticket.frame) <= _SMALL_BYTES
            try:
                request = await self._beside(is_small, read_request, ticket.frame)
            except ProtocolError as error:
                ticket.error = error
            else:
                ticket.answer = await self._answer_in_any_case(request, ticket.origin, is_small)
        # Who was there when it came may be gone. What he does with his answer is no matter of the manager's.
        if not ticket.is_dropped:
            asyncio.get_running_loop().call_soon(cast(Waiting, ticket.owner).take_turn)

    async def _answer_in_any_case(self, request: QuotaRequest, origin: Origin, is_small: bool) -> bytes:
        try:
            return await self._answer(request, origin, is_small)
        except Exception as error:  # noqa: BLE001 - those that follow feel nothing of a fault here, nor do clients
            report(error, "a request of %s about quotas could not be answered", origin.principal)
            return await self._off_loop(refusal, request, UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR_MESSAGE)

    async def _change_in_any_case(self, changes: json_form.Changes, origin: Origin) -> QuotasAltered:
        request = AlterRequest(0, 0, changes.alterations, changes.is_dry_run)
        is_small = len(changes.alterations) <= _FEW
        try:
            return await self._alter(request, origin, changes.terms, is_small)
        except Exception as error:  # noqa: BLE001 - as above
            report(error, "quotas could not be changed for %s", origin.principal)
            told = UNKNOWN_SERVER_ERROR_MESSAGE
            return await self._off_loop(self._refused, request, changes.terms, UNKNOWN_SERVER_ERROR, told)

    async def _answer(self, request: QuotaRequest, origin: Origin, is_small: bool) -> bytes:
        if isinstance(request, DescribeRequest):
            async with self._using_rules:
                return await self._off_loop(_described, self._in_force.rules, request)
        altered = await self._alter(request, origin, {}, is_small)
        return await self._beside(is_small, _altered, altered, request)

    async def _alter(
        self, request: AlterRequest, origin: Origin, terms: Mapping[Entity, TermsChange], is_small: bool
    ) -> QuotasAltered:
        """Decide on a request, do what it says, and keep book of it."""
        if self._store is None or self.change_log is None:
            return await self._beside(is_small, self._refused, request, terms, POLICY_VIOLATION, _NO_STORE)
        altered, is_whole = await self._try(request, origin, terms, is_small, self._store, self.change_log)
        try:
            await self._keep_book(self.change_log, altered, origin, is_dry_run=request.validate_only, is_whole=is_whole)
        except Exception as error:  # noqa: BLE001 - it is made, and to say that it was refused would be wrong
            report(error, "a change of %s is not in the books", origin.principal)
        return altered

    async def _keep_book(
        self, change_log: ChangeLog, altered: QuotasAltered, origin: Origin, *, is_dry_run: bool, is_whole: bool
    ) -> None:
        """Count what became of a request, and write it down where it is audited."""
        change_log.count(altered.outcomes, is_dry_run=is_dry_run)
        if change_log.is_audited:
            await self._off_loop(
                change_log.write,
                altered.outcomes,
                origin,
                is_dry_run=is_dry_run,
                is_refused_whole=is_whole,
                unix_ms=self._wall_ms(),
            )
            if change_log.owes_sums:
                self._owes_sums.set()

    async def _try(
        self,
        request: AlterRequest,
        origin: Origin,
        terms: Mapping[Entity, TermsChange],
        is_small: bool,
        store: QuotaStore,
        change_log: ChangeLog,
    ) -> tuple[QuotasAltered, bool]:
        """Return what became of a request, and whether it was refused as a whole."""
        # Before anything is done for it: a disk, a broker or a name server is not to feel an automaton gone wild.
        wait_ms = change_log.wait_ms(origin)
        if wait_ms:
            told = f"Too many quotas are changed (store.changes_per_second); come again in {wait_ms} ms"
            code = THROTTLING_QUOTA_EXCEEDED
            refused = await self._beside(is_small, self._refused, request, terms, code, told)
            return refused._replace(throttle_time_ms=wait_ms), True
        change_log.charge(1)
        hosts = hosts_of(request)
        addresses = await self._lookups.find(hosts) if hosts else {}
        try:
            await store.catch_up()
            async with self._using_rules:
                decision, altered = await self._beside(
                    is_small, self._decide, request, addresses, terms, store.sources, origin
                )
                stored = self._in_force.stored
                before = {entity: stored[entity] for entity, _ in decision.changes if entity in stored}
            if not decision.changes or request.validate_only:
                return altered, False
            change_log.charge(len(decision.changes) - 1)
            self._addresses = addresses
            error = await self._keep(store, decision.changes, before)
        except NotKeptError as error:
            return await self._beside(is_small, self._refused, request, terms, error.error_code, str(error)), True
        if error is not None:
            return await self._beside(is_small, _unknown, altered, error), False
        _say(origin.principal, decision.changes)
        return altered, False

    async def _keep(
        self, store: QuotaStore, changes: Sequence[Change], before: Mapping[Entity, StoredRule]
    ) -> NotKeptError | None:
        """Keep changes; return an error where nobody knows whether they are kept and in force.

        Raises:
            NotKeptError: They are not kept.
        """
        try:
            await store.keep(changes, before)
        except NotKeptError as error:
            if not error.may_hold:
                raise
            return error
        except Exception as error:  # noqa: BLE001 - as above
            report(error, "quotas may be kept, and could not be put in force")
            return NotKeptError(UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR_MESSAGE, may_hold=True)
        return None

    def _refused(
        self, request: AlterRequest, terms: Mapping[Entity, TermsChange], error_code: int, message: str
    ) -> QuotasAltered:
        results = refuse_alter(request, error_code, message)
        return QuotasAltered(results, outcomes(request.alterations, results, (), self._in_force.rules, terms))

    async def _hold(self, changes: Sequence[Change]) -> None:
        """Put in force what is kept. What is raised for some of it is raised when all the rest is."""
        failure: Exception | None = None
        for begin in range(0, len(changes), _AT_ONCE):
            try:
                await self._hold_some(changes[begin : begin + _AT_ONCE])
            except Exception as error:  # noqa: BLE001 - the others are kept, too
                failure = error
            await asyncio.sleep(0)
        self._timer.wake()
        if failure is not None:
            raise failure

    async def _hold_some(self, changes: Sequence[Change]) -> None:
        async with self._using_rules:
            told = self._in_force.change(changes, self._addresses, now_ms=self._wall_ms())
        self._untold.append(told)
        if self._is_open:
            self._tell()
            if any(entity.ip is not None for entity, _ in changes):
                self._hosts.follow(self._in_force.unknown_hosts)

    def _decide(
        self,
        request: AlterRequest,
        addresses: Addresses,
        terms: Mapping[Entity, TermsChange],
        sources: Mapping[Entity, str],
        origin: Origin,
    ) -> tuple[Decision, QuotasAltered]:
        """Return what is to be changed, or would be, and what became of the request if it is."""
        in_force = self._in_force

        def hidden(entity: Entity) -> Hidden | None:
            return None if entity in sources else in_force.hidden(entity, sees_both=origin.sees_hidden)

        decision = decide(
            in_force.stored,
            request._replace(validate_only=False),
            is_host=addresses.__contains__,
            sources=ChainMap(in_force.sources, cast("dict[Entity, str]", sources)),
            now_ms=self._wall_ms(),
            terms=terms,
            hidden=hidden,
        )
        # Of what the file hides it is this that is changed.
        stored = {entity: in_force.stored[entity] for entity, _ in decision.changes if entity in in_force.stored}
        before = ChainMap(stored, cast("dict[Entity, StoredRule]", in_force.rules))
        told = outcomes(request.alterations, decision.results, decision.changes, before, terms)
        return decision, QuotasAltered(decision.results, told)

    def _tell(self) -> None:
        """Tell of what has changed. What cannot be put in force is told again with what changes next."""
        self._on_changes(*merge_changes(*self._untold))
        self._untold = []

    def _by_time(self, rules: RuleChanges, ips: IpChanges) -> None:
        """Put in force what has begun, ended or changed by its time."""
        self._untold.append(Changes(rules, ips))
        self._tell()
        self._hosts.follow(self._in_force.unknown_hosts)

    def _know(self, addresses: Addresses) -> None:
        """Put in force the limits of hosts that have been found."""
        self._untold.append(self._in_force.know(addresses))
        self._tell()
        self._hosts.follow(self._in_force.unknown_hosts)
        log.info("%s: found %s, whose quotas hold from now on", self._in_force.name, ", ".join(addresses))

    async def _beside(self, is_small: bool, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        """Do what takes as long as its request is: here where that is small."""
        if is_small:
            return function(*arguments, **more)
        return await self._off_loop(function, *arguments, **more)

    async def _off_loop(self, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *arguments, **more))


def _fail(ticket: Ticket) -> None:
    if not ticket.is_dropped:
        cast(Waiting, ticket.owner).fail()


def _described(rules: Mapping[Entity, StoredRule], request: DescribeRequest) -> bytes:
    return write_describe_response(
        describe(rules, request), correlation_id=request.correlation_id, api_version=request.api_version
    )


def _altered(altered: QuotasAltered, request: AlterRequest) -> bytes:
    response = AlterResponse(altered.throttle_time_ms, altered.results)
    return write_alter_response(response, correlation_id=request.correlation_id, api_version=request.api_version)


def _unknown(altered: QuotasAltered, error: NotKeptError) -> QuotasAltered:
    """Return what is told of a request of whose changes nobody knows whether they hold. ``altered``: if they did."""
    results, told = [], []
    for result, outcome in zip(altered.results, altered.outcomes, strict=True):
        if outcome.new == outcome.old:
            results.append(result)
            told.append(outcome)
        else:
            code, message = error.error_code, str(error)
            results.append(result._replace(error_code=code, error_message=message))
            told.append(outcome._replace(error_code=code, error_message=message, is_unknown=True))
    return altered._replace(results=tuple(results), outcomes=tuple(told))


def _say(principal: str, changes: Sequence[Change]) -> None:
    for entity, rule in changes[:_MOST_SAID]:
        said: dict[str, object] = {**rule.limits, **written_terms(rule.terms)} if rule else {}
        words = ", ".join(f"{key}={value}" for key, value in said.items()) or "none"
        log.info("%s set the quotas of %s: %s", principal, entity, words)
    if len(changes) > _MOST_SAID:
        log.info("%s set those of %d others", principal, len(changes) - _MOST_SAID)
