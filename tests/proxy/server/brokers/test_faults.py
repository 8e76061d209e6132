"""Tests which fault an exception of a connection to a broker shows, and which broker of a cluster is at an address."""

import socket
import ssl

import pytest

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.brokers.faults import Fault, fault_of
from kafka_quota_proxy.proxy.server.brokers.identity import node_at

BROKER = Address(host="b", port=9092)


@pytest.mark.parametrize(
    ("error", "is_connected", "reason"),
    [
        (TimeoutError(), False, "silent"),
        (TimeoutError(), True, "silent"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] …"),
            False,
            "refused",
        ),
        (OSError(113, "No route to host"), False, "unreachable"),
        (socket.gaierror(-2, "Name or service not known"), False, "unknown_host"),
        (ConnectionResetError(104, "Connection reset by peer"), False, "closed"),
        (ConnectionResetError(104, "Connection reset by peer"), True, "closed"),
        (ssl.SSLError(1, "whatever"), False, "tls_failed"),
    ],
)
def test_each_error_has_a_reason_and_a_later_connection_disproves_only_those_of_dials(
    error: Exception, is_connected: bool, reason: str
) -> None:
    fault = fault_of(error, BROKER, None, after_s=10, is_connected=is_connected)

    assert (fault.reason, fault.is_behind_dial) == (reason, is_connected)
    assert fault.detail


def test_silence_names_its_length() -> None:
    assert fault_of(TimeoutError(), BROKER, None, after_s=10) == Fault(
        "silent", "no response in 10 s; is a firewall in between?"
    )


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
