"""The brokers' own quotas on the loop: read every few seconds, and at once when a client has changed one."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from math import nan
from typing import Final, NamedTuple, Protocol, cast

from kafka_quota_proxy.config.model import Address, AdminClient, IpRule, ProxyConfig, QuotaRule, QuotasFromBroker
from kafka_quota_proxy.protocol.client_quotas import Alteration
from kafka_quota_proxy.proxy.background.in_thread import in_thread
from kafka_quota_proxy.proxy.background.isolation import attempt, kept_up, repeated, report
from kafka_quota_proxy.proxy.client_quotas.api import Ticket, TicketOwner
from kafka_quota_proxy.proxy.client_quotas.host_resolver import HostResolver, Lookups
from kafka_quota_proxy.proxy.client_quotas.rule_timer import OnChanges, RuleTimer
from kafka_quota_proxy.proxy.client_quotas.rule_timer import wall_ms as unix_ms
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import EffectiveRules
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.ip_rules import Addresses
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import NOBODY
from kafka_quota_proxy.proxy.client_quotas.sources.broker_rules import ParsedQuotas, RefusedError, differences, hosts_in
from kafka_quota_proxy.proxy.client_quotas.sources.forwarded_alter import has_changes
from kafka_quota_proxy.proxy.quota.rule_changes import QuotaChanges
from kafka_quota_proxy.proxy.replication.cluster_view import servers_of

log = logging.getLogger(__name__)

# The source of a rule, in the place of FILE:LINE.
SOURCE: Final = "broker"
# How many rules are put in force before others have a turn: some milliseconds.
_AT_ONCE: Final = 250
# A broker shows a change some time after the controller has acknowledged it. It is asked after the first wait, then
# after twice that each time. The last is the longest wait of an answer.
_FIRST_AGAIN_S: Final = 0.01
_MOST_AGAIN_S: Final = 0.25
_LONGEST_WAIT_S: Final = 2.0
# How long until the next attempt after a failure, and after one that needs a change of configuration.
_MOST_BACKOFF_S: Final = 5.0
_LASTING_BACKOFF_S: Final = 30.0
# The bound on waiting answers; one above it is sent at once.
_MOST_WAITING: Final = 1_000
# The bound on different warnings.
_MOST_SAID: Final = 100


class QuotaReader(Protocol):
    """Asks a broker, from one thread at a time. Any exception of a method makes a failed reading."""

    @property
    def server(self) -> Address:
        """Return the broker that is asked."""

    def read(self) -> ParsedQuotas | None:
        """Return the broker's quotas; None if they are those of the last reading."""

    def close(self) -> None:
        """Close its connection. For any thread."""


class _Awaited(NamedTuple):
    """An answer that is held until the broker shows the change that it acknowledges."""

    changed: tuple[Alteration, ...]
    until_s: float  # on the loop's clock


class _Reading(NamedTuple):
    """The result of a reading."""

    server: Address
    told: ParsedQuotas | None
    changes: tuple[Change, ...]


class BrokerSource:
    """Follows the quotas of one cluster. All methods run on the loop, but for ``_ask``, which has a thread.

    Args:
        settings: The file's section.
        config: What the process is started with.
        servers: The brokers to ask.
        on_changes: See ``OnChanges``.
        connect: Returns the reader, in a thread; left out: a ``broker_reader.BrokerReader``.
        wall_ms: Returns Unix time.

    Attributes:
        has_read: Set once they have been read.
        may_serve: Set once clients need not wait for that: they have been, or cannot be.
        is_connected: Whether the last reading worked.
        failures: How often it did not. These are read by metrics as they are.
        readings: How often it did.
        unconfirmed: How many responses were passed on before the broker listed the change that they acknowledge.
        last_read_s: When it worked last, as ``time.time`` has it; NaN before the first.
        server: Who was asked last.
    """

    name = SOURCE

    def __init__(
        self,
        settings: QuotasFromBroker,
        config: ProxyConfig,
        servers: Sequence[Address],
        *,
        on_changes: OnChanges,
        connect: Callable[[AdminClient, Sequence[Address]], QuotaReader] | None = None,
        wall_ms: Callable[[], int] = unix_ms,
    ) -> None:
        self.has_read = asyncio.Event()
        self.may_serve = asyncio.Event()
        self.is_connected = False
        self.failures = self.readings = self.unconfirmed = 0
        self.last_read_s = nan
        self.server: Address | None = None
        self._settings = settings
        self._servers = tuple(servers)
        self._wall_ms = wall_ms
        self._in_force = EffectiveRules(config, name=SOURCE, now_ms=wall_ms())
        # Of the file's rules; a broker's are the same at all times.
        self._timer = RuleTimer(self._in_force, on_changes=on_changes, wall_ms=wall_ms)
        self._on_changes = on_changes
        self._lookups = Lookups()
        self._hosts = HostResolver(self._lookups, on_found=self._take_found)
        self._found: dict[str, tuple[str, ...]] = {}  # addresses of hosts whose rules are not in force yet
        self._connect = connect or _connect
        self._reader: QuotaReader | None = None
        self._failure = ""  # said last
        self._backoff_s = 0.0
        self._rules: Mapping[Entity, StoredRule] = {}  # told last
        self._pending: deque[Change] = deque()  # told, and not in force yet
        self._awaited: dict[Ticket, _Awaited] = {}
        self._again_s = 0.0
        self._is_asked = asyncio.Event()
        self._said: set[object] = set()

    # -- for the server --

    @property
    def quotas(self) -> tuple[QuotaRule, ...]:
        """Every rule of users and client-ids that holds: the file's, and the brokers'."""
        return self._in_force.quotas

    @property
    def ip_quotas(self) -> tuple[IpRule, ...]:
        """Every rule of addresses that holds."""
        return self._in_force.ip_quotas

    def listed(self) -> Iterator[tuple[Entity, StoredRule, str]]:
        """Yield every rule as it was set, with where it is set. For any thread."""
        for one in self._in_force.listed():
            if one.shadowed_by is None:
                yield one.entity, one.rule, one.source

    @property
    def entities(self) -> int:
        """How many entities the brokers have quotas for."""
        return len(self._rules)

    @property
    def overruled(self) -> int:
        """Of how many of these the file has a rule."""
        return sum(1 for entity in self._in_force.sources if entity in self._rules)

    @property
    def unknown_hosts(self) -> int:
        """How many hosts have a limit that does not hold, for no address of theirs is known."""
        return len(self._in_force.unknown_hosts)

    def detail(self) -> dict[str, object]:
        """Return what ``/readyz`` says of it."""
        return {
            "broker": None if self.server is None else str(self.server),
            "connected": self.is_connected,
            "read": self.has_read.is_set(),
            "entities": self.entities,
            "unknown_hosts": self.unknown_hosts,
            **({} if self.is_connected or not self._failure else {"failure": self._failure}),
        }

    def follow_file(self, config: ProxyConfig) -> QuotaChanges:
        """Take the file's rules from now on; return what has changed by that. ``on_changes`` is not called."""
        changes = self._in_force.follow_file(config, now_ms=self._wall_ms())
        self._timer.wake()
        self._said = {one for one in self._said if one in self._in_force.sources or isinstance(one, str)}
        self._tell_of_overruled(entity for entity in self._in_force.sources if entity in self._rules)
        return changes

    def await_change(self, changed: tuple[Alteration, ...], answer: bytes, owner: object) -> Ticket:
        """Read again until the broker lists a change. See ``forwarded_alter.Authority``."""
        ticket = Ticket(answer, NOBODY, owner)
        if len(self._awaited) >= _MOST_WAITING:
            ticket.answer = answer
        else:
            loop = asyncio.get_running_loop()
            self._awaited[ticket] = _Awaited(changed, loop.time() + _LONGEST_WAIT_S)
            # A reading may wait for longer, on an unreachable broker or a name server.
            loop.call_later(_LONGEST_WAIT_S, self._give_up, ticket)
        self._again_s = 0.0
        self._is_asked.set()
        return ticket

    def start(self) -> None:
        """Nothing has to begin before ``run``."""

    async def stop(self) -> None:
        """Nothing is open once ``run`` has been cancelled."""

    async def run(self) -> None:
        """Read again and again, until cancelled; the first time at once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kept_up(self._timer.run))
            tasks.create_task(kept_up(self._hosts.run))
            await kept_up(self._follow)

    async def _follow(self) -> None:
        try:
            while True:
                self._is_asked.clear()
                started_s = time.monotonic()
                await self._read()
                self._answer()
                # A client that changes limits all the time causes readings for half of the time at most.
                await asyncio.sleep(min(time.monotonic() - started_s, _LONGEST_WAIT_S))
                await self._sleep()
        finally:
            self._close()

    # -- within --

    async def _sleep(self) -> None:
        """Wait until the next reading is due, or requested."""
        wait_s = max(self._settings.every_ms / 1_000, self._backoff_s)
        if self._awaited and self.is_connected:
            self._again_s = min(max(_FIRST_AGAIN_S, 2 * self._again_s), _MOST_AGAIN_S)
            wait_s = min(wait_s, self._again_s)
        elif self._awaited:
            # In time for the waiting answers, and no earlier, so that changes of quotas cannot make it spin.
            wait_s = min(wait_s, max(_MOST_AGAIN_S, self._next_end_s()))
            await asyncio.sleep(wait_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._is_asked.wait()

    def _next_end_s(self) -> float:
        return min(one.until_s for one in self._awaited.values()) - asyncio.get_running_loop().time()

    async def _read(self) -> None:
        try:
            reading = await in_thread(self._ask, name="quotas-from")
        except Exception as error:  # noqa: BLE001 - whatever the Kafka client raises, the proxy serves on
            self._fail(error)
            return
        self._succeed(reading)
        if reading.told is not None:
            self._rules = reading.told.rules
            self._pending.extend(reading.changes)
            self._tell_of_passed_over(reading.told.passed_over)
            self._tell_of_overruled(entity for entity, rule in reading.changes if rule is not None)
        try:
            await self._settle()
        except Exception as error:  # noqa: BLE001 - no client hears anything of a fault here but that a limit is late
            report(error, "quotas_from %s: rules could not be put in force; it is tried again", self.name)
            return
        if not self.has_read.is_set():
            log.info("quotas_from %s: %s has quotas of %d entities", self.name, reading.server, self.entities)
        self.has_read.set()
        self.may_serve.set()

    async def _settle(self) -> None:
        """Put the changes in force, in portions; what fails is tried again with the next reading."""
        hosts = hosts_in(self._pending)
        while self._pending:
            some = [self._pending[index] for index in range(min(_AT_ONCE, len(self._pending)))]
            self._on_changes(*self._in_force.change(some, now_ms=self._wall_ms()))
            for _ in some:
                self._pending.popleft()
            await asyncio.sleep(0)
        # After the others, so that an unreachable name server does not hold them up.
        self._answer(but_for=hosts)
        if hosts or self._found:
            self._know(await self._lookups.find(hosts))
        self._hosts.follow(self._in_force.unknown_hosts)

    def _know(self, addresses: Addresses) -> None:
        """Put the limits of hosts in force that have been resolved, now or before."""
        self._found.update(addresses)
        self._on_changes(*self._in_force.update_addresses(self._found))
        self._found = {}

    def _take_found(self, addresses: Addresses) -> None:
        """Put the limits of hosts in force that a later lookup resolved."""
        self._know(addresses)
        self._hosts.follow(self._in_force.unknown_hosts)
        log.info("quotas_from %s: found %s, whose quotas hold from now on", self.name, ", ".join(addresses))

    def _answer(self, *, but_for: Set[str] = frozenset()) -> None:
        """Send the answers whose changes are in force, ``but_for`` those about hosts that are being looked up."""
        if self._pending or not self.is_connected:
            return
        for ticket, one in tuple(self._awaited.items()):
            if any(name in but_for for change in one.changed for _, name in change.entity):
                continue
            if ticket.is_dropped or has_changes(self._rules, one.changed):
                self._let_go(ticket)

    @repeated
    def _give_up(self, ticket: Ticket) -> None:
        """Send an answer that has waited for long enough, if it still waits."""
        if self._let_go(ticket):
            self.unconfirmed += 1
            log.warning(
                "quotas_from %s: a change was acknowledged and the broker has not told of it for %.0f s; it holds "
                "here when it does", self.name, _LONGEST_WAIT_S,
            )  # fmt: skip

    def _let_go(self, ticket: Ticket) -> bool:
        if self._awaited.pop(ticket, None) is None or ticket.is_dropped:
            return False
        ticket.answer = ticket.frame
        asyncio.get_running_loop().call_soon(cast(TicketOwner, ticket.owner).take_turn)
        return True

    def _succeed(self, reading: _Reading) -> None:
        if self._failure:
            log.info("quotas_from %s: %s answers again", self.name, reading.server)
        self._failure, self._backoff_s = "", 0.0
        self.server, self.is_connected = reading.server, True
        self.readings += 1
        self.last_read_s = time.time()

    def _fail(self, error: Exception) -> None:
        self._close()
        self.is_connected = False
        self.failures += 1
        is_lasting = isinstance(error, RefusedError) and error.is_lasting
        failure = str(error) if isinstance(error, RefusedError) else f"{type(error).__name__}: {error}"
        if failure != self._failure:
            self._failure = failure
            log.warning(
                "quotas_from %s: cannot be read: %s; it is tried again, and what is known stays in force",
                self.name, failure,
            )  # fmt: skip
        least_s = self._settings.every_ms / 1_000
        longer_s = min(max(least_s, 2 * self._backoff_s), max(least_s, _MOST_BACKOFF_S))
        self._backoff_s = _LASTING_BACKOFF_S if is_lasting else longer_s
        if is_lasting:
            self.may_serve.set()

    def _tell_of_passed_over(self, passed_over: Iterable[str]) -> None:
        for text in passed_over:
            if self._is_news(text):
                log.warning("quotas_from %s: passed over: %s", self.name, text)

    def _tell_of_overruled(self, entities: Iterable[Entity]) -> None:
        for entity in entities:
            source = self._in_force.sources.get(entity)
            if source is not None and self._is_news(entity):
                log.warning(
                    "%s: %s has quotas at the broker, too; those of the file hold here, and its own there: remove "
                    "one", source, entity,
                )  # fmt: skip

    def _is_news(self, what: object) -> bool:
        if what in self._said or len(self._said) >= _MOST_SAID:
            return False
        self._said.add(what)
        return True

    def _ask(self) -> _Reading:
        """Read, in the thread. There is one at a time."""
        is_kept = self._reader is not None
        try:
            reader, told = self._read_once()
        except RefusedError:
            raise
        except Exception:
            if not is_kept:
                raise
            # Kept since the last reading: brokers close what is idle.
            self._close()
            reader, told = self._read_once()
        changes = () if told is None else differences(self._rules, told.rules)
        return _Reading(reader.server, told, changes)

    def _read_once(self) -> tuple[QuotaReader, ParsedQuotas | None]:
        reader = self._reader
        if reader is None:
            reader = self._reader = self._connect(self._settings.client, self._servers)
        return reader, reader.read()

    def _close(self) -> None:
        """Close the connection. A hanging thread is not waited for."""
        reader, self._reader = self._reader, None
        if reader is not None:
            threading.Thread(target=attempt, args=(reader.close,), name="quotas-close", daemon=True).start()


def broker_source(
    config: ProxyConfig, *, on_changes: OnChanges, wall_ms: Callable[[], int] = unix_ms
) -> BrokerSource | None:
    """Return what follows the brokers' quotas, where these are the rules; else None."""
    settings = config.quotas_from
    if not isinstance(settings, QuotasFromBroker):
        return None
    servers = settings.client.bootstrap_servers or servers_of(config.listeners)
    return BrokerSource(settings, config, servers, on_changes=on_changes, wall_ms=wall_ms)


def _connect(settings: AdminClient, servers: Sequence[Address]) -> QuotaReader:
    # Imported here: it loads aiokafka, which costs time and memory where no cluster is asked.
    from kafka_quota_proxy.proxy.client_quotas.sources.broker_reader import BrokerReader

    return BrokerReader(settings, servers)
