"""Compares quotas on new connections with Kafka's ``ConnectionQuotas``."""

from dataclasses import dataclass, field, replace
from random import Random

from kafka_quota_proxy.config.model import DEFAULT, Address, Default, IpRule, KafkaSettings, Listener, ProxyConfig
from kafka_quota_proxy.proxy.quota.connections import ConnectionQuotas
from tests.oracles.kafka import Kafka
from tests.oracles.seeds import STEPS, each_seed
from tests.support.rules_in_force import update_addresses

T = 1_767_225_600_000
ANY = Address(host="127.0.0.1", port=0)
UNLIMITED = 2**31 - 1


@dataclass
class Both:
    """The quotas of the proxy and of Kafka, with the same limits. Each connection is recorded in both."""

    kafka: Kafka
    samples: int = 11
    broker: int = UNLIMITED
    listener: int = UNLIMITED
    now_ms: int = T
    addresses: dict[str | Default, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kafka.begin_connections(samples=self.samples, broker=self.broker, listener=self.listener)
        self._ours = ConnectionQuotas(self._config())

    def limit_address(self, address: str | Default, limit: int | None) -> None:
        self.addresses.pop(address, None)
        if limit is not None:
            self.addresses[address] = limit
        self.kafka.limit_address(address, limit, now_ms=self.now_ms)
        update_addresses(self._ours, self._config())

    def limit_broker(self, limit: int) -> None:
        self.broker = limit
        self.kafka.limit_broker(limit, now_ms=self.now_ms)
        self._ours.configure(self._config())

    def accept(self, listener: str) -> int:
        """Return for how many ms the listener pauses because of a new connection, by both."""
        pause_ms = self._ours.listener(listener).record(now_ms=self.now_ms)
        assert pause_ms == self.kafka.accept(listener, now_ms=self.now_ms)
        return pause_ms

    def admit(self, listener: str, address: str, served_ms: int) -> int:
        """Return for how many ms the refused connection stays open, by both. It could be served at ``served_ms``."""
        keep_ms = self._ours.listener(listener).record_address(address, served_ms=served_ms, now_ms=self.now_ms)
        assert keep_ms == self.kafka.admit(listener, address, now_ms=self.now_ms)
        return keep_ms

    def come(self, address: str, listener: str = "clients") -> tuple[int, int]:
        """Return the pause of the listener, which passes, and for how many ms the connection stays unserved."""
        pause_ms = self.accept(listener)
        self.now_ms += pause_ms
        return pause_ms, self.admit(listener, address, self.now_ms)

    def _config(self) -> ProxyConfig:
        own = None if self.listener == UNLIMITED else self.listener
        clients = Listener(name="clients", bind=ANY, max_connection_creation_rate=own)
        return ProxyConfig(
            listeners=(clients, replace(clients, name="brokers", inter_broker=True)),
            kafka=KafkaSettings(quota_window_num=self.samples, max_connection_creation_rate=self.broker),
            ip_quotas=tuple(IpRule(ip=ip, connection_creation_rate=limit) for ip, limit in self.addresses.items()),
        )


def test_connection_refused_after_a_pause_of_a_second_is_refunded(kafka: Kafka) -> None:
    both = Both(kafka, listener=1)
    both.limit_address(DEFAULT, 1)
    assert [both.come("10.0.0.1") for _ in range(20)] == [(0, 0)] * 10 + [(1_000, 1_000)] * 10

    assert (both.now_ms, both.accept("clients")) == (T + 10_000, 1_000)
    both.now_ms += 1_000
    assert both.accept("clients") == 0


@each_seed
def test_any_connections_are_decided_as_by_kafka(kafka: Kafka, seeds: range) -> None:
    for seed in seeds:
        walk(kafka, Random(seed))


def walk(kafka: Kafka, chance: Random) -> None:
    limits = [0, 1, 2, 5, 20, UNLIMITED]
    both = Both(kafka, samples=chance.choice([2, 3, 11]), broker=chance.choice(limits), listener=chance.choice(limits))
    both.limit_address(DEFAULT, chance.choice(limits))
    longest_gap_ms = chance.choice([10, 300, 3_000, 20_000])
    names: list[str | Default] = ["10.0.0.1", "10.0.0.2", DEFAULT]
    held: dict[str, int] = {}  # the end of the pause of each listener that pauses
    for _ in range(STEPS):
        next_ms = both.now_ms + chance.choice([0, chance.randint(0, 50), chance.randint(0, longest_gap_ms)])
        listener = min(held, key=held.__getitem__, default="")
        address = f"10.0.0.{chance.randint(1, 3)}"
        if listener and held[listener] <= next_ms:
            served_ms = held.pop(listener)
            both.now_ms = max(both.now_ms, served_ms + chance.choice([0, 0, 20]))
            both.admit(listener, address, served_ms)
            continue
        both.now_ms = next_ms
        free = sorted({"clients", "brokers"} - held.keys())
        if chance.random() < 0.04:
            both.limit_address(chance.choice(names), chance.choice([None, *limits[:5]]))
        elif chance.random() < 0.02:
            both.limit_broker(chance.choice(limits))
        elif free:
            listener = chance.choice(free)
            if pause_ms := both.accept(listener):
                held[listener] = both.now_ms + pause_ms
            else:
                both.admit(listener, address, both.now_ms)
