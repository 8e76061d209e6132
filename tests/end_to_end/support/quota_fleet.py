"""Proxies that keep their quotas in one topic (a fleet), and administrators that change the quotas."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self
from urllib.error import HTTPError

from kafka_quota_proxy.protocol.client_quotas import (
    Alteration,
    Altered,
    AlterRequest,
    DescribeRequest,
    EntityParts,
    Op,
    read_describe_response,
)
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import free_port
from tests.end_to_end.support.proxy import Proxy
from tests.support.quota_request_frames import read_alter_response, write_alter_request, write_describe_request

Quotas = dict[frozenset[tuple[str, str | None]], dict[str, float]]

_ALTER_VERSION: Final = 1
_SET: Final = re.compile(r"(\S+) .*kafka://\S+@(\d+) sets the quotas of (.+)$", re.MULTILINE)


class Admin:
    """An administrator with a connection to one proxy."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def alter(self, entity: EntityParts, limits: Mapping[str, float | None]) -> Altered:
        return self.alter_all([(entity, limits)])[0]

    def alter_all(self, changes: Sequence[tuple[EntityParts, Mapping[str, float | None]]]) -> tuple[Altered, ...]:
        """Change the quotas of several entities with one request."""
        self._correlation_id += 1
        alterations = tuple(
            Alteration(entity, tuple(Op(key, value) for key, value in limits.items())) for entity, limits in changes
        )
        request = AlterRequest(_ALTER_VERSION, self._correlation_id, alterations, validate_only=False)
        frame = self._exchange(write_alter_request(request, client_id="admin"))
        return read_alter_response(frame, _ALTER_VERSION).results

    def describe(self) -> Quotas:
        self._correlation_id += 1
        request = DescribeRequest(_ALTER_VERSION, self._correlation_id, (), is_strict=False)
        response = self._exchange(write_describe_request(request, client_id="admin"))
        answer = read_describe_response(response, _ALTER_VERSION)
        return {frozenset(entity): dict(limits) for entity, limits in answer.entries or ()}

    def _exchange(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self._received(4 + int.from_bytes(self._received(4, peek=True)))

    def _received(self, count: int, *, peek: bool = False) -> bytes:
        data = b""
        while len(data) < count:
            some = self._socket.recv(count, socket.MSG_PEEK) if peek else self._socket.recv(count - len(data))
            if not some:
                raise ConnectionResetError("the proxy has closed the connection")
            data = some if peek else data + some
        return data


def settings(kafka: Kafka, topic: str, servers: str | None = None) -> dict[str, Any]:
    """Return the configuration of a proxy of the fleet. ``servers`` are the brokers that have the topic."""
    store = {"kafka": {"bootstrap_servers": servers or kafka.bootstrap_servers, "topic": topic}}
    return {
        "listeners": [
            {"name": "PROXIED", "bind": f"127.0.0.1:{free_port()}", "upstream": kafka.listener().address},
        ],
        "principals": {"admins": ["ANONYMOUS"]},
        "store": store,
    }


@contextmanager
def fleet(kafka: Kafka, topic: str, count: int) -> Iterator[list[Proxy]]:
    """Run ``count`` proxies with one quota topic."""
    with ExitStack() as stack:
        yield [stack.enter_context(Proxy(settings(kafka, topic))) for _ in range(count)]


def detail(proxy: Proxy) -> dict[str, Any]:
    """Return what ``/readyz`` reports about the store of quotas."""
    try:
        answer = proxy.admin("/readyz")
    except HTTPError as error:  # the proxy is not ready
        answer = error.read().decode()
    found: dict[str, Any] = json.loads(answer)["store"]
    return found


def came_into_force(proxy: Proxy) -> list[tuple[str, int, str]]:
    """Return the time, the offset and the content of each change that the proxy has logged as in force."""
    return [(at, int(offset), what) for at, offset, what in _SET.findall(proxy.log)]
