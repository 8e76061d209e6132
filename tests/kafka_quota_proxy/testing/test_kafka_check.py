"""Tests how it is found out that no Kafka answers at an address."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports
from kafka_quota_proxy.testing import ThrottlingProxy, kafka_check
from kafka_quota_proxy.testing.kafka_check import why_not_kafka


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Accept one connection, and answer its first bytes, or nothing if ``answer`` is None. Yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                if answer is None:
                    connection.recv(100)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)  # it may never be asked
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(1)


def nowhere() -> str:
    return f"127.0.0.1:{adjacent_ports(1)[0]}"


def test_one_broker_that_answers_is_enough() -> None:
    with ThrottlingProxy() as proxy:
        assert why_not_kafka(f"{nowhere()},{proxy.bootstrap_servers}") == ""
    assert why_not_kafka("no address") == ""


def test_why_no_broker_answers_is_said_of_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_check, "_TIMEOUT_S", 0.2)
    one = nowhere()
    with listening(b"HTTP/1.1 400 Bad Request") as http, listening(b"") as closing, listening(None) as silent:
        assert why_not_kafka(",".join((one, http, closing, silent))) == (
            f"no Kafka answers at {one}: Connection refused; "
            f"{http}: what listens there does not speak Kafka's protocol, or only over TLS; "
            f"{closing}: what listens there does not speak Kafka's protocol, or only over TLS; "
            f"{silent}: no answer within 0.2 s. Start one, or run without an address to use the embedded broker"
        )
