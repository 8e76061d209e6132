"""Tests which source of rules a configuration names, and the status of a rule at a given time."""

from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import (
    Address,
    AdminClient,
    Enforcement,
    Listener,
    ProxyConfig,
    QuotasFrom,
    QuotasFromBroker,
    Store,
)
from kafka_quota_proxy.config.schedule import Schedule
from kafka_quota_proxy.config.term_values import parse_instant_ms
from kafka_quota_proxy.config.terms import NO_TERMS, Terms
from kafka_quota_proxy.proxy.rules.broker.broker_source import BrokerSource
from kafka_quota_proxy.proxy.rules.codec import JsonFormError, read_status, status_as_json
from kafka_quota_proxy.proxy.rules.configured import source_of
from kafka_quota_proxy.proxy.rules.effective import ListedRule, RuleStatus, status_of
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from kafka_quota_proxy.proxy.rules.sqlite.directory_store import DirectoryStore
from kafka_quota_proxy.proxy.rules.text import format_status
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource

P, RATE = "producer_byte_rate", "connection_creation_rate"
ALICE = Entity("alice")
NOON_MS = parse_instant_ms("2026-11-23T12:00:00Z")  # a Monday
HOUR_MS = 3_600_000
OFFICE = Schedule(time_zone="UTC", days=frozenset(range(5)), begin_minute=480, end_minute=1080)


def at(rule: StoredRule, *, at_ms: int = NOON_MS, entity: Entity = ALICE) -> RuleStatus | None:
    return status_of(ListedRule(entity, rule, "f.yaml:1", can_change=False), now_ms=at_ms)


def shown(terms: Terms, *, at_ms: int = NOON_MS, entity: Entity = ALICE, key: str = P) -> str:
    now = at(StoredRule(limits={key: 2.0}, terms=terms), at_ms=at_ms, entity=entity)
    assert read_status(None if now is None else status_as_json(now)) == now
    return format_status(now)


def test_rule_without_times_has_no_status() -> None:
    assert at(StoredRule(limits={P: 2.0})) is None
    assert shown(NO_TERMS) == ""
    observed = at(StoredRule(limits={P: 2.0}, terms=Terms(enforcement=Enforcement.OBSERVE)))
    assert observed == ({P: 2.0}, "")
    assert shown(Terms(enforcement=Enforcement.OBSERVE)) == ""


def test_expired_rule_does_not_hold() -> None:
    terms = Terms(expires_ms=NOON_MS)
    assert shown(terms, at_ms=NOON_MS - 1) == "; now: producer_byte_rate=2, expires at 2026-11-23T12:00:00Z"
    assert shown(terms) == "; now: nothing, expired at 2026-11-23T12:00:00Z"


def test_rule_outside_its_schedule_does_not_hold_or_has_its_other_limits() -> None:
    evening_ms = NOON_MS + 7 * HOUR_MS
    within = "; now: producer_byte_rate=2, within its schedule (mon-fri 08:00-18:00 UTC) until 2026-11-23T18:00:00Z"
    assert shown(Terms(schedule=OFFICE)) == within
    outside = "outside its schedule (mon-fri 08:00-18:00 UTC)"
    again = "; now: nothing, " + outside + ", again at 2026-11-24T08:00:00Z"
    assert shown(Terms(schedule=OFFICE), at_ms=evening_ms) == again
    other = Schedule(
        time_zone="UTC", days=OFFICE.days, begin_minute=480, end_minute=1080, otherwise=((P, 8.0 * 1_048_576),)
    )
    told = shown(Terms(schedule=other), at_ms=evening_ms)
    limits = "the limits under otherwise apply until 2026-11-24T08:00:00Z"
    assert told == f"; now: producer_byte_rate=8MiB, {outside}: {limits}"


@pytest.mark.parametrize(
    "given", [3, [], {}, {"limits": 3, "why": ""}, {"limits": {P: "x"}, "why": ""}, {"limits": {}}]
)
def test_malformed_status_is_refused(given: object) -> None:
    with pytest.raises(JsonFormError, match="now"):
        read_status(given)


BROKER = Address(host="127.0.0.1", port=19092)
LISTENER = Listener(name="a", bind=Address(host="127.0.0.1", port=9092), upstream=BROKER)
TOPIC = QuotasFrom(topic="t", client=AdminClient(bootstrap_servers=(Address(host="k", port=9092),)))


def config(store: Store | None = None, quotas_from: QuotasFrom | QuotasFromBroker | None = None) -> ProxyConfig:
    return ProxyConfig(listeners=(LISTENER,), store=store, quotas_from=quotas_from)


def test_without_a_store_there_is_none() -> None:
    assert source_of(config()) is None


async def test_directory_makes_a_directory_store(tmp_path: Path) -> None:
    one = source_of(config(Store(directory=str(tmp_path))))

    assert isinstance(one, DirectoryStore)
    assert (one.name, one.writer, one.has_read) == (str(tmp_path), one, False)
    await one.stop()


def test_topic_makes_a_store() -> None:
    one = source_of(config(Store(topic=TOPIC)))
    assert isinstance(one, TopicSource)
    assert (one.name, one.writer) == ("kafka://k:9092/t", one)


def test_followed_sources_are_not_written() -> None:
    for settings, kind in ((TOPIC, TopicSource), (QuotasFromBroker(), BrokerSource)):
        one = source_of(config(quotas_from=settings))
        assert isinstance(one, kind)
        assert (one.writer, one.is_connected, one.has_read, one.may_serve.is_set()) == (None, False, False, False)
        assert {"connected": False, "read": False}.items() <= one.status().items()
