"""Tests when the log reports that clients begin to be throttled and no longer are, and what it says of them."""

import json
import logging
from collections import Counter
from typing import Any

import pytest

from kafka_quota_proxy.config.model import DEFAULT, KafkaSettings, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.cli.logging_setup import JsonFormatter
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.server.clients.throttle_log import ThrottleLog
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.counters import Counters

RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, source="proxy.yaml:7")
HOST = "10.0.0.5"
SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000

pytestmark = pytest.mark.usefixtures("_all_levels")


@pytest.fixture
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


class World:
    """Throttled clients of one listener, and the log that is written each second."""

    def __init__(self, caplog: pytest.LogCaptureFixture, *, kafka: KafkaSettings | None = None) -> None:
        self.now_ms = 0
        self.lines_of_minute: Counter[int] = Counter()
        self.caplog = caplog
        self._kafka = kafka
        self._counters = Counters()
        self._log = ThrottleLog()
        self._manager = self.broker(RULE)

    def broker(
        self, *rules: QuotaRule, kind: QuotaKind = QuotaKind.PRODUCE, shaping: Shaping = Shaping.SAMPLED
    ) -> ClientQuotaManager:
        return ClientQuotaManager(kind, rules, kafka=self._kafka, shaping=shaping)

    def charge(self, amount: int, *, client_id: str = "etl", manager: ClientQuotaManager | None = None) -> int:
        """Charge the client, and return for how long it has to wait."""
        return self._bucket(client_id, manager).charge(amount, now_ms=self.now_ms)

    def throttle(
        self,
        wait_ms: int = 1_000,
        *,
        client_id: str = "etl",
        host: str = HOST,
        manager: ClientQuotaManager | None = None,
        is_observed: bool = False,
        waits_for: BlockedBy = BlockedBy.THROTTLE_TIME,
    ) -> None:
        """Throttle the client as a session does."""
        bucket = self._bucket(client_id, manager)
        waits = (0, None) if is_observed else (wait_ms, waits_for)
        self._counters.throttled(bucket, host, *waits, now_ms=self.now_ms)
        if is_observed:
            bucket.observe(wait_ms, took_ms=0, now_ms=self.now_ms)
        else:
            bucket.throttled(wait_ms, now_ms=self.now_ms)

    def _bucket(self, client_id: str, manager: ClientQuotaManager | None) -> Bucket:
        used = self._manager if manager is None else manager
        return used.bucket(user="ANONYMOUS", client_id=client_id, now_ms=self.now_ms)

    def sweep(self) -> None:
        """Write the log at the end of the current second."""
        newly_throttled, self._counters.newly_throttled = self._counters.newly_throttled, {}
        before = len(self.caplog.records)
        self._log.write([newly_throttled], now_ms=self.now_ms)
        self.lines_of_minute[self.now_ms // MINUTE_MS] += len(self.caplog.records) - before

    def wait(self, time_ms: int) -> None:
        """Let time pass, with a sweep each second."""
        for _ in range(time_ms // SECOND_MS):
            self.sweep()
            self.now_ms += SECOND_MS
        self.sweep()

    def events(self) -> list[tuple[str, str]]:
        """Return the log level and the event of each line."""
        return [(record.levelname, vars(record)["event"]) for record in self.caplog.records]

    def fields(self) -> dict[str, Any]:
        """Return the last line in its JSON form, without the fields that each line has."""
        line: dict[str, Any] = json.loads(JsonFormatter().format(self.caplog.records[-1]))
        return {key: line[key] for key in line if key not in ("time", "logger", "level", "message")}

    def message(self) -> str:
        return self.caplog.messages[-1]


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    return World(caplog)


BEGAN = "throttle_began"
ENDED = "throttle_ended"


def test_beginning_names_the_client_address_rate_limit_and_rule(world: World) -> None:
    world.charge(63_000)
    world.throttle(2_600)
    world.sweep()

    # 63,000 B in a window of 10 s
    assert world.message() == (
        "throttled: client-id='etl' from 10.0.0.5; waits for throttle_time; producer_byte_rate: limit 500 bytes per "
        "second, 6300 bytes (6.3 kB) per second in the last 11 s; rule client-id <default> (proxy.yaml:7), level 8 of "
        "8: default client-id"
    )
    assert world.fields() == {
        "event": BEGAN,
        "kind": "produce",
        "user": "",
        "client_id": "etl",
        "addresses": [HOST],
        "waits_for": "throttle_time",
        "rate": 6_300.0,
        "limit": 500.0,
        "rule": {"user": None, "client-id": "<default>", "source": "proxy.yaml:7"},
        "rule_level": 8,
        "enforced": True,
    }


@pytest.mark.parametrize(
    ("how", "expected"),
    [({"waits_for": BlockedBy.DELAYED_ANSWER}, "delayed_answer"), ({"is_observed": True}, None)],
)
def test_line_says_what_the_client_waits_for_until_it_no_longer_waits(
    world: World, how: dict[str, Any], expected: str | None
) -> None:
    world.charge(63_000)
    world.throttle(1_000, **how)
    world.sweep()

    assert world.fields()["waits_for"] == expected
    assert ("waits for delayed_answer; " in world.message()) is (expected is not None)
    world.wait(40_000)
    assert (world.events()[-1][1], world.fields()["waits_for"]) == (ENDED, None)
    assert "waits for" not in world.message()


def test_end_tells_how_long_the_client_was_throttled(world: World) -> None:
    world.charge(63_000)
    world.throttle(2_000)
    world.wait(10_000)
    world.charge(1_400)
    world.throttle(3_000)
    world.throttle(4_000)
    world.wait(33_000)
    assert world.events() == [("WARNING", BEGAN)]
    world.wait(1_000)

    assert world.events() == [("WARNING", BEGAN), ("INFO", ENDED)]
    assert world.message().startswith(
        "no longer throttled: client-id='etl' from 10.0.0.5; this lasted 14.0 s; producer_byte_rate: limit 500 bytes "
        "per second, 0 bytes per second in the last 11 s; rule "
    )
    assert (world.fields()["rate"], world.fields()["duration_ms"]) == (0.0, 14_000)


def test_bursts_and_waits_of_a_sampled_quota_are_one_period(world: World) -> None:
    waits = 0
    while world.now_ms < 240_000:
        wait_ms = world.charge(1_000)
        if wait_ms > 0:
            world.throttle(wait_ms)
            waits += 1
        world.wait(max(wait_ms // SECOND_MS, 1) * SECOND_MS)
    world.wait(60_000)

    assert waits > 20
    assert [event for _, event in world.events()] == [BEGAN, ENDED]


def test_many_addresses_are_counted_up_to_a_bound(world: World) -> None:
    for number in range(4):
        world.throttle(client_id="few", host=f"10.0.0.{number}")
    for number in range(20):
        world.throttle(client_id="many", host=f"10.0.0.{number % 10}")
    world.sweep()
    for number in range(10, 100):
        world.throttle(client_id="many", host=f"10.0.0.{number}")
    world.wait(40_000)

    few, many = world.caplog.messages[-2:]
    assert few.startswith("no longer throttled: client-id='few' from 10.0.0.0 and 3 more; ")
    assert many.startswith("no longer throttled: client-id='many' from 10.0.0.0 and at least 15 more; ")
    assert len(world.fields()["addresses"]) == 16


def test_client_at_several_brokers_has_one_period(world: World) -> None:
    one, other = world.broker(RULE), world.broker(RULE)
    world.charge(10_000, manager=one)
    world.charge(90_000, manager=other)
    world.throttle(5_000, manager=one)
    world.throttle(2_000, manager=other)
    world.sweep()
    assert world.fields()["rate"] == 9_000.0
    world.wait(40_000)

    assert [event for _, event in world.events()] == [BEGAN, ENDED]
    assert world.fields()["duration_ms"] == 5_000


def test_hostile_names_stay_on_their_line(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog)
    name = "a\nb\x1b[2J\u202e\ud800"
    world.throttle(
        client_id=name, manager=world.broker(QuotaRule(client_id=name, producer_byte_rate=1.0, source="f:1"))
    )
    world.sweep()

    assert world.message().isprintable()
    assert world.fields()["client_id"] == name


def test_flood_of_names_fills_neither_the_log_nor_the_memory(world: World) -> None:
    for _ in range(59):
        for number in range(1_050):
            world.throttle(1_000, client_id=str(number))
        world.wait(SECOND_MS)
    assert Counter(event for _, event in world.events()) == {BEGAN: 60}
    assert len(world._log._periods) == 1_000

    world.wait(3 * MINUTE_MS)

    assert Counter(event for _, event in world.events()) == {BEGAN: 60, "throttles_not_logged": 1, ENDED: 60}
    assert len(world._log._periods) == 0
    (summary,) = (record for record in world.caplog.records if vars(record)["event"] == "throttles_not_logged")
    assert summary.getMessage().startswith("throttled: other clients too; not named, ")
