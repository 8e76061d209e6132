"""Answers requests to ``/clients``, which list who is throttled now, by which rule, and since when. Runs in threads."""

import json
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Final
from wsgiref.types import WSGIEnvironment

from kafka_quota_proxy.proxy.admin.clients.rows import ClientPage, ClientQuery, ClientTable, Row
from kafka_quota_proxy.proxy.admin.requests import JSON, Reply
from kafka_quota_proxy.proxy.server.server import Server

# Rows that are encoded in one step, in which the event loop cannot run. It takes about 0.1 ms.
_ENCODED_AT_ONCE: Final = 20
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class ClientsApi:
    """Answers requests to ``/clients``. It reads the clients for one request at a time, and the others wait."""

    def __init__(self, server: Server) -> None:
        self._table = ClientTable(server)
        self._reading = Lock()

    def get(self, environ: WSGIEnvironment) -> Reply:
        """Answer a GET request with the rows that its query asks for. Raises RefusedError if the query is not valid."""
        query = ClientQuery.parse(environ.get("QUERY_STRING", ""))
        with self._reading:
            body = list(written(self._table.read(query)))
        return Reply("200 OK", body, JSON, (("Content-Length", str(sum(map(len, body)))),))


def written(page: ClientPage) -> Iterator[bytes]:
    """Yield the rows of a page as one JSON object, in pieces."""
    yield f'{{"time":{_encode(page.time)},"clients":['.encode()
    separator = ""
    for some in _together(page.rows):
        yield (separator + _encode(some)[1:-1]).encode()
        separator = ","
    yield f'],"total":{page.total}'.encode()
    if page.bypasses:
        past = [{"broker": str(broker), "advertises": str(address)} for broker, address in page.bypasses.items()]
        yield f',"bypassed":{_encode(past)}'.encode()
    yield b"}\n"


def _together(rows: Iterable[Row]) -> Iterator[list[Row]]:
    some: list[Row] = []
    for row in rows:
        some.append(row)
        if len(some) == _ENCODED_AT_ONCE:
            yield some
            some.clear()
    if some:
        yield some
