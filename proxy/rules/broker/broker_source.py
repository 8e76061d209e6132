"""Makes the proxy apply the quotas that are set at the brokers themselves (``quotas_from: broker``).

The quotas are read every few seconds.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import Final, NamedTuple, Protocol

from kafka_quota_proxy.config.model import Address, AdminClient, QuotasFromBroker
from kafka_quota_proxy.proxy.rules.broker.broker_rules import ParsedQuotas, RefusedError
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule, differences
from kafka_quota_proxy.proxy.rules.source import ApplyChanges
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.isolation import attempt, report

log = logging.getLogger(__name__)

# The source of a rule from the brokers. A rule of the configuration file has FILE:LINE in its place.
SOURCE: Final = "broker"
# The longest wait after most failures, and the wait after a failure that only a change of configuration can end.
_MOST_BACKOFF_S: Final = 5.0
_LASTING_BACKOFF_S: Final = 30.0
# The highest number of different warnings.
_MOST_WARNINGS: Final = 100


class QuotaReader(Protocol):
    """The interface of ``broker_reader.BrokerReader``, which reads a broker's quotas.

    If a method raises an exception, call ``close``.
    """

    @property
    def server(self) -> Address:
        """The address of the broker from which the quotas are read."""

    def read(self) -> ParsedQuotas | None:
        """Return the broker's quotas, or None if they are the same as at the last call."""

    def close(self) -> None:
        """Close the connection. May be called from any thread."""


class _Reading(NamedTuple):
    """The result of reading the brokers' quotas once.

    ``quotas`` is None if nothing has changed since the last reading.
    """

    server: Address
    quotas: ParsedQuotas | None
    changes: tuple[Change, ...]


class BrokerSource:
    """A ``QuotaSource`` that reads the quotas of one cluster from its brokers. Use it on the event loop.

    ``connect`` is called in a thread to make a reader. The reader is kept until it fails.

    Attributes:
        readings: How many times the quotas were read successfully.
        last_read_s: The Unix time of the last successful reading, or NaN before the first.
        server: The broker that answered last.
    """

    name = SOURCE
    writer = None

    def __init__(
        self,
        settings: QuotasFromBroker,
        servers: Sequence[Address],
        *,
        connect: Callable[[AdminClient, Sequence[Address]], QuotaReader] | None = None,
    ) -> None:
        self.places: Mapping[Entity, str] = {}
        self.may_serve = asyncio.Event()
        self.has_read = self.is_connected = False
        self.failures = self.readings = 0
        self.last_read_s = nan
        self.server: Address | None = None
        self._settings = settings
        self._servers = tuple(servers)
        self._apply: ApplyChanges
        self._connect = connect or _connect
        self._reader: QuotaReader | None = None
        self._failure = ""  # the last failure that was logged
        self._backoff_s = 0.0
        self._rules: Mapping[Entity, StoredRule] = {}  # the brokers' rules, as they were last read
        self._warned: set[str] = set()

    @property
    def entities(self) -> int:
        """The number of entities that the brokers have quotas for."""
        return len(self._rules)

    def status(self) -> dict[str, object]:
        """Return the state of reading quotas from the brokers, as a part of the response to ``/readyz``."""
        return {
            "broker": None if self.server is None else str(self.server),
            "connected": self.is_connected,
            "read": self.has_read,
            "entities": self.entities,
            **({} if self.is_connected or not self._failure else {"failure": self._failure}),
        }

    async def start(self, apply: ApplyChanges) -> None:
        """Keep ``apply``. The quotas are read in ``changes``."""
        self._apply = apply

    async def stop(self) -> None:
        """Do nothing. ``changes`` closes the connection when it ends."""

    async def changes(self) -> None:
        """Read the brokers' quotas at once and then every few seconds, until cancelled."""
        try:
            while True:
                await self._read()
                await asyncio.sleep(max(self._settings.every_ms / 1_000, self._backoff_s))
        finally:
            self._close()

    # -- within --

    async def _read(self) -> None:
        try:
            reading = await in_thread(self._ask, name="quotas-from")
        except Exception as error:  # noqa: BLE001 - the Kafka client raises more than it documents
            self._fail(error)
            return
        self._succeed(reading)
        if reading.quotas is not None:
            self._rules = reading.quotas.rules
            for text in reading.quotas.passed_over:
                if text not in self._warned and len(self._warned) < _MOST_WARNINGS:
                    self._warned.add(text)
                    log.warning("quotas_from %s: ignored: %s", self.name, text)
        try:
            await self._apply(reading.changes)
        except Exception as error:  # noqa: BLE001 - clients notice only that a limit is late
            report(error, "quotas_from %s: rules could not be applied; trying again", self.name)
            return
        if not self.has_read:
            log.info("quotas_from %s: %s has quotas of %d entities", self.name, reading.server, self.entities)
        self.has_read = True
        self.may_serve.set()

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
                "quotas_from %s: cannot be read: %s; trying again, and known quotas still apply",
                self.name, failure,
            )  # fmt: skip
        least_s = self._settings.every_ms / 1_000
        longer_s = min(max(least_s, 2 * self._backoff_s), max(least_s, _MOST_BACKOFF_S))
        self._backoff_s = _LASTING_BACKOFF_S if is_lasting else longer_s
        if is_lasting:
            self.may_serve.set()

    def _ask(self) -> _Reading:
        """Read the quotas in a thread, one call at a time, and compare them with those that were read before."""
        is_kept = self._reader is not None
        try:
            reader, quotas = self._read_once()
        except RefusedError:
            raise
        except Exception:
            if not is_kept:
                raise
            # Brokers close idle connections, so a connection that was kept open may fail the first time.
            self._close()
            reader, quotas = self._read_once()
        changes = () if quotas is None else differences(self._rules, quotas.rules)
        return _Reading(reader.server, quotas, changes)

    def _read_once(self) -> tuple[QuotaReader, ParsedQuotas | None]:
        reader = self._reader
        if reader is None:
            reader = self._reader = self._connect(self._settings.client, self._servers)
        return reader, reader.read()

    def _close(self) -> None:
        """Close the connection to the broker in a new thread, because closing may hang."""
        reader, self._reader = self._reader, None
        if reader is not None:
            threading.Thread(target=attempt, args=(reader.close,), name="quotas-close", daemon=True).start()


def _connect(settings: AdminClient, servers: Sequence[Address]) -> QuotaReader:
    # Imported only when needed, because aiokafka takes time and memory.
    from kafka_quota_proxy.proxy.rules.broker.broker_reader import BrokerReader

    return BrokerReader(settings, servers)
