"""Tests the quotas on the creation of connections. V and a number name a case of Kafka's own tests.

tests/oracles/test_connections.py compares them with Kafka's class.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kafka_quota_proxy.config.addresses import canonical
from kafka_quota_proxy.config.model import (
    DEFAULT,
    Address,
    Default,
    Enforcement,
    IpRule,
    KafkaSettings,
    Listener,
    ProxyConfig,
)
from kafka_quota_proxy.proxy.quota.address_limits import UNLIMITED_RATE, AddressLimits
from kafka_quota_proxy.proxy.quota.connections import EXPIRES_AFTER_MS, ConnectionQuotas, ListenerQuota
from kafka_quota_proxy.proxy.quota.entity import Tags
from tests.support.rules_in_force import update_addresses

T = 1_767_225_600_000
ONE = "192.168.1.1"
OTHER = "192.168.1.2"
ANY = Address(host="127.0.0.1", port=0)
V55 = KafkaSettings(quota_window_num=2)


def config_of(
    ips: dict[str | Default, float] | None = None,
    *,
    listener: int | None = None,
    broker: int = int(UNLIMITED_RATE),
    kafka: KafkaSettings = V55,
    enforcement: Enforcement = Enforcement.RESPOND,
    max_buckets: int = 100_000,
) -> ProxyConfig:
    return ProxyConfig(
        listeners=(
            Listener(name="clients", bind=ANY, max_connection_creation_rate=listener),
            Listener(name="brokers", bind=ANY, max_connection_creation_rate=listener, inter_broker=True),
        ),
        kafka=replace(kafka, max_connection_creation_rate=broker),
        enforcement=enforcement,
        max_buckets=max_buckets,
        ip_quotas=tuple(IpRule(ip=ip, connection_creation_rate=limit) for ip, limit in (ips or {}).items()),
    )


def rate_of(quotas: ConnectionQuotas, host: str, *, now_ms: int) -> float:
    """Return how many connections per second an address creates, or 0 if no rate is measured for the address."""
    source = quotas._addresses.get(Tags("", canonical(host)))
    return 0.0 if source is None else source.rate.peek(now_ms=now_ms)


def come(listener: ListenerQuota, hosts: Iterable[str], *, at_ms: int = T, every_ms: int = 0) -> list[int]:
    """Open a connection from each address. Return for how many ms each is kept unserved, or 0 if it is served."""
    kept = []
    for turn, host in enumerate(hosts):
        now_ms = at_ms + turn * every_ms
        listener.record(now_ms=now_ms)
        kept.append(listener.record_address(host, served_ms=now_ms, now_ms=now_ms))
    return kept


# -- Kafka's own numbers --


def test_v54_most_specific_rule_of_an_address_wins() -> None:
    """Source: Kafka's ClientQuotasRequestTest.testAlterIpQuotasRequest (V54)."""
    quotas = ConnectionQuotas(config_of({"1.2.3.4": 100.0}))
    assert (quotas.limit_of("1.2.3.4"), quotas.limit_of("5.6.7.8")) == (100.0, UNLIMITED_RATE)

    update_addresses(quotas, config_of({"1.2.3.4": 150.0, DEFAULT: 200.0}))
    assert (quotas.limit_of("1.2.3.4"), quotas.limit_of("5.6.7.8")) == (150.0, 200.0)
    assert quotas.limits.rules() == [("1.2.3.4", 150.0), ("<default>", 200.0)]

    update_addresses(quotas, config_of())
    assert (quotas.limit_of("1.2.3.4"), quotas.limits.rules()) == (UNLIMITED_RATE, [])


def test_v55_changed_limit_counts_earlier_connections() -> None:
    """Source: Kafka's testEnforcedIpConnectionRateQuotaUpdate (V55)."""
    quotas = ConnectionQuotas(config_of({ONE: 20.0}))
    clients = quotas.listener("clients")

    assert come(clients, [ONE] * 40) == [0] * 20 + [50] * 20
    update_addresses(quotas, config_of({ONE: 30.0}))
    assert come(clients, [ONE] * 40).count(0) == 10
    update_addresses(quotas, config_of())
    assert come(clients, [ONE] * 40).count(0) == 40

    assert come(clients, [OTHER] * 40).count(0) == 40
    update_addresses(quotas, config_of({DEFAULT: 20.0}))
    assert come(clients, [OTHER] * 40).count(0) == 20


def test_v55_all_connections_pass_below_the_limit() -> None:
    """Source: Kafka's testIpConnectionRateWhenActualRateBelowLimit (V55)."""
    quotas = ConnectionQuotas(config_of({ONE: 30.0}))

    assert come(quotas.listener("clients"), [ONE] * 200, every_ms=40).count(0) == 200
    assert rate_of(quotas, ONE, now_ms=T + 200 * 40) == 25.0


def test_v55_as_many_connections_pass_as_the_limit_says() -> None:
    """Source: Kafka's testIpConnectionRateWhenActualRateAboveLimit (V55)."""
    kept = come(ConnectionQuotas(config_of({ONE: 20.0})).listener("clients"), [ONE] * 80, every_ms=25)

    assert kept.count(0) == 39
    assert kept.count(0) / 2 == pytest.approx(20, abs=1)


@pytest.mark.parametrize("name", ["clients", "brokers"])
def test_v55_refused_connection_is_taken_back_everywhere(name: str) -> None:
    """Source: Kafka's testRejectedIpConnectionUnrecordedFromConnectionRateQuotas (V55)."""
    quotas = ConnectionQuotas(config_of({ONE: 0.0}))
    listener = quotas.listener(name)

    assert come(listener, [ONE] * 3) == [1_000] * 3
    assert rate_of(quotas, ONE, now_ms=T) == listener.rate.peek(now_ms=T) == quotas.rate.peek(now_ms=T) == 0
    assert listener.refused == 3


def test_v55_address_limit_follows_rule_changes() -> None:
    """Source: Kafka's testIpConnectionRateMetricUpdate (V55)."""
    quotas = ConnectionQuotas(config_of({DEFAULT: 50.0}))
    come(quotas.listener("clients"), [ONE, OTHER])

    def limits(rules: dict[str | Default, float]) -> tuple[float, float]:
        update_addresses(quotas, config_of(rules))
        return quotas.limit_of(ONE), quotas.limit_of(OTHER)

    assert limits({DEFAULT: 50.0}) == (50.0, 50.0)
    assert limits({DEFAULT: 20.0, ONE: 30.0}) == (30.0, 20.0)
    assert limits({ONE: 30.0}) == (30.0, 2_147_483_647)
    assert limits({}) == (2_147_483_647, 2_147_483_647)


def test_limit_of_5_passes_5_of_20_connections_a_second() -> None:
    """With Kafka's eleven windows, the connections of ten seconds pass at once."""
    kept = come(
        ConnectionQuotas(config_of({ONE: 5.0}, kafka=KafkaSettings())).listener("clients"), [ONE] * 1_200, every_ms=50
    )

    assert next(turn for turn, kept_ms in enumerate(kept) if kept_ms) in range(50, 56)
    assert kept.count(0) / 60 == pytest.approx(5, rel=0.1)
    assert max(kept) <= 1_000


# -- listener and broker --


def test_accepting_pauses_until_the_rate_is_at_the_limit() -> None:
    for limits in [{"listener": 5}, {"broker": 5}, {"listener": 5, "broker": 7}]:
        listener = ConnectionQuotas(config_of(**limits, kafka=KafkaSettings())).listener("clients")  # type: ignore[arg-type]

        assert [listener.record(now_ms=T) for _ in range(52)] == [0] * 50 + [200, 400], limits
        assert (listener.paused, listener.pause_time_ms) == (2, 600), limits


def test_inter_broker_listener_is_exempt_from_the_brokers_limit() -> None:
    quotas = ConnectionQuotas(config_of(broker=3, kafka=V55))
    clients, brokers = quotas.listener("clients"), quotas.listener("brokers")

    assert [brokers.record(now_ms=T) for _ in range(100)] == [0] * 100
    assert [clients.record(now_ms=T) for _ in range(4)] == [0, 0, 0, 333]
    assert brokers.record(now_ms=T) == 0


def test_removed_listener_has_no_limit() -> None:
    quotas = ConnectionQuotas(config_of(listener=0))
    clients = quotas.listener("clients")

    update_addresses(quotas, replace(config_of(listener=0), listeners=()))

    assert clients.record(now_ms=T) == 0


def test_observed_listener_counts_but_refuses_no_connection() -> None:
    quotas = ConnectionQuotas(config_of({ONE: 2.0}, broker=3, enforcement=Enforcement.OBSERVE))
    clients = quotas.listener("clients")

    assert come(clients, [ONE] * 4) == [0] * 4
    assert quotas.rate.peek(now_ms=T) == rate_of(quotas, ONE, now_ms=T) == 4
    assert (clients.observed, clients.paused, clients.refused) == (3, 0, 0)


def test_late_refusal_gives_no_credit() -> None:
    """A credit that comes late would stay in the windows longer than the connection itself."""
    quotas = ConnectionQuotas(config_of({ONE: 0.0}, listener=5))
    clients = quotas.listener("clients")
    for turn in range(5):
        clients.record(now_ms=T + turn)

    for turn in range(5):
        assert clients.record_address(ONE, served_ms=T + turn, now_ms=T + 1_500)

    assert clients.rate.peek(now_ms=T + 1_999) > 0
    assert clients.rate.peek(now_ms=T + 3_000) == 0
    assert [clients.record(now_ms=T + 4_000) for _ in range(6)] == [0] * 5 + [200]


# -- addresses --


def test_each_ipv6_address_counts_by_itself() -> None:
    quotas = ConnectionQuotas(config_of({DEFAULT: 1.0}))

    assert come(quotas.listener("clients"), ["2001:db8::1", "2001:db8::2", "2001:db8::1"]) == [0, 0, 1_000]


def test_unlimited_addresses_are_not_stored() -> None:
    quotas = ConnectionQuotas(config_of({ONE: 5.0}))

    come(quotas.listener("clients"), [f"10.0.{n // 256}.{n % 256}" for n in range(1_000)])

    assert quotas.addresses == 0


def test_address_expires_after_an_hour_of_silence() -> None:
    quotas = ConnectionQuotas(config_of({DEFAULT: 5.0, ONE: 5.0}))
    come(quotas.listener("clients"), [ONE, OTHER])

    def left(now_ms: int) -> int:
        for _ in quotas.expire_slices(now_ms=now_ms):
            pass
        return quotas.addresses

    assert left(T + EXPIRES_AFTER_MS) == 2
    come(quotas.listener("clients"), [OTHER], at_ms=T + EXPIRES_AFTER_MS)
    assert left(T + EXPIRES_AFTER_MS + 1) == 1


def test_flood_of_addresses_stays_within_the_bound() -> None:
    quotas = ConnectionQuotas(config_of({DEFAULT: 5.0}, max_buckets=100))
    flood = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(10_000)]

    assert come(quotas.listener("clients"), flood) == [0] * 10_000
    assert (quotas.addresses, quotas.evicted, quotas.overflows) == (100, 9_900, 0)


def test_flood_evicts_no_address_at_its_limit_or_with_a_rule() -> None:
    quotas = ConnectionQuotas(config_of({DEFAULT: 5.0, OTHER: 2.0}, kafka=KafkaSettings(), max_buckets=100))
    clients = quotas.listener("clients")
    come(clients, [ONE] * 50 + [OTHER])
    assert come(clients, [ONE]) != [0]

    come(clients, [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(10_000)])

    assert come(clients, [ONE]) != [0]
    assert rate_of(quotas, OTHER, now_ms=T) == 0.1
    # None of the address's connections counts any more, so its bucket may be evicted.
    come(clients, [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(300)], at_ms=T + 12_000)
    assert rate_of(quotas, ONE, now_ms=T + 12_000) == 0


def test_address_silent_for_longest_is_evicted() -> None:
    quotas = ConnectionQuotas(config_of({DEFAULT: 5.0}, max_buckets=3))
    clients = quotas.listener("clients")
    come(clients, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1"])

    come(clients, ["10.0.0.4"])

    assert [rate_of(quotas, f"10.0.0.{n}", now_ms=T) for n in range(1, 5)] == [2, 0, 1, 1]


def test_reload_changes_the_bound_on_addresses() -> None:
    quotas = ConnectionQuotas(config_of({DEFAULT: 5.0}, max_buckets=3))
    flood = [f"10.0.{n // 256}.{n % 256}" for n in range(300)]
    come(quotas.listener("clients"), flood)
    update_addresses(quotas, config_of({DEFAULT: 5.0}, max_buckets=200))
    come(quotas.listener("clients"), flood)
    assert quotas.addresses == 200

    update_addresses(quotas, config_of({DEFAULT: 5.0}, max_buckets=10))
    come(quotas.listener("clients"), flood)

    assert quotas.addresses == 10


def test_addresses_without_a_place_share_a_rate() -> None:
    quotas = ConnectionQuotas(config_of({DEFAULT: 1.0, OTHER: 1.0}, max_buckets=3))
    clients = quotas.listener("clients")
    come(clients, ["10.0.0.1", "10.0.0.2", "10.0.0.3"])

    assert come(clients, ["10.0.0.4", "10.0.0.5", OTHER]) == [0, 1_000, 0]
    assert (quotas.addresses, quotas.overflows) == (4, 2)
    assert come(clients, ["10.0.0.5"], at_ms=T + 3_000) == [0]
    assert quotas.overflows == 2


# -- spellings and changes --


def test_each_spelling_of_an_address_is_canonical() -> None:
    for host, name in [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:DB8:0:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("not an address", "not an address"),
    ]:
        assert canonical(host) == name, (host, name)


def test_change_returns_addresses_that_gain_or_lose_a_rule() -> None:
    limits = AddressLimits([IpRule(ip="10.0.0.1", connection_creation_rate=1.0)])

    named = limits.change(
        {
            "10.0.0.1": None,
            "::ffff:10.0.0.2": IpRule(ip="::ffff:10.0.0.2", connection_creation_rate=2.0),
            DEFAULT: IpRule(ip=DEFAULT, connection_creation_rate=9.0),
            "10.0.0.3": None,
        }
    )

    assert named == {"10.0.0.1": False, "10.0.0.2": True}
    assert limits.change({"10.0.0.2": IpRule(ip="10.0.0.2", connection_creation_rate=3.0)}) == {}
    assert limits.rules() == [("10.0.0.2", 3.0), ("<default>", 9.0)]
    assert [limits.of(host) for host in ("10.0.0.1", "10.0.0.2")] == [9.0, 3.0]
