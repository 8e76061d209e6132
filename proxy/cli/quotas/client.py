"""How ``kafka-quota-proxy quotas`` speaks to the admin port of a proxy that runs."""

from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import (
    Changes,
    JsonFormError,
    Result,
    read_results,
    read_rules,
    written_changes,
)
from kafka_quota_proxy.proxy.client_quotas.formats.rule_status import RuleStatus, read_status
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule

# Beyond what the proxy takes for a change.
_TIMEOUT_S: Final = 35.0
_JSON: Final = "application/json"
_PATH: Final = "/quotas"
_MOST_SHOWN: Final = 500


class NotDoneError(Exception):
    """The proxy did not answer, or not what was asked for; the text says why."""


class Rule(NamedTuple):
    """A rule as it was set, and where; ``can_change``: through the proxy; ``now``: see ``RuleStatus``.

    ``shadowed_by``: where the rule is set that holds in its place; it can be removed, and not changed.
    """

    entity: Entity
    rule: StoredRule
    source: str
    can_change: bool
    now: RuleStatus | None
    shadowed_by: str | None


class Answer(NamedTuple):
    """What became of changes; ``retry_after_s``: there were too many, and they may come again then; 0: there were not.

    ``text`` is the whole of it, as JSON.
    """

    results: list[Result]
    retry_after_s: int
    text: str


class Client:
    """One proxy.

    Args:
        url: Of its admin port, ``http://HOST:PORT``.
        token: What changes are sent with.

    Raises:
        NotDoneError: It is no such URL.
    """

    def __init__(self, url: str, *, token: str = "") -> None:
        try:
            address = urlsplit(url)
            self._port = address.port or 80
        except ValueError as error:
            raise NotDoneError(f"--url {url}: {error}") from error
        if address.scheme != "http" or not address.hostname:
            raise NotDoneError(f"--url {url}: must be http://HOST:PORT, as admin.bind of the proxy says")
        self._url, self._host, self._token = url, address.hostname, token

    def rules(self, wanted: Mapping[str, EntityName]) -> list[Rule]:
        """Return the rules whose entity has these names, among others.

        Raises:
            NotDoneError: They were not told.
        """
        query = [("default", kind) if name is DEFAULT else (kind, str(name)) for kind, name in wanted.items()]
        status, _, body = self._ask("GET", f"{_PATH}?{urlencode(query)}" if query else _PATH, b"", {})
        if status != HTTPStatus.OK:
            raise NotDoneError(self._said(status, body))
        try:
            return [
                Rule(
                    entity=entity,
                    rule=rule,
                    source=str(told.get("source", "")),
                    can_change=told.get("can_change") is True,
                    now=read_status(told.get("now")),
                    shadowed_by=None if told.get("shadowed_by") is None else str(told["shadowed_by"]),
                )
                for entity, rule, told in read_rules(body, is_file=False)
            ]
        except JsonFormError as error:
            raise NotDoneError(f"{self._url}: {error}; is it the admin port of a kafka-quota-proxy?") from error

    def change(self, changes: Changes) -> Answer:
        """Ask for changes; none is made where there were too many of late.

        Raises:
            NotDoneError: None was made, or where the text says so nobody knows.
        """
        headers = {"Content-Type": _JSON, "Authorization": f"Bearer {self._token}"}
        status, told, body = self._ask("POST", _PATH, written_changes(changes), headers)
        if status not in (HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS):
            raise NotDoneError(self._said(status, body))
        try:
            results = read_results(body)
        except JsonFormError as error:
            raise NotDoneError(f"{self._url}: {error}; is it the admin port of a kafka-quota-proxy?") from error
        after = told.get("Retry-After", "")
        is_limited = status == HTTPStatus.TOO_MANY_REQUESTS and after.isascii() and after.isdigit()
        return Answer(results, int(after[:6]) if is_limited else 0, body.decode())

    def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any, bytes]:
        try:
            with closing(HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)) as connection:
                connection.request(method, path, body or None, dict(headers))
                response = connection.getresponse()
                return response.status, response.headers, response.read()
        except (OSError, HTTPException, ValueError) as error:
            told = f"{self._url}: {error}; is it what admin.bind says, and does the proxy run?"
            raise NotDoneError(told) from error

    def _said(self, status: int, body: bytes) -> str:
        said = " ".join(body[:_MOST_SHOWN].decode("utf-8", "replace").split())
        return f"{self._url}: {status}: {said if said.isprintable() else repr(said)}"
