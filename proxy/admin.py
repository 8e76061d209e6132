"""The admin port: ``/metrics``, ``/livez``, ``/readyz``, ``/callqueue`` and ``/quotas``, in threads beside the loop's.

A request gets a thread, at most ``MAX_REQUESTS`` at a time, and ``_DEADLINE_S`` in all; who comes above that or is
slower is closed. Nothing here writes to the proxy's state but ``/quotas``, see ``proxy.quota_page``.
"""

import asyncio
import json
import logging
import socket
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import StringIO
from time import monotonic, monotonic_ns
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client.exposition import ThreadingWSGIServer

from config.model import Address
from proxy.call_report import report
from proxy.metrics.families import Families, Reloads
from proxy.metrics.text import CONTENT_TYPE, write
from proxy.quota_page import QuotaPage, Reply
from proxy.server import Server

log = logging.getLogger(__name__)

# A Prometheus server or two, probes, an operator's curl.
MAX_REQUESTS: Final = 8
_HEARTBEAT_S: Final = 2.0
_SOCKET_TIMEOUT_S: Final = 5.0
_DEADLINE_S: Final = 30.0
_POLL_S: Final = 0.1  # how long a stop may take, and how late a deadline may be
_GZIP: Final = zlib.MAX_WBITS | 16
_QUOTAS: Final = "/quotas"
_PATHS: Final = ("/metrics", "/livez", "/readyz", "/callqueue", _QUOTAS)


class AdminServer:
    """The admin port, open between ``with`` and its end. To be made on the loop's thread.

    Raises:
        OSError: the address cannot be bound; its text names it.
    """

    def __init__(
        self, bind: Address, server: Server, reloader: Reloads, *, quotas_token_file: str | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        health = Health(loop, server, reloader)
        page = QuotaPage(loop, server, quotas_token_file)
        application = _Application(server, Families(server, reloader), health, page)
        self._http = _bound(bind)
        self._http.set_app(application)
        self.port: int = self._http.server_address[1]
        self._address = Address(host=bind.host, port=self.port)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(_POLL_S,), name="admin", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        log.info("admin on http://%s", self._address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class Health:
    """Whether the proxy is alive, and whether it is of use."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: Server, reloads: Reloads, *, heartbeat_s: float = _HEARTBEAT_S
    ) -> None:
        self._heartbeat_s = heartbeat_s
        self._loop = loop
        self._server = server
        self._reloads = reloads

    def is_alive(self) -> bool:
        """Whether the loop answers in time. To be called in another thread than the loop's."""
        beat = threading.Event()
        try:
            self._loop.call_soon_threadsafe(beat.set)
        except RuntimeError:  # the loop is closed
            return False
        return beat.wait(self._heartbeat_s)

    def readiness(self) -> dict[str, object]:
        """Return what ``/readyz`` says. Ready: clients can connect, and the brokers behind can be reached.

        A file that was refused leaves the proxy as ready as it was, for the one before it is still in force; so does a
        topic of quotas that is away, a broker that does not tell its own, and a store that cannot be written.
        """
        rules, desk = self._server.quota_topic or self._server.broker_quotas, self._server.quota_desk
        is_listening = self._server.is_listening
        upstreams = {str(one.address): one.is_reachable for one in self._server.upstreams}
        state = "starting" if not is_listening else "ready" if self._server.is_reachable() else "degraded"
        if self._server.is_draining:
            state = "draining"
        of_rules = {} if rules is None else {"quotas_from": rules.detail()}
        of_store = (
            {} if desk.keeper is None else {"store": {**desk.keeper.detail(), "unknown_hosts": desk.unknown_hosts}}
        )
        return {
            "state": state,
            "listeners": is_listening,
            "configuration": self._reloads.last_reload_successful,
            "upstreams": upstreams,
            **of_rules,
            **of_store,
        }


class _Application:
    def __init__(self, server: Server, families: Families, health: Health, quota_page: QuotaPage) -> None:
        self._quota_page = quota_page
        self._server = server
        self._families = families
        self._health = health

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path not in _PATHS:
            return _answer(start_response, "404 Not Found", f"not found; there are {' '.join(_PATHS)}\n")
        method = environ["REQUEST_METHOD"]
        if path == _QUOTAS and method == "POST":
            return _reply(start_response, self._quota_page.post(environ))
        if method != "GET":
            allow = "GET, POST" if path == _QUOTAS else "GET"
            return _answer(start_response, "405 Method Not Allowed", f"{allow} only\n", allow=allow)
        match path:
            case "/quotas":
                return _reply(start_response, self._quota_page.get(environ))
            case "/metrics":
                return self._metrics(start_response, is_zipped="gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""))
            case "/livez":
                if self._health.is_alive():
                    return _answer(start_response, "200 OK", "alive\n")
                return _answer(start_response, "503 Service Unavailable", "the event loop does not answer\n")
            case "/callqueue":
                return _answer(start_response, "200 OK", self._call_queue(environ), kind="application/json")
            case _:
                readiness = self._health.readiness()
                status = "200 OK" if readiness["state"] == "ready" else "503 Service Unavailable"
                return _answer(start_response, status, json.dumps(readiness) + "\n", kind="application/json")

    def _call_queue(self, environ: WSGIEnvironment) -> str:
        asked = parse_qs(environ.get("QUERY_STRING", ""))
        user, client_id, ip = (asked.get(key, [None])[0] for key in ("user", "client-id", "ip"))
        return json.dumps(report(self._server, principal=user, client_id=client_id or "", host=ip or "")) + "\n"

    def _metrics(self, start_response: StartResponse, *, is_zipped: bool) -> Iterator[bytes]:
        headers = [("Content-Type", CONTENT_TYPE), ("Cache-Control", "no-store")]
        if is_zipped:
            headers.append(("Content-Encoding", "gzip"))
        start_response("200 OK", headers)
        try:
            pieces = write(self._families.at(monotonic_ns() // 1_000_000))
            yield from _zipped(pieces) if is_zipped else pieces
        except Exception:
            # The status has gone out already; a scrape that breaks off is one that failed.
            log.exception("a scrape of /metrics failed; this is a fault of this program")
            raise


def _zipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(level=1, wbits=_GZIP)
    for piece in pieces:
        packed = packer.compress(piece)
        if packed:
            yield packed
    yield packer.flush()


def _answer(
    start_response: StartResponse, status: str, body: str, *, kind: str = "text/plain; charset=utf-8", allow: str = ""
) -> Iterable[bytes]:
    content = body.encode()
    headers = [("Content-Type", kind), ("Content-Length", str(len(content))), ("Cache-Control", "no-store")]
    if allow:
        headers.append(("Allow", allow))
    start_response(status, headers)
    return [content]


def _reply(start_response: StartResponse, reply: Reply) -> Iterable[bytes]:
    start_response(reply.status, [("Content-Type", reply.kind), ("Cache-Control", "no-store"), *reply.headers])
    return reply.body


class _Handler(WSGIRequestHandler):
    timeout = _SOCKET_TIMEOUT_S  # of each read and write; the deadline below is of all

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing: a line per scrape would drown the log."""

    def get_stderr(self) -> StringIO:
        """Return where wsgiref puts its tracebacks, those of clients that leave early among them."""
        return StringIO()


class _HttpServer(ThreadingWSGIServer):
    """Threads with a bound on their number and on their time."""

    allow_reuse_port = False  # a second proxy on this port is to fail
    request_queue_size = 64  # the default of 5 costs whoever comes sixth at once a second

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        self._started_s: dict[Any, float] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, without the reverse look-up of our own name that http.server makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        host, port = self.socket.getsockname()[:2]
        self.server_address = (host, port)
        self.server_name, self.server_port = host, port
        self.setup_environ()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve in a thread of its own, or close where there are too many."""
        if len(self._started_s) >= MAX_REQUESTS:
            self.shutdown_request(request)
            return
        self._started_s[request] = monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Forget a request that has ended."""
        self._started_s.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off who is too slow."""
        now_s = monotonic()
        for request, started_s in list(self._started_s.items()):
            if now_s - started_s > _DEADLINE_S:
                with suppress(OSError):  # it may have just ended by itself
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say at debug level what http.server would print."""
        log.debug("admin request from %s failed", client_address, exc_info=True)


def _bound(bind: Address) -> _HttpServer:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _HttpServer(family, (str(address[0]), bind.port))
    except OSError as error:
        raise OSError(error.errno, f"admin.bind: cannot listen on {bind}: {error.strerror or error}") from error
