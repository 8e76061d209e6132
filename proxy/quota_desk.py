"""Answers administrators: one request after another, and in a thread what takes long.

What is decided here goes to a keeper (``proxy.quota_keeper``), and is in force and kept before anybody is told of it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, Protocol, TypeVar, cast

from config.model import IpRule, ProxyConfig, QuotaRule
from config.terms import written_terms
from protocol.client_quotas import (
    Altered,
    AlterRequest,
    AlterResponse,
    DescribeRequest,
    write_alter_response,
    write_describe_response,
)
from protocol.errors import ProtocolError
from proxy.administration import QuotaRequest, Ticket, read_request, refusal
from proxy.host_finder import HostFinder, find_hosts
from proxy.quota.changes import Changes, IpChanges, RuleChanges, together
from proxy.quota_keeper.directory import DirectoryKeeper
from proxy.quota_keeper.keeper import Keeper, NotKeptError
from proxy.quota_store.addresses import Addresses
from proxy.quota_store.alter import Change, Decision, decide, hosts_of, refuse_alter
from proxy.quota_store.describe import describe
from proxy.quota_store.entity import Entity, StoredRule
from proxy.quota_store.errors import (
    POLICY_VIOLATION,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_SERVER_ERROR_MESSAGE,
)
from proxy.quota_store.in_force import InForce
from proxy.quota_timer import OnChanges, QuotaTimer
from proxy.quota_timer import wall_ms as unix_ms

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# How many rules are put in force before others have a turn: some milliseconds.
_AT_ONCE: Final = 250
# What is no longer is read, decided and answered on the loop, in less than a way to a thread and back takes where
# others have the processor. At worst, some hundred entities of no name, it is two milliseconds.
_SMALL_BYTES: Final = 1_024
# Of requests that have not begun: some of the largest that there are. Who has no room asks again.
_MAX_WAITING: Final = 1_000
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024


class Waiting(Protocol):
    """Whoever owns a ticket."""

    def take_turn(self) -> None:
        """Go on: the answer is there."""


class QuotaDesk:
    """The quotas that are administered at this proxy. All of it belongs to the loop.

    Args:
        config: What the process is started with.
        on_changes: See ``OnChanges``.
        wall_ms: Returns Unix time.
    """

    def __init__(self, config: ProxyConfig, *, on_changes: OnChanges, wall_ms: Callable[[], int] = unix_ms) -> None:
        store = config.store
        self._wall_ms = wall_ms
        self._in_force = InForce(config, name="" if store is None else store.directory, now_ms=wall_ms())
        self._timer = QuotaTimer(self._in_force, on_changes=self._by_time, wall_ms=wall_ms)
        self._keeper: Keeper | None = None
        if store is not None:
            self._keeper = DirectoryKeeper(store.directory, self._hold, self._in_force.stored)
        self._on_changes = on_changes
        self._hosts = HostFinder(on_found=self._know)
        # What is read of the rules in this thread nobody changes meanwhile.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quotas")
        self._waiting: deque[Ticket] = deque()
        self._has_come = asyncio.Event()
        self._is_open = False
        self._untold: list[Changes] = []
        self._addresses: Addresses = {}  # of the hosts in the request that was looked at last

    @property
    def quotas(self) -> tuple[QuotaRule, ...]:
        """Every rule of users and client-ids that holds: the file's, and the store's."""
        return self._in_force.quotas

    @property
    def ip_quotas(self) -> tuple[IpRule, ...]:
        """Every rule of addresses that holds."""
        return self._in_force.ip_quotas

    @property
    def keeper(self) -> Keeper | None:
        """Who keeps what is set here; None: nothing can be."""
        return self._keeper

    @property
    def entities(self) -> int:
        """How many entities have quotas that were set here."""
        return len(self._in_force.stored)

    @property
    def unknown_hosts(self) -> int:
        """How many hosts have a limit that does not hold, for no address of theirs is known."""
        return len(self._in_force.unknown_hosts)

    def follow_file(self, config: ProxyConfig) -> Changes:
        """Take the file's rules from now on; return what has changed that ``on_changes`` was not told of."""
        changes = together(*self._untold, self._in_force.follow_file(config, now_ms=self._wall_ms()))
        self._untold = []
        self._timer.wake()
        for double in self._in_force.doubles:
            log.warning("%s", double)
        return changes

    def submit(self, frame: bytes, principal: str, owner: object) -> Ticket | None:
        """Begin to answer a request. See ``proxy.administration.Desk``."""
        if not self._has_room(len(frame)):
            self._waiting = deque(ticket for ticket in self._waiting if not ticket.is_dropped)
            if not self._has_room(len(frame)):
                return None
        ticket = Ticket(frame, principal, owner)
        self._waiting.append(ticket)
        self._has_come.set()
        return ticket

    def _has_room(self, size_bytes: int) -> bool:
        waiting = self._waiting
        return len(waiting) < _MAX_WAITING and sum(len(one.frame) for one in waiting) + size_bytes <= _MAX_WAITING_BYTES

    async def read(self) -> None:
        """Read what is kept, before anybody is served. It is among what ``follow_file`` returns next.

        Raises:
            OSError: It cannot be used, or another process does.
            ForeignStoreError: Another program has written it.
        """
        if self._keeper is None:
            return
        await self._keeper.open()
        self._untold.append(self._in_force.know(await find_hosts(self._in_force.unknown_hosts)))
        self._hosts.follow(self._in_force.unknown_hosts)
        self._is_open = True

    async def run(self) -> None:
        """Answer, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hosts.run())
            tasks.create_task(self._timer.run())
            if self._keeper is not None:
                tasks.create_task(self._keeper.run())
            while True:
                while self._waiting:
                    ticket = self._waiting.popleft()
                    if not ticket.is_dropped:
                        await self._serve(ticket)
                self._has_come.clear()
                await self._has_come.wait()

    async def stop(self) -> None:
        """Let go of what is kept."""
        if self._keeper is not None:
            await self._keeper.close()
        self._thread.shutdown()

    async def _serve(self, ticket: Ticket) -> None:
        """Answer a request, and wake its owner."""
        is_small = len(ticket.frame) <= _SMALL_BYTES
        try:
            request = await self._beside(is_small, read_request, ticket.frame)
        except ProtocolError as error:
            ticket.error = error
        else:
            ticket.answer = await self._answer_in_any_case(request, ticket.principal, is_small)
        # Who was there when it came may be gone. What he does with his answer is no matter of the desk's.
        if not ticket.is_dropped:
            asyncio.get_running_loop().call_soon(cast(Waiting, ticket.owner).take_turn)

    async def _answer_in_any_case(self, request: QuotaRequest, principal: str, is_small: bool) -> bytes:
        try:
            return await self._answer(request, principal, is_small)
        except Exception:
            # Of a fault here those that follow are to feel nothing, nor are clients.
            log.exception("a request of %s about quotas could not be answered", principal)
            return await self._off_loop(refusal, request, UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR_MESSAGE)

    async def _answer(self, request: QuotaRequest, principal: str, is_small: bool) -> bytes:
        if isinstance(request, DescribeRequest):
            return await self._off_loop(_described, self._in_force.rules, request)
        results = await self._alter(request, principal, is_small)
        return await self._beside(is_small, _altered, results, request)

    async def _alter(self, request: AlterRequest, principal: str, is_small: bool) -> tuple[Altered, ...]:
        keeper = self._keeper
        if keeper is None:
            return refuse_alter(request, POLICY_VIOLATION, "No quota can be changed here: there is no store for them")
        hosts = hosts_of(request)
        addresses = await find_hosts(hosts) if hosts else {}
        decision = await self._beside(is_small, self._decide, request, addresses)
        if not decision.changes:
            return decision.results
        self._addresses = addresses
        try:
            await keeper.keep(decision.changes)
        except NotKeptError as error:
            return refuse_alter(request, error.error_code, str(error))
        _say(principal, decision.changes)
        return decision.results

    async def _hold(self, changes: Sequence[Change]) -> None:
        """Put in force what is kept."""
        for begin in range(0, len(changes), _AT_ONCE):
            told = self._in_force.change(changes[begin : begin + _AT_ONCE], self._addresses, now_ms=self._wall_ms())
            self._untold.append(told)
            if not self._is_open:
                continue
            self._tell()
            if told.ips:
                self._hosts.follow(self._in_force.unknown_hosts)
            await asyncio.sleep(0)
        self._timer.wake()

    def _decide(self, request: AlterRequest, addresses: Addresses) -> Decision:
        in_force = self._in_force
        return decide(in_force.stored, request, is_host=addresses.__contains__, sources=in_force.sources)

    def _tell(self) -> None:
        """Tell of what has changed. What cannot be put in force is told again with what changes next."""
        self._on_changes(*together(*self._untold))
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


def _described(rules: Mapping[Entity, StoredRule], request: DescribeRequest) -> bytes:
    return write_describe_response(
        describe(rules, request), correlation_id=request.correlation_id, api_version=request.api_version
    )


def _altered(results: tuple[Altered, ...], request: AlterRequest) -> bytes:
    return write_alter_response(
        AlterResponse(0, results), correlation_id=request.correlation_id, api_version=request.api_version
    )


def _say(principal: str, changes: Iterable[Change]) -> None:
    for entity, rule in changes:
        said: dict[str, object] = {**rule.limits, **written_terms(rule.terms)} if rule else {}
        words = ", ".join(f"{key}={value}" for key, value in said.items()) or "none"
        log.info("%s set the quotas of %s: %s", principal, entity, words)
