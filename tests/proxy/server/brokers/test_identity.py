"""Tests which of the brokers in a Metadata response has sent it."""

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.brokers.identity import node_at


def at(host: str, port: int = 9092) -> Address:
    return Address(host=host, port=port)


BROKERS = {1: at("one.example", 9092), 2: at("two.example", 9092), 3: at("10.0.0.3", 9093)}


def test_the_broker_advertised_at_the_place_is_found() -> None:
    assert node_at(BROKERS, frozenset({at("10.0.0.3", 9093)}), {}) == 3
    assert node_at(BROKERS, frozenset({at("two.example", 9092)}), {}) == 2
    assert node_at(BROKERS, frozenset({at("10.0.0.2", 9092)}), {}) is None
    hosts = {"one.example": ("10.0.0.1",), "two.example": ("10.0.0.2", "::ffff:10.0.0.22")}
    assert node_at(BROKERS, frozenset({at("10.0.0.2", 9092)}), hosts) == 2
    assert node_at(BROKERS, frozenset({at("10.0.0.22", 9092)}), hosts) == 2
    assert node_at(BROKERS, frozenset({at("10.0.0.2", 9093)}), hosts) is None


def test_two_brokers_advertised_at_one_place_are_ambiguous() -> None:
    hosts = {"one.example": ("10.0.0.1",), "two.example": ("10.0.0.1",)}
    assert node_at(BROKERS, frozenset({at("10.0.0.1", 9092)}), hosts) is None


def test_a_final_dot_makes_no_other_broker() -> None:
    assert node_at({1: at("a.example."), 2: at("b")}, frozenset({at("a.example")}), {}) == 1
