"""The HTTP client with which commands such as ``quotas`` send requests to a running proxy's admin port."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.proxy.rules.codec import (
    RequestedChanges,
    Result,
    read_results,
    read_rules,
    read_status,
    written_changes,
)
from kafka_quota_proxy.proxy.rules.effective import RuleStatus
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule

# Longer than the time within which the proxy itself answers a change.
_TIMEOUT_S: Final = 35.0
DEFAULT_URL: Final = "http://127.0.0.1:9308"
_QUOTAS: Final = "/quotas"
_MAX_MESSAGE_BYTES: Final = 500
_WRONG_PORT: Final = "is it the admin port of a kafka-quota-proxy?"
_T = TypeVar("_T")


class AdminPortError(Exception):
    """Raised if a request to the admin port fails. The message gives the reason."""


class ListedRule(NamedTuple):
    """A rule in the list that the admin port returns.

    ``rule`` contains the limits as they were set, and ``status`` those that apply now.
    """

    entity: Entity
    rule: StoredRule
    source: str  # where it was set
    can_change: bool  # whether the proxy can change it
    status: RuleStatus | None
    shadowed_by: str | None  # the source of a rule that overrides it; such a rule can be removed but not changed


class Answer(NamedTuple):
    """The proxy's answer to a request for changing quotas through its admin port."""

    results: list[Result]
    retry_after_s: int  # above 0 if there were too many changes; the time to wait before trying again
    text: str  # the whole response, as JSON


class AdminClient:
    """Sends requests to the admin port at ``url``, which has the form ``http://HOST:PORT``.

    Each wait for the proxy takes at most ``timeout_s``. Only ``change`` needs the ``token``. After a failed ``change``,
    the changes may or may not have been made.

    Raises:
        AdminPortError: ``url`` is malformed, or a request failed.
    """

    def __init__(self, url: str, *, token: str = "", timeout_s: float = _TIMEOUT_S) -> None:
        try:
            address = urlsplit(url)
            self._port = address.port or 80
        except ValueError as error:
            raise AdminPortError(f"--url {url}: {error}") from error
        if address.scheme != "http" or not address.hostname:
            raise AdminPortError(f"--url {url}: must be http://HOST:PORT, as admin.bind of the proxy says")
        self._url, self._host, self._token, self._timeout_s = url, address.hostname, token, timeout_s

    def rules(self, names: Mapping[str, EntityName]) -> list[ListedRule]:
        """Return the rules of all entities that match ``names``, or all rules if ``names`` is empty.

        ``names`` maps types of entities, such as ``client-id``, to names. An entity matches if it has all of these
        names.
        """
        query = [("default", kind) if name is DEFAULT else (kind, str(name)) for kind, name in names.items()]
        _, body = self._request("GET", f"{_QUOTAS}?{urlencode(query)}" if query else _QUOTAS)
        return [
            ListedRule(
                entity=entity,
                rule=rule,
                source=str(more.get("source", "")),
                can_change=more.get("can_change") is True,
                status=read_status(more.get("now")),
                shadowed_by=None if more.get("shadowed_by") is None else str(more["shadowed_by"]),
            )
            for entity, rule, more in self._parse(lambda: read_rules(body))
        ]

    def change(self, changes: RequestedChanges) -> Answer:
        """Send changes of quotas to the proxy. It rejects all of them if there have been too many changes recently."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        response, body = self._request("POST", _QUOTAS, written_changes(changes), headers)
        results = self._parse(lambda: read_results(body))
        after = response.headers.get("Retry-After", "")
        is_limited = response.status == HTTPStatus.TOO_MANY_REQUESTS and after.isascii() and after.isdigit()
        return Answer(results, int(after[:6]) if is_limited else 0, body.decode())

    def clients(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the active clients, with their limits and throttles. ``query`` has the parameters of ``/clients``."""
        _, body = self._request("GET", f"/clients?{urlencode(query)}")
        page: dict[str, Any] = self._parse(lambda: json.loads(body))
        return page

    def _parse(self, parse: Callable[[], _T]) -> _T:
        try:
            return parse()
        except ValueError as error:
            raise AdminPortError(f"{self._url}: {error}; {_WRONG_PORT}") from error

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[HTTPResponse, bytes]:
        try:
            with closing(HTTPConnection(self._host, self._port, timeout=self._timeout_s)) as connection:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                content = response.read()
        except (OSError, HTTPException, ValueError) as error:
            message = f"{self._url}: {error}; is it the address of admin.bind, and does the proxy run?"
            raise AdminPortError(message) from error
        if response.status in (HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS):
            return response, content
        text = " ".join(content[:_MAX_MESSAGE_BYTES].decode("utf-8", "replace").split())
        hint = f"; {_WRONG_PORT}" if response.status == HTTPStatus.NOT_FOUND else ""
        raise AdminPortError(f"{self._url}: {response.status}: {text if text.isprintable() else repr(text)}{hint}")
