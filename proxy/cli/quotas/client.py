"""The client of ``kafka-quota-proxy quotas`` for the admin port of a running proxy."""

from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import (
    JsonFormError,
    RequestedChanges,
    Result,
    read_results,
    read_rules,
    written_changes,
)
from kafka_quota_proxy.proxy.client_quotas.formats.rule_status import RuleStatus, read_status
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule

# Longer than the proxy's own limit for a change.
_TIMEOUT_S: Final = 35.0
_JSON: Final = "application/json"
_PATH: Final = "/quotas"
_MAX_MESSAGE_BYTES: Final = 500


class NotDoneError(Exception):
    """The request failed; the text says why."""


class Rule(NamedTuple):
    """A rule as it was set.

    ``source`` is where it was set; ``can_change`` whether the proxy can change it; ``now`` its current status.
    ``shadowed_by`` is the source of a rule that overrides it; such a rule can be removed but not changed.
    """

    entity: Entity
    rule: StoredRule
    source: str
    can_change: bool
    now: RuleStatus | None
    shadowed_by: str | None


class Answer(NamedTuple):
    """The results of changes. ``retry_after_s`` above 0: the proxy limits changes, try again then.

    ``text`` is the whole response, as JSON.
    """

    results: list[Result]
    retry_after_s: int
    text: str


class Client:
    """A client of one proxy.

    Args:
        url: The proxy's admin port, ``http://HOST:PORT``.
        token: The token for changes.

    Raises:
        NotDoneError: The URL has another form.
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
        """Return the rules whose entity includes these names.

        Raises:
            NotDoneError: The request failed.
        """
        query = [("default", kind) if name is DEFAULT else (kind, str(name)) for kind, name in wanted.items()]
        status, _, body = self._ask("GET", f"{_PATH}?{urlencode(query)}" if query else _PATH, b"", {})
        if status != HTTPStatus.OK:
            raise NotDoneError(self._error_text(status, body))
        try:
            return [
                Rule(
                    entity=entity,
                    rule=rule,
                    source=str(more.get("source", "")),
                    can_change=more.get("can_change") is True,
                    now=read_status(more.get("now")),
                    shadowed_by=None if more.get("shadowed_by") is None else str(more["shadowed_by"]),
                )
                for entity, rule, more in read_rules(body, is_file=False)
            ]
        except JsonFormError as error:
            raise NotDoneError(f"{self._url}: {error}; is it the admin port of a kafka-quota-proxy?") from error

    def change(self, changes: RequestedChanges) -> Answer:
        """Send changes. The proxy makes none of them if there were too many recently.

        Raises:
            NotDoneError: No change was made, or the outcome is unknown, as the text says.
        """
        headers = {"Content-Type": _JSON, "Authorization": f"Bearer {self._token}"}
        status, headers_back, body = self._ask("POST", _PATH, written_changes(changes), headers)
        if status not in (HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS):
            raise NotDoneError(self._error_text(status, body))
        try:
            results = read_results(body)
        except JsonFormError as error:
            raise NotDoneError(f"{self._url}: {error}; is it the admin port of a kafka-quota-proxy?") from error
        after = headers_back.get("Retry-After", "")
        is_limited = status == HTTPStatus.TOO_MANY_REQUESTS and after.isascii() and after.isdigit()
        return Answer(results, int(after[:6]) if is_limited else 0, body.decode())

    def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any, bytes]:
        try:
            with closing(HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)) as connection:
                connection.request(method, path, body or None, dict(headers))
                response = connection.getresponse()
                return response.status, response.headers, response.read()
        except (OSError, HTTPException, ValueError) as error:
            message = f"{self._url}: {error}; is it the address of admin.bind, and does the proxy run?"
            raise NotDoneError(message) from error

    def _error_text(self, status: int, body: bytes) -> str:
        said = " ".join(body[:_MAX_MESSAGE_BYTES].decode("utf-8", "replace").split())
        return f"{self._url}: {status}: {said if said.isprintable() else repr(said)}"
