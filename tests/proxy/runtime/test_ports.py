"""Tests the choice of free ports."""

import socket

from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports


def test_ports_are_free_and_in_a_row() -> None:
    ports = adjacent_ports(33)

    assert list(ports) == list(range(ports[0], ports[0] + 33))
    for port in ports:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))
