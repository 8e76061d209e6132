"""Serves the page ``/quotas`` of a proxy, which has no broker."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, Address, Admin, IpRule, Listener, ProxyConfig, QuotaRule, Store
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.reloads import Reloads

P: Final = "producer_byte_rate"
TOKEN: Final = "0123456789abcdef"  # noqa: S105 - of nobody
LOOPBACK: Final = Address(host="127.0.0.1", port=0)
LISTENER: Final = Listener(name="clients", bind=LOOPBACK, upstream=Address(host="127.0.0.1", port=19092))
FILED: Final = QuotaRule(user="filed", producer_byte_rate=7.0, connections=3, source="p.yaml:7")


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - as it is read
        return json.loads(self.body)


class Page:
    """Sends HTTP requests to the page of a proxy, from a thread."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port

    async def get(self, query: str = "") -> Answer:
        return await asyncio.to_thread(self.ask, "GET", f"/quotas{query}", b"", {})

    async def post(self, body: object, token: str | None = TOKEN, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        if token is None:
            del given["Authorization"]
        return await asyncio.to_thread(self.ask, "POST", "/quotas", data, given)

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()


@asynccontextmanager
async def page(
    path: Path,
    *,
    token: bool = True,
    store: Store | None = None,
    serves: bool = True,
    config: ProxyConfig | None = None,
) -> AsyncIterator[Page]:
    """Serve the page of a proxy.

    By default the proxy has two rules of a configuration file, and a store. ``config`` replaces all of these.
    """
    (path / "token").write_text(f"{TOKEN}\n")
    store = store or Store(directory=str(path / "d"))
    ips = (IpRule(ip=DEFAULT, connection_creation_rate=5.0, source="p.yaml:9"),)
    server = Server(config or ProxyConfig(listeners=(LISTENER,), quotas=(FILED,), ip_quotas=ips, store=store))
    await server.quota_manager.read(server.brokers.follow)
    running = [asyncio.get_running_loop().create_task(server.quota_manager.run())] if serves else []
    token_file = str(path / "token") if token else None
    try:
        with AdminServer(Admin(bind=LOOPBACK, quotas_token_file=token_file), server, Reloads()) as admin:
            yield Page(server, admin.port)
    finally:
        for task in running:
            task.cancel()
            await asyncio.wait([task])
        await server.quota_manager.stop()
