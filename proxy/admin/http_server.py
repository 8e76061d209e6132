"""Answers the requests to the admin port: the status page, health, metrics, clients and quotas.

Only ``/quotas`` can change the state of the proxy, and ``/testing`` if the file has ``testing: true``.
``admin.metrics_bind`` configures a second address, which serves only metrics and probes.
"""

import asyncio
import json
import logging
import re
import zlib
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from time import monotonic_ns
from types import TracebackType
from typing import Final, Self
from wsgiref.types import StartResponse, WSGIEnvironment

from kafka_quota_proxy.config.addresses import without_final_dot
from kafka_quota_proxy.config.model import Admin
from kafka_quota_proxy.proxy.admin.admin_port import MAX_REQUESTS, MAX_TEST_REQUESTS, AdminPort
from kafka_quota_proxy.proxy.admin.clients.api import ClientsApi
from kafka_quota_proxy.proxy.admin.metrics.exposition import CONTENT_TYPE, write
from kafka_quota_proxy.proxy.admin.metrics.listeners import Reloads
from kafka_quota_proxy.proxy.admin.metrics.registry import MetricRegistry
from kafka_quota_proxy.proxy.admin.quotas_api import QuotasApi
from kafka_quota_proxy.proxy.admin.requests import JSON, TEXT, RefusedError, Reply, check_site, refusal
from kafka_quota_proxy.proxy.admin.status.document import StatusReader, encoded, page_files
from kafka_quota_proxy.proxy.admin.status.event_streams import MAX_STREAMS, RETRY_MS, EventStreams
from kafka_quota_proxy.proxy.admin.testing_api import PREFIX, OnDemandApi
from kafka_quota_proxy.proxy.runtime.isolation import report as report_error
from kafka_quota_proxy.proxy.server.server import Server

log = logging.getLogger(__name__)

_GZIP: Final = zlib.MAX_WBITS | 16
_QUOTAS: Final = "/quotas"
_PROBES: Final = ("/livez", "/readyz")
_OPEN: Final = ("/metrics", *_PROBES)
_STREAM: Final = "/clients/stream"
_PATHS: Final = ("/", *_OPEN, "/clients", _STREAM, _QUOTAS)
_MISDIRECTED: Final = (
    "this Host header does not name the admin port: use an IP address or localhost, or list the name in admin.hosts\n"
)
_HOST: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:@/]*))(?::[0-9]*)?")


class AdminServer:
    """Serves the admin port within a ``with`` statement. Create it on the event loop's thread.

    Attributes:
        port: The port that ``admin.bind`` listens on.
        metrics_port: The port that ``admin.metrics_bind`` listens on, or None if that is not configured.

    Raises:
        StartError: An address cannot be bound.
    """

    def __init__(self, admin: Admin, server: Server, reloader: Reloads) -> None:
        registry, health = MetricRegistry(server, reloader), Health(server, reloader)
        hosts = frozenset(without_final_dot(host.lower()) for host in (admin.bind.host, *admin.hosts))
        loop = asyncio.get_running_loop()
        page = QuotasApi(loop, server, admin.quotas_token_file)
        testing = None if server.testing is None else OnDemandApi(loop, server, server.testing)
        status = StatusReader(server, reloader, health.readiness)
        streams = EventStreams(lambda: encoded(status.read()))
        whole = _Application(server, registry, health, page, testing, streams, hosts=hosts)
        most = MAX_REQUESTS if testing is None else MAX_TEST_REQUESTS
        self._ports = [AdminPort(admin.bind, ("admin", "bind"), whole, _PROBES, most, {_STREAM: streams})]
        self.port = self._ports[0].address.port
        self.metrics_port: int | None = None
        if admin.metrics_bind is not None:
            part = _Application(server, registry, health, None, None, None, hosts=None)
            try:
                self._ports.append(AdminPort(admin.metrics_bind, ("admin", "metrics_bind"), part, _PROBES))
            except OSError:
                self._ports[0].close()
                raise
            self.metrics_port = self._ports[1].address.port

    def __enter__(self) -> Self:
        for port, what in zip(self._ports, ("admin", "metrics and probes"), strict=False):
            port.open()
            log.info("%s on http://%s", what, port.address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for port in self._ports:
            port.close()


class Health:
    """Decides whether the proxy is ready for clients (``/readyz``)."""

    def __init__(self, server: Server, reloads: Reloads) -> None:
        self._server = server
        self._reloads = reloads

    def readiness(self) -> dict[str, object]:
        """Return the body of the response to ``/readyz``.

        The proxy is ready if clients can connect and the brokers can be reached. The body says why a broker cannot be
        reached. It also shows problems with the configuration file, the quota source and the store of quotas, but the
        proxy is ready despite them.
        """
        source = self._server.quota_manager.source
        is_listening = self._server.is_listening
        faults = {str(address): fault for address, fault in self._server.brokers.faults().items()}
        state = "starting" if not is_listening else "ready" if self._server.brokers.is_reachable() else "degraded"
        if self._server.is_draining:
            state = "draining"
        body: dict[str, object] = {
            "state": state,
            "listeners": is_listening,
            "configuration": self._reloads.last_reload_successful,
            "upstreams": {address: fault is None for address, fault in faults.items()},
        }
        reasons = {
            name: {"reason": one.reason, "detail": one.detail} for name, one in faults.items() if one is not None
        }
        if reasons:
            body["reasons"] = reasons
        if source is not None:
            body["quotas_from" if source.writer is None else "store"] = source.status()
        return body


class _Application:
    """The WSGI application of the admin port. If ``quotas_api`` is None, it serves metrics and probes only.

    ``hosts`` contains the names that a request's Host header may contain, in lower case. None allows any name. Checking
    the header prevents DNS rebinding, in which a hostile web site points its own host name at the admin port.
    """

    def __init__(
        self,
        server: Server,
        registry: MetricRegistry,
        health: Health,
        quotas_api: QuotasApi | None,
        testing_api: OnDemandApi | None,
        streams: EventStreams | None,
        *,
        hosts: frozenset[str] | None,
    ) -> None:
        self._streams = streams
        self._page = {} if streams is None else page_files()
        self._quotas_api = quotas_api
        self._testing_api = testing_api
        self._server = server
        self._clients_api = ClientsApi(server)
        self._registry = registry
        self._health = health
        self._hosts = hosts

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            reply = self._reply(environ)
        except RefusedError as refused:
            reply = refusal(refused)
        except Exception as error:
            report_error(error)
            raise  # wsgiref then answers with status 500
        start_response(reply.status, [("Content-Type", reply.kind), ("Cache-Control", "no-store"), *reply.headers])
        return reply.body

    def _reply(self, environ: WSGIEnvironment) -> Reply:
        path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
        paths = _OPEN if self._quotas_api is None else _PATHS
        is_testing = self._testing_api is not None and path.startswith(PREFIX)
        if path not in paths and path not in self._page and not is_testing:
            return _text("404 Not Found", f"not found; the paths are {' '.join(paths)}\n")
        if path not in _PROBES and not self._is_allowed_host(environ.get("HTTP_HOST", "")):
            return _text("421 Misdirected Request", _MISDIRECTED)
        if path not in _PROBES:
            check_site(environ, opens_page=method == "GET" and path != _STREAM)
        if is_testing and self._testing_api is not None:
            return self._testing_api.reply(environ)
        if path == _QUOTAS and method == "POST" and self._quotas_api is not None:
            return self._quotas_api.post(environ)
        if method != "GET":
            allow = "GET, POST" if path == _QUOTAS else "GET"
            return _text("405 Method Not Allowed", f"{allow} only\n", ("Allow", allow))
        return self._page[path] if path in self._page else self._get(path, environ)

    def _get(self, path: str, environ: WSGIEnvironment) -> Reply:
        match path:
            case "/clients/stream" if self._streams is not None:
                return _stream(self._streams)
            case "/quotas" if self._quotas_api is not None:
                return self._quotas_api.get(environ)
            case "/metrics":
                return self._metrics(is_zipped="gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""))
            case "/livez":
                return _text("200 OK", "alive\n")
            case "/clients":
                return self._clients_api.get(environ)
            case _:
                readiness = self._health.readiness()
                return _json("200 OK" if readiness["state"] == "ready" else "503 Service Unavailable", readiness)

    def _is_allowed_host(self, host: str) -> bool:
        """Return True if a Host header is empty, an IP address, localhost or an allowed name, and False otherwise."""
        if self._hosts is None or not host:
            return True
        found = _HOST.fullmatch(host)
        name = without_final_dot((found[1] or found[2]).lower()) if found else ""
        return name == "localhost" or name in self._hosts or _is_ip(name)

    def _metrics(self, *, is_zipped: bool) -> Reply:
        headers = (("Content-Encoding", "gzip"),) if is_zipped else ()
        return Reply("200 OK", self._scrape(is_zipped=is_zipped), CONTENT_TYPE, headers)

    def _scrape(self, *, is_zipped: bool) -> Iterator[bytes]:
        try:
            pieces = write(self._registry.collect(monotonic_ns() // 1_000_000))
            yield from _zipped(pieces) if is_zipped else pieces
        except Exception as error:
            # The status 200 has been sent already. The scrape fails because the response breaks off.
            report_error(error, "a scrape of /metrics failed")
            raise


def _stream(streams: EventStreams) -> Reply:
    if streams.is_full:
        return _text("503 Service Unavailable", f"{MAX_STREAMS} status pages are open; close one\n")
    # An iterator has no length, so the response has no Content-Length and goes on.
    return Reply("200 OK", iter((f"retry: {RETRY_MS}\n\n".encode(),)), "text/event-stream")


def _zipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(level=1, wbits=_GZIP)
    for piece in pieces:
        packed = packer.compress(piece)
        if packed:
            yield packed
    yield packer.flush()


def _text(status: str, body: str, *headers: tuple[str, str], kind: str = TEXT) -> Reply:
    content = body.encode()
    return Reply(status, (content,), kind, (("Content-Length", str(len(content))), *headers))


def _json(status: str, body: object) -> Reply:
    return _text(status, json.dumps(body) + "\n", kind=JSON)


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
