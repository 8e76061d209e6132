"""Tests the client for a cluster: a failed connect leaves no socket open, and no password is logged."""

import asyncio
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kafka_quota_proxy.config.model import Address, AdminClient, Cluster, Listener, ProxyConfig
from kafka_quota_proxy.config.security import SaslMechanism, SecurityProtocol
from kafka_quota_proxy.proxy.kafka_client.admin_client import ADMIN_ERRORS, ClusterClient
from kafka_quota_proxy.proxy.kafka_client.admin_requests import Metadata, TableRequest
from kafka_quota_proxy.proxy.replication.cluster_view import servers_behind

T = TypeVar("T")
BIND = Address(host="127.0.0.1", port=0)


def closed_address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return Address(host="127.0.0.1", port=free.getsockname()[1])


def open_sockets() -> int:
    return sum(1 for entry in Path("/proc/self/fd").iterdir() if is_socket(entry))


def is_socket(entry: Path) -> bool:
    try:
        return entry.is_socket()
    except OSError:  # the descriptor of the directory that is being read
        return False


def test_failed_connect_is_an_error_and_leaves_no_thread_or_socket() -> None:
    threads, sockets = threading.active_count(), open_sockets()

    with pytest.raises(ConnectionError) as caught:
        ClusterClient(AdminClient(), (closed_address(),), timeout_ms=200)

    assert isinstance(caught.value, ADMIN_ERRORS)
    assert "the brokers are away, or require another security_protocol, certificate or login" in str(caught.value)
    assert threading.active_count() == threads
    assert open_sockets() == sockets  # at once, and not at the next garbage collection


class Scripted(ClusterClient):
    """A client whose brokers answer from ``logs``, by node id. The others refuse the connection."""

    def __init__(self, logs: dict[int, list[tuple[str, list[tuple[int, int, int, bool]]]]]) -> None:
        self.logs = logs
        self._timeout_ms = 1_000

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    async def _metadata(self, topics: Sequence[str] | None) -> Metadata:
        self._controller_id = 3
        return Metadata((), 3, ())

    async def _from_any(self, request: TableRequest) -> Any:  # noqa: ANN401
        return 0, 0, None, [("orders", [(0, (1, 2), (2,), ())])]

    async def _from_broker(self, request: TableRequest, node_id: int) -> Any:  # noqa: ANN401
        if node_id not in self.logs:
            raise ConnectionRefusedError(111, "refused")
        return 0, None, [(0, "/data", self.logs[node_id], None, None, None)]


def test_sizes_of_brokers_that_answer_are_known_while_another_is_away() -> None:
    client = Scripted({1: [("orders", [(0, 100, 0, False), (1, 5, 0, True)])], 2: [("orders", [(0, 7, 93, False)])]})

    found = client.log_sizes({"orders": [0, 1]}, [1, 2, 3])

    assert found.sizes == {(1, "orders", 0): 100, (2, "orders", 0): 7}
    assert {node_id: str(error) for node_id, error in found.failures.items()} == {3: "[Errno 111] refused"}


def test_reassignments_are_known_while_the_broker_that_metadata_names_as_controller_is_away() -> None:
    assert Scripted({}).reassignments() == {("orders", 0): (2,)}


def test_a_password_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    password = tmp_path / "password"
    settings = AdminClient(
        bootstrap_servers=(closed_address(),),
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism.PLAIN,
        sasl_username="proxy",
        sasl_password_file=str(password),
    )
    with pytest.raises(OSError, match=str(password)) as missing:
        ClusterClient(settings, (), timeout_ms=200)
    assert isinstance(missing.value, ADMIN_ERRORS)
    password.write_text("hunter2\nsecond line\n", encoding="utf-8")

    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectionError) as caught:
        ClusterClient(settings, (), timeout_ms=200)

    assert "hunter2" not in caplog.text + str(caught.value)
    assert "hunter2" not in repr(settings)


def test_servers_behind_inter_broker_listeners_are_each_named_once() -> None:
    one, other, third = (Address(host="k", port=port) for port in (1, 2, 3))
    config = ProxyConfig(
        listeners=(
            Listener(name="a", bind=BIND, upstream=one, inter_broker=True),
            Listener(name="b", bind=BIND, upstream=one, inter_broker=True),
            Listener(name="c", bind=BIND, upstream=other),
            Listener(
                name="d",
                bind=BIND,
                cluster=Cluster(bootstrap_servers=(third,), advertised_host="h", first_port=5, last_port=9),
                inter_broker=True,
            ),
        )
    )

    assert servers_behind(config) == (one, third)


def test_a_proxy_that_needs_no_kafka_client_does_not_load_it() -> None:
    package = "kafka_quota_proxy.proxy"
    modules = f"{package}.__main__, {package}.cli.run, {package}.server.server"
    others = "{'kafka', 'aiokafka'}"
    program = f"import sys, {modules}; sys.exit(bool({others} & sys.modules.keys()))"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
