"""Answers requests to ``/quotas`` of the admin port, which list quota rules or change them. Runs in threads.

Listing needs no authorization. Changes need the header ``Authorization: Bearer TOKEN``, where TOKEN is the first line
of ``admin.quotas_token_file``. This file is read again for each request to change quotas.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from math import ceil
from threading import BoundedSemaphore
from time import monotonic
from typing import Final
from urllib.parse import parse_qsl
from wsgiref.types import WSGIEnvironment

from kafka_quota_proxy.config.addresses import canonical
from kafka_quota_proxy.config.errors import TokenFileError
from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.config.token_file import read_token
from kafka_quota_proxy.proxy.admin.metrics.exposition import paced, rest
from kafka_quota_proxy.proxy.admin.requests import JSON, RefusedError, Reply, bad_request, read_json
from kafka_quota_proxy.proxy.rules.alter import Decision
from kafka_quota_proxy.proxy.rules.api import ADMIN, Origin, Ticket
from kafka_quota_proxy.proxy.rules.codec import (
    JsonFormError,
    RequestedChanges,
    read_changes,
    status_as_json,
    written_results,
    written_rule,
)
from kafka_quota_proxy.proxy.rules.effective import ListedRule, status_of
from kafka_quota_proxy.proxy.rules.keeper import wall_ms as unix_ms
from kafka_quota_proxy.proxy.rules.model import ENTITY_TYPES, IP
from kafka_quota_proxy.proxy.server.server import Server

log = logging.getLogger(__name__)

# How long a change may take, if the brokers of a topic are slow or cannot be reached. The deadline that the admin port
# has for a request is longer.
_DEADLINE_S: Final = 25.0
# How many changes are made at a time. A change may wait for a disk or for brokers, and the other threads of the admin
# port must stay free for scrapes of the metrics.
_MAX_AT_ONCE: Final = 4
_WARN_EVERY_S: Final = 60.0
_NO_FILE: Final = (
    "quotas cannot be changed: the configuration has no admin.quotas_token_file. Give it the path of a file whose "
    "first line is a token (openssl rand -hex 32), restart the proxy, and send: Authorization: Bearer TOKEN"
)
_WRONG: Final = "quotas are changed with the token of admin.quotas_token_file; send: Authorization: Bearer TOKEN"


class _BusyError(RefusedError):
    def __init__(self) -> None:
        message = "too many requests about quotas are waiting; try again"
        super().__init__("503 Service Unavailable", message, ("Retry-After", "1"))


class QuotasApi:
    """Answers requests to ``/quotas``, or raises ``RefusedError``.

    If ``token_file`` is None, no token is valid, and all changes are refused.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        server: Server,
        token_file: str | None,
        *,
        deadline_s: float = _DEADLINE_S,
        wall_ms: Callable[[], int] = unix_ms,
    ) -> None:
        self._loop = loop
        self._server = server
        self._token_file = token_file
        self._deadline_s = deadline_s
        self._wall_ms = wall_ms
        self._warned_s = -_WARN_EVERY_S
        self._free = BoundedSemaphore(_MAX_AT_ONCE)

    def get(self, environ: WSGIEnvironment) -> Reply:
        """Answer a GET request with all rules, or with the rules whose entity has all the names in the query."""
        return Reply("200 OK", self._rules(_entity_query(environ.get("QUERY_STRING", ""))), JSON)

    def post(self, environ: WSGIEnvironment) -> Reply:
        """Answer a POST request, which changes quotas. The token is checked before the body is read."""
        self._check_token(environ)
        if not self._free.acquire(blocking=False):
            raise _BusyError
        try:
            changes = self._read(environ)
            return _results(self._change(changes, environ), changes)
        finally:
            self._free.release()

    # -- rules --

    def _rules(self, query: Mapping[str, EntityName]) -> Iterator[bytes]:
        yield b'{"rules":['
        separator = "\n"
        piece: list[str] = []
        for one in paced(self._server.quota_manager.listed(), rest, every=100):
            if all(getattr(one.entity, kind.replace("-", "_")) == name for kind, name in query.items()):
                piece.append(separator + _written(one, now_ms=self._wall_ms()))
                separator = ",\n"
            if len(piece) >= 100:
                yield "".join(piece).encode()
                piece.clear()
        yield ("".join(piece) + "\n]}\n").encode()

    # -- changes --

    def _check_token(self, environ: WSGIEnvironment) -> None:
        """Raise ``RefusedError`` unless the request has the token in the file ``admin.quotas_token_file``."""
        if self._token_file is None:
            raise RefusedError("403 Forbidden", _NO_FILE)
        scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        try:
            token = read_token(self._token_file)
        except TokenFileError as error:
            self._warn("admin.quotas_token_file: quotas cannot be changed here: %s", str(error))
            raise RefusedError("403 Forbidden", "the proxy cannot read its token; its log says why") from None
        # wsgiref decodes headers as Latin-1.
        is_right = hmac.compare_digest(given.strip().encode("latin-1", "replace"), token.encode())
        if scheme.lower() != "bearer" or not is_right:
            what = "a wrong token" if given else "no token"
            self._warn("refused a change of quotas: %s sent %s", str(environ.get("REMOTE_ADDR")), what)
            raise RefusedError("401 Unauthorized", _WRONG, ("WWW-Authenticate", "Bearer"))

    def _warn(self, message: str, *arguments: str) -> None:
        """Log a warning, but at most one a minute, so that refused requests cannot fill the log."""
        if monotonic() - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = monotonic()
            log.warning(message, *arguments)

    def _read(self, environ: WSGIEnvironment) -> RequestedChanges:
        try:
            return read_changes(read_json(environ))
        except JsonFormError as error:
            raise bad_request(str(error)) from None

    def _change(self, changes: RequestedChanges, environ: WSGIEnvironment) -> Decision:
        address = str(environ.get("REMOTE_ADDR", ""))
        origin = Origin(f"token@{address}", None, address, ADMIN)
        submitted = self._submit(changes, origin)
        try:
            future = asyncio.run_coroutine_threadsafe(submitted, self._loop)
        except RuntimeError:  # the loop is closed
            submitted.close()
            raise RefusedError("503 Service Unavailable", "the proxy stops") from None
        try:
            altered = future.result(self._deadline_s)
        except TimeoutError:
            future.cancel()
            message = f"not done within {self._deadline_s:g} s, but it may still be done: look before you send it again"
            raise RefusedError("504 Gateway Timeout", message) from None
        except CancelledError:
            message = "the proxy is stopping, but the change may still be made: look before you send it again"
            raise RefusedError("503 Service Unavailable", message) from None
        if altered is None:
            raise _BusyError
        return altered

    async def _submit(self, changes: RequestedChanges, origin: Origin) -> Decision | None:
        owner = _Owner()
        ticket = Ticket(origin, owner, changes=changes)
        if not self._server.quota_manager.submit(ticket):
            return None
        try:
            await owner.has_turn.wait()
        finally:
            if ticket.altered is None:
                ticket.drop()
        return ticket.altered


class _Owner:
    """Stands for an HTTP request that waits for the results of its changes.

    The quota manager calls ``take_turn`` when the results are ready, or ``fail`` after an internal error. Either call
    sets the event ``has_turn``, for which the request waits.
    """

    def __init__(self) -> None:
        self.has_turn = asyncio.Event()
        self.take_turn = self.fail = self.has_turn.set


def _results(altered: Decision, changes: RequestedChanges) -> Reply:
    # Written in pieces, so that other threads can run in between.
    pieces = paced(written_results(altered.outcomes, is_dry_run=changes.is_dry_run), rest, every=100)
    body = ("".join(pieces).encode(),)
    if altered.throttle_time_ms:
        retry_after = str(ceil(altered.throttle_time_ms / 1_000))
        return Reply("429 Too Many Requests", body, JSON, (("Retry-After", retry_after),))
    return Reply("200 OK", body, JSON)


def _entity_query(query: str) -> Mapping[str, EntityName]:
    """Return the names of the entity in a query such as ``user=alice&default=client-id``, by entity type.

    ``default=TYPE`` stands for the default entity of a type.
    """
    found: dict[str, EntityName] = {}
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=len(ENTITY_TYPES))
    except ValueError as error:
        raise bad_request(f"the query is not valid: {error}") from None
    for key, value in given:
        kind, name = (value, DEFAULT) if key == "default" else (key, value)
        if kind not in ENTITY_TYPES or kind in found:
            message = "ask for user=NAME, client-id=NAME or ip=NAME, or for default=user and so on, each type once"
            raise bad_request(message)
        found[kind] = canonical(name) if kind == IP and isinstance(name, str) else name
    return found


def _written(one: ListedRule, *, now_ms: int) -> str:
    where: dict[str, object] = {"source": one.source, "can_change": one.can_change}
    if one.shadowed_by is not None:
        where["shadowed_by"] = one.shadowed_by
    status = status_of(one, now_ms=now_ms)
    if status is not None:
        where["now"] = status_as_json(status)
    return written_rule(one.entity, one.rule, **where)
