"""Tests the choice of free ports."""

import socket

from kafka_quota_proxy.testing.ports import adjacent_ports, free_ports


def test_ports_are_free_and_distinct() -> None:
    first, last = adjacent_ports()
    ports = [*free_ports(3), *range(first, last + 1)]

    assert len(set(ports)) == 3 + 33
    for port in ports:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))
