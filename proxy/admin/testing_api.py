"""Answers requests to ``/testing`` of the admin port, by which tests throttle clients. Runs in threads.

POST   /testing/throttles      {"api": "Produce", "throttle_time_ms": 300, "count": 5, "client_id": "app"}
DELETE /testing/throttles      removes all orders; /testing/throttles/ID removes one
PUT    /testing/quotas         [{"client-id": "app", "producer_byte_rate": 102400}], in the form of the file
GET    /testing/observed       the throttled responses; ?client_id=app those of one client
GET    /testing/clients        the clients that were answered, with the number of responses of each API
POST   /testing/reset          removes all orders, forgets what was observed, and restores the quotas of the file
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import parse_qs
from wsgiref.types import WSGIEnvironment

from kafka_quota_proxy.config.errors import ConfigError, Severity
from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.proxy.admin.requests import JSON, RefusedError, Reply, bad_request, read_json
from kafka_quota_proxy.proxy.admin.testing_orders import read_order, written_client, written_response
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles, TooManyOrdersError

PREFIX: Final = "/testing/"

_THROTTLES: Final = "/testing/throttles"
_QUOTAS: Final = "/testing/quotas"
_DEADLINE_S: Final = 10.0

_T = TypeVar("_T")


class OnDemandApi:
    """Answers requests to ``/testing``. ``testing`` is used on the event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, testing: OnDemandThrottles) -> None:
        self._loop = loop
        self._server = server
        self._testing = testing
        self._file = self._applied = server.config

    def reply(self, environ: WSGIEnvironment) -> Reply:
        """Answer a request whose path begins with ``PREFIX``, or raise ``RefusedError``."""
        path, method, testing = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"], self._testing
        match method, path:
            case "POST", "/testing/throttles":
                return self._add(environ)
            case "DELETE", "/testing/throttles":
                self._on_loop(testing.orders.clear)
            case "PUT", "/testing/quotas":
                self._replace_quotas(_quotas(read_json(environ)))
            case "GET", "/testing/observed":
                query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
                client_id = query.get("client_id", [None])[0]
                return _json(self._on_loop(lambda: self._observed(client_id)))
            case "GET", "/testing/clients":
                clients = testing.observed.clients
                return _json(self._on_loop(lambda: [written_client(*one) for one in clients.items()]))
            case "POST", "/testing/reset":
                read_json(environ, may_be_empty=True)
                self._on_loop(testing.reset)
                self._replace_quotas(None)
            case "DELETE", _ if path.startswith(f"{_THROTTLES}/"):
                self._remove(path.removeprefix(f"{_THROTTLES}/"))
            case _:
                raise RefusedError("404 Not Found", f"not found: {method} {path[:40]}")
        return _json({})

    def _add(self, environ: WSGIEnvironment) -> Reply:
        wanted, throttle_time_ms, count = read_order(read_json(environ))
        try:
            order = self._on_loop(lambda: self._testing.add(wanted, throttle_time_ms, count=count))
        except TooManyOrdersError as error:
            raise RefusedError("429 Too Many Requests", str(error)) from None
        return _json({"id": order.id})

    def _observed(self, client_id: str | None) -> list[dict[str, object]]:
        node_ids = {broker.quotas: broker.node_id for broker in self._server.brokers.metered()}
        return [written_response(one, node_ids) for one in self._testing.observed.find(client_id)]

    def _remove(self, name: str) -> None:
        is_known = name.isascii() and name.isdigit() and len(name) < 10 and self._on_loop(self._remove_order(int(name)))
        if not is_known:
            raise RefusedError("404 Not Found", f"no throttle has the id {name[:20]!r}; a fulfilled one is gone")

    def _remove_order(self, order_id: int) -> Callable[[], bool]:
        return lambda: self._testing.remove(order_id)

    def _replace_quotas(self, rules: ProxyConfig | None) -> None:
        """Enforce the rules of ``rules``, or those of the file if it is None, from the next request on."""

        async def apply() -> None:
            in_force = self._server.config
            if in_force is not self._applied:  # the file was reloaded
                self._file = in_force
            file = self._file
            new = file if rules is None else replace(file, quotas=rules.quotas, ip_quotas=rules.ip_quotas)
            self._applied = await self._server.reload(new)

        applying = apply()
        self._await(applying)

    def _on_loop(self, function: Callable[[], _T]) -> _T:
        """Call ``function`` on the event loop, and return its result."""

        async def call() -> _T:
            return function()

        calling = call()
        return self._await(calling)

    def _await(self, calling: Coroutine[None, None, _T]) -> _T:
        """Run a coroutine on the event loop, and return its result."""
        try:
            future = asyncio.run_coroutine_threadsafe(calling, self._loop)
        except RuntimeError:  # the loop is closed
            calling.close()
            raise RefusedError("503 Service Unavailable", "the proxy stops") from None
        try:
            return future.result(_DEADLINE_S)
        except TimeoutError:
            raise RefusedError("504 Gateway Timeout", f"not done within {_DEADLINE_S:g} s") from None


def _quotas(rules: object) -> ProxyConfig:
    """Read rules in the form of the section ``quotas`` of the configuration file."""
    if not isinstance(rules, list):
        raise bad_request('send a list of rules such as [{"client-id": "app", "producer_byte_rate": 102400}]')
    # A rule is only read as part of a file, so it is put into one. The listener in it has no part in the result.
    listener = {"name": "testing", "bind": "127.0.0.1:1", "upstream": "127.0.0.1:2"}
    try:
        file = json.dumps({"listeners": [listener], "quotas": rules}).encode()
        return load_bytes(file, file=_QUOTAS).config
    except ConfigError as error:
        faults = (f"{fault.key}: {fault.message}" for fault in error.faults if fault.severity is Severity.ERROR)
        raise bad_request("\n".join(faults)) from None


def _json(value: object) -> Reply:
    body = (json.dumps(value) + "\n").encode()
    return Reply("200 OK", (body,), JSON, (("Content-Length", str(len(body))),))
