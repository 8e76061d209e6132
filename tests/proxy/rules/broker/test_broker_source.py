"""Tests the source of brokers' quotas with a scripted reader: its rules, its log, and responses that wait."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Event

import pytest

from kafka_quota_proxy.config.model import (
    Address,
    AdminClient,
    IpRule,
    Listener,
    ProxyConfig,
    QuotaRule,
    QuotasFromBroker,
)
from kafka_quota_proxy.proxy.quota.address_limits import Ip
from kafka_quota_proxy.proxy.quota.entity import Entity as RuleEntity
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.rules.broker import broker_source as module
from kafka_quota_proxy.proxy.rules.broker.broker_rules import ParsedQuotas, RefusedError
from kafka_quota_proxy.proxy.rules.broker.broker_source import BrokerSource
from kafka_quota_proxy.proxy.rules.keeper import RuleKeeper
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from tests.support.stub_broker import eventually

ONE = Address(host="k1", port=1)
BIND = Address(host="h", port=9)
FILE = QuotaRule(user="filed", producer_byte_rate=1.0, source="f.yaml:3")
CONFIG = ProxyConfig(listeners=(Listener(name="a", bind=BIND, upstream=ONE),), quotas=(FILE,))


def rule(**limits: float) -> StoredRule:
    return StoredRule(limits=limits)


class Script:
    """A reader of a broker's quotas that returns ``rules``, or fails."""

    server = ONE

    def __init__(self) -> None:
        self.rules: dict[Entity, StoredRule] = {}
        self.passed_over: tuple[str, ...] = ()
        self.failure: Exception | None = None
        self.readings = self.connects = self.closes = 0
        self.closes_in = 0  # how many of the next readings fail
        self._may_read = Event()
        self._may_read.set()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let readings wait until the block ends."""
        self._may_read.clear()
        try:
            yield
        finally:
            self._may_read.set()

    def connect(self, settings: AdminClient, servers: Sequence[Address]) -> "Script":
        self.connects += 1
        assert servers == (ONE,)
        return self

    def read(self) -> ParsedQuotas | None:
        self.readings += 1
        self._may_read.wait()
        if self.closes_in:
            self.closes_in -= 1
            raise OSError("closed for being idle")
        if self.failure is not None:
            raise self.failure
        return ParsedQuotas(dict(self.rules), self.passed_over)

    def close(self) -> None:
        self.closes += 1


class Followed:
    """A source that reads from a ``Script``, and the changes that it has reported."""

    def __init__(self, *, every_ms: int = 5, config: ProxyConfig = CONFIG) -> None:
        self.script = Script()
        self.wall_ms = 1_800_000_000_000
        self.changes: dict[RuleEntity, QuotaRule | None] = {}
        self.portions: list[int] = []
        self.ips: dict[Ip, IpRule | None] = {}
        self.fails = 0
        self.follower = BrokerSource(QuotasFromBroker(every_ms=every_ms), (ONE,), connect=self.script.connect)
        self.keeper = RuleKeeper(config, self.follower, wall_ms=lambda: self.wall_ms)
        self.keeper.begin(self._take)

    def _take(self, changes: QuotaChanges) -> None:
        if self.fails and any(changes):
            self.fails -= 1
            raise RuntimeError("a fault")
        self.changes |= changes.rules
        self.portions.append(len(changes))
        self.ips |= changes.ips

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.follower.start(self.keeper.apply)
        runs = [asyncio.ensure_future(run()) for run in (self.follower.changes, self.keeper.run)]
        try:
            yield
        finally:
            for run in runs:
                run.cancel()
            await asyncio.wait(runs)

    async def read_again(self, times: int = 2) -> None:
        seen = self.script.readings
        await eventually(lambda: self.script.readings >= seen + times)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BACKOFF_S", 0.01)


async def test_broker_quotas_are_in_force_before_clients_are_served_and_are_followed() -> None:
    followed = Followed()
    followed.script.rules = {Entity(user=f"u{n}"): rule(producer_byte_rate=5.0) for n in range(600)}

    async with followed.running():
        await followed.follower.may_serve.wait()
        assert len(followed.changes) == 600
        assert max(followed.portions) <= 250
        assert followed.keeper.rules.quotas[0] is FILE
        assert followed.keeper.rules.quotas[1] == QuotaRule(user="u0", producer_byte_rate=5.0, source="broker")

        followed.changes.clear()
        del followed.script.rules[Entity(user="u7")]
        followed.script.rules[Entity(user="u8")] = rule(producer_byte_rate=6.0)
        followed.script.rules[Entity(ip="10.0.0.7")] = rule(connection_creation_rate=3.0)
        await eventually(lambda: "10.0.0.7" in followed.ips)

    # No other rule has changed.
    assert followed.changes == {
        ("u7", None): None,
        ("u8", None): QuotaRule(user="u8", producer_byte_rate=6.0, source="broker"),
    }
    assert followed.keeper.rules.ip_quotas == (IpRule(ip="10.0.0.7", connection_creation_rate=3.0, source="broker"),)
    assert followed.script.connects == 1


async def test_the_file_overrules_the_broker_and_that_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    followed = Followed()
    followed.script.rules = {Entity(user="filed"): rule(producer_byte_rate=9.0)}

    async with followed.running():
        await followed.read_again()
        assert followed.keeper.rules.quotas == (FILE,)
        assert followed.changes == {}
        said = "f.yaml:3: user filed has quotas in broker, too; those of the file apply"
        assert caplog.text.count(said) == 1

        # Without the file's rule, the broker's rule is in force. When the file has it again, that is logged again.
        followed.keeper.follow_file(ProxyConfig(listeners=CONFIG.listeners))
        assert [one.limits.get("producer_byte_rate") for one in followed.keeper.rules.quotas] == [9.0]
        followed.keeper.follow_file(CONFIG)
        assert followed.keeper.rules.quotas == (FILE,)
        assert caplog.text.count(said) == 2


async def test_an_unreachable_broker_changes_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    followed = Followed()
    followed.script.rules = {Entity(user="alice"): rule(producer_byte_rate=5.0)}
    follower = followed.follower

    async with followed.running():
        await eventually(lambda: follower.has_read)
        followed.script.failure = OSError("away")
        await eventually(lambda: follower.failures > 2)
        assert not follower.is_connected
        assert follower.status() == {
            "broker": "k1:1", "connected": False, "read": True, "entities": 1,
            "failure": "OSError: away",
        }  # fmt: skip
        assert len(followed.keeper.rules.quotas) == 2
        followed.script.failure = None
        followed.script.rules = {}
        await eventually(lambda: len(followed.keeper.rules.quotas) == 1)
        assert follower.status() == {
            "broker": "k1:1",
            "connected": True,
            "read": True,
            "entities": 0,
        }

    await eventually(lambda: followed.script.closes == followed.script.connects)
    assert [record.getMessage() for record in caplog.records] == [
        "quotas_from broker: k1:1 has quotas of 1 entities",
        "quotas_from broker: cannot be read: OSError: away; trying again, and known quotas still apply",
        "quotas_from broker: k1:1 answers again",
    ]


async def test_without_authorization_clients_are_served_at_once_and_readings_are_rare() -> None:
    followed = Followed()
    followed.script.failure = RefusedError("it may not", is_lasting=True)

    async with followed.running():
        async with asyncio.timeout(5):
            await followed.follower.may_serve.wait()
        await asyncio.sleep(0.1)
        assert followed.script.readings == 1
        assert not followed.follower.has_read


async def test_skipped_entities_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    followed = Followed()
    followed.script.passed_over = ("the unknown key new_rate",)

    async with followed.running():
        await followed.read_again()

    assert caplog.text.count("ignored: the unknown key new_rate") == 1
