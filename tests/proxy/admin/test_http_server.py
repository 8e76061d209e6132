"""Tests the responses of the admin port, and that no client of this port can stall the proxy."""

import asyncio
import gzip
import http.client
import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import DEFAULT, Address, Admin, Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.server.brokers.faults import Fault
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.reloads import Reloads
from tests.support.stub_broker import upstream_of

LOOPBACK = Address(host="127.0.0.1", port=0)
BROKER = Address(host="127.0.0.1", port=19092)
LISTENER = Listener(name="clients", bind=LOOPBACK, upstream=BROKER)
CONFIG = ProxyConfig(listeners=(LISTENER,))


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def ask(port: int, path: str, *, method: str = "GET", host: str = "127.0.0.1", **headers: str) -> Answer:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers), response.read())
    finally:
        connection.close()


PRIVATE = Admin(bind=LOOPBACK)


@asynccontextmanager
async def admin_of(
    server: Server, reloads: Reloads | None = None, admin: Admin = PRIVATE
) -> AsyncIterator[AdminServer]:
    with AdminServer(admin, server, reloads or Reloads()) as admin_server:
        yield admin_server


RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=1e6, consumer_byte_rate=1e6)


def ready_server() -> Server:
    server = Server(ProxyConfig(listeners=(LISTENER,), quotas=(RULE,)))
    server.is_listening = True
    upstream_of(server, BROKER).fault = None
    return server


async def test_metrics_are_prometheus_text_and_compressed_on_request() -> None:
    async with admin_of(Server(CONFIG)) as admin:
        answer = await asyncio.to_thread(ask, admin.port, "/metrics")
        packed = await asyncio.to_thread(ask, admin.port, "/metrics", Accept_Encoding="gzip, deflate")

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert {"kafka_quota_proxy_connections", "kafka_quota_proxy_quota_limit"} <= names
    assert packed.headers["Content-Encoding"] == "gzip"
    assert b"kafka_quota_proxy_connections" in gzip.decompress(packed.body)


async def test_livez_is_200_while_the_loop_runs_and_not_answered_while_it_is_stuck() -> None:
    async with admin_of(Server(CONFIG)) as admin:
        answer = await asyncio.to_thread(ask, admin.port, "/livez")
        with socket.create_connection(("127.0.0.1", admin.port)) as client:
            client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)  # the test blocks the event loop meanwhile

    assert (answer.status, answer.body) == (200, b"alive\n")


async def readiness(admin: AdminServer) -> tuple[int, dict[str, Any]]:
    answer = await asyncio.to_thread(ask, admin.port, "/readyz")
    assert answer.headers["Content-Type"] == "application/json"
    return answer.status, json.loads(answer.body)


async def test_readyz_has_the_state_of_each_part() -> None:
    server, reloads = ready_server(), Reloads()
    upstream = upstream_of(server, BROKER)
    async with admin_of(server, reloads) as admin:
        assert await readiness(admin) == (
            200,
            {"state": "ready", "listeners": True, "configuration": True, "upstreams": {"127.0.0.1:19092": True}},
        )
        reloads.last_reload_successful = False
        status, refused_file = await readiness(admin)
        assert (status, refused_file["configuration"]) == (200, False)
        upstream.failed(Fault("refused", "Connection refused"), is_probe=True)
        status, degraded = await readiness(admin)
        assert (status, degraded["state"]) == (503, "degraded")
        assert degraded["upstreams"] == {"127.0.0.1:19092": False}
        assert degraded["reasons"] == {"127.0.0.1:19092": {"reason": "refused", "detail": "Connection refused"}}
        upstream.fault = None

        server.is_listening = False
        status, starting = await readiness(admin)
        assert (status, starting["state"]) == (503, "starting")
        server.is_listening = True
        server.stop()
        status, draining = await readiness(admin)
        assert (status, draining["state"]) == (503, "draining")
        assert (await asyncio.to_thread(ask, admin.port, "/livez")).status == 200


async def test_any_other_path_is_404_with_a_list_of_paths_and_any_other_method_405() -> None:
    async with admin_of(Server(CONFIG)) as admin:
        for path in ("/status", "/metrics/", "/../etc/passwd", "/%00"):
            answer = await asyncio.to_thread(ask, admin.port, path)
            assert (answer.status, b"/metrics /livez /readyz" in answer.body) == (404, True), path
        for method in ("POST", "DELETE", "HEAD"):
            answer = await asyncio.to_thread(ask, admin.port, "/metrics", method=method)
            assert (answer.status, answer.headers["Allow"]) == (405, "GET"), method


async def test_requests_are_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    async with admin_of(Server(CONFIG)) as admin:
        for path in ("/metrics", "/livez", "/nothing"):
            await asyncio.to_thread(ask, admin.port, path)
        await asyncio.to_thread(leave_early, admin.port)

    assert capfd.readouterr().err == ""


def leave_early(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close the connection with a reset


async def test_ipv6_is_served() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with AdminServer(Admin(bind=Address(host="::1", port=0)), Server(CONFIG), Reloads()) as admin:
        answer = await asyncio.to_thread(ask, admin.port, "/livez", host="::1")

    assert answer.status == 200


async def test_the_port_is_logged_in_use_and_free_after_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka_quota_proxy.proxy.admin.http_server")
    async with admin_of(Server(CONFIG)) as admin:
        port = admin.port
        assert f"admin on http://127.0.0.1:{port}" in caplog.messages
        for host, taken in (("127.0.0.1", port), ("nowhere.invalid", 1)):
            used = Address(host=host, port=taken)
            for binds in (Admin(bind=used), Admin(bind=LOOPBACK, metrics_bind=used)):
                with pytest.raises(StartError, match=f"^cannot listen on {host}:{taken}: ") as refused:
                    AdminServer(binds, Server(CONFIG), Reloads())
                assert refused.value.location == ("admin", "metrics_bind" if binds.metrics_bind else "bind")

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def fill(server: Server, clients: int) -> None:
    """Charge a produce bucket and a fetch bucket for each of ``clients`` client-ids, so that the metrics have them."""
    now_ms = time.monotonic_ns() // 1_000_000
    for number in range(clients):
        for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH):
            bucket = upstream_of(server, BROKER).quotas.bucket(
                kind, principal="ANONYMOUS", client_id=f"client-{number}", now_ms=now_ms
            )
            bucket.charge(1_000 + number, now_ms=now_ms)


# -- the Host header


HOSTS = (
    ("127.0.0.1:{port}", 200),
    ("10.1.2.3", 200),
    ("[::1]:{port}", 200),
    ("localhost:{port}", 200),
    ("Proxy.Example", 200),
    ("proxy.example.:{port}", 200),
    ("proxy.example..", 421),
    ("evil.example:{port}", 421),
    ("127.0.0.1.evil.example", 421),
    ("x@127.0.0.1", 421),
    ("[evil.example]", 421),
    (":{port}", 421),
)


async def test_the_host_name_of_another_site_is_refused() -> None:
    named = Admin(bind=LOOPBACK, hosts=("Proxy.example",))
    async with admin_of(Server(CONFIG), admin=named) as admin:
        for path in ("/", "/metrics", "/quotas"):
            for host, status in HOSTS:
                answer = await asyncio.to_thread(ask, admin.port, path, Host=host.format(port=admin.port))
                assert answer.status == status, (path, host)
                assert (b"or list the name in admin.hosts" in answer.body) == (status == 421), (path, host)


async def test_probes_accept_any_host_name_and_changes_do_not() -> None:
    async with admin_of(ready_server()) as admin:
        answers = [
            await asyncio.to_thread(ask, admin.port, path, method=method, Host="pod.example")
            for method, path in (("GET", "/livez"), ("GET", "/readyz"), ("POST", "/quotas"))
        ]

    assert [answer.status for answer in answers] == [200, 200, 421]


async def test_metrics_bind_serves_only_metrics_and_probes() -> None:
    both = Admin(bind=LOOPBACK, metrics_bind=LOOPBACK)
    async with admin_of(ready_server(), admin=both) as admin:
        assert admin.metrics_port is not None
        answers = {
            path: await asyncio.to_thread(ask, admin.metrics_port, path, Host="kafka-0.kafka:9309")
            for path in ("/metrics", "/livez", "/readyz", "/quotas", "/", "/clients/stream")
        }
        posted = await asyncio.to_thread(ask, admin.metrics_port, "/quotas", method="POST")

    assert [answer.status for answer in answers.values()] == [200, 200, 200, 404, 404, 404]
    assert b"kafka_quota_proxy_connections" in answers["/metrics"].body
    assert (posted.status, posted.body) == (404, b"not found; the paths are /metrics /livez /readyz\n")


async def test_a_slow_request_is_cut_off_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_quota_proxy.proxy.admin.admin_port._DEADLINE_S", 0.2)
    async with admin_of(Server(replace(CONFIG, testing=True))) as admin:
        with socket.create_connection(("127.0.0.1", admin.port)) as client:
            client.sendall(
                b"POST /testing/reset HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
            )
            client.settimeout(3)
            assert await asyncio.to_thread(client.recv, 1) == b""
        monkeypatch.undo()

        assert (await asyncio.to_thread(ask, admin.port, "/livez")).status == 200


@pytest.mark.usefixtures("has_faults")
async def test_a_fault_in_a_scrape_is_logged_and_ends_only_that_scrape(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(CONFIG)
    async with admin_of(server) as admin:
        server.listeners[0].counters.frames = ["many"]  # type: ignore[list-item]
        await asyncio.to_thread(ask, admin.port, "/metrics")
        answer = await asyncio.to_thread(ask, admin.port, "/livez")

    assert "a scrape of /metrics failed" in caplog.text
    assert answer.status == 200


SCRAPER = """
import sys, urllib.request
body = urllib.request.urlopen(sys.stdin.readline()).read()
print(body.count(b"kafka_quota_proxy_bytes_total{"))
"""


async def scraper() -> asyncio.subprocess.Process:
    """Start a process that waits for a URL and then scrapes it, as Prometheus does."""
    pipe = subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-c", SCRAPER, stdin=pipe, stdout=pipe)


async def scrape(process: asyncio.subprocess.Process, url: str) -> int:
    """Let the process scrape ``url``. Return how many buckets the response has."""
    out, _ = await process.communicate(url.encode())
    return int(out)
