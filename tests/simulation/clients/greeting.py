"""How a connection begins: ApiVersions, with the retry in version 0, then SASL PLAIN for a client with a login."""

from typing import TYPE_CHECKING, Final

from tests.simulation.ledger import Entity
from tests.simulation.wire import greeting

if TYPE_CHECKING:
    from tests.simulation.clients.connection import Connection
    from tests.simulation.ledger import Exchange

_ANONYMOUS: Final = "ANONYMOUS"


def greet(connection: "Connection") -> None:
    """Begin a connection, and call its ``greeted`` at the end."""
    profile = connection.profile
    if profile.asks_versions:
        _ask_versions(connection, profile.versions[greeting.api_versions.key])
    else:
        _log_in(connection)


def _before_login(connection: "Connection") -> Entity:
    entity = connection.setting.entity
    return entity if connection.setting.login is None else entity._replace(user=_ANONYMOUS)


def _ask_versions(connection: "Connection", version: int) -> None:
    version = min(version, greeting.api_versions.versions[-1])
    connection.ask(
        greeting.api_versions, version, lambda result, exchange: _has_versions(connection, result, exchange),
        entity=_before_login(connection), fields={"software_name": connection.profile.name},
    )  # fmt: skip


def _has_versions(connection: "Connection", result: greeting.ApiVersionsResponse, exchange: "Exchange") -> None:
    if result.error_code == greeting.UNSUPPORTED_VERSION and exchange.api_version > 0:
        _ask_versions(connection, 0)
    elif result.error_code:
        connection.close()
    else:
        connection.versions = {api.api_key: api.last for api in result.apis}
        _log_in(connection)


def _log_in(connection: "Connection") -> None:
    if connection.setting.login is None:
        connection.greeted()
        return
    connection.ask(
        greeting.sasl_handshake,
        1,
        lambda result, _: _has_handshake(connection, result),
        entity=_before_login(connection),
    )


def _has_handshake(connection: "Connection", result: greeting.SaslHandshakeResponse) -> None:
    login = connection.setting.login
    if result.error_code or login is None:
        connection.close()
        return
    version = min(connection.profile.versions[greeting.sasl_authenticate.key], 2)
    if connection.versions is not None:
        version = min(version, connection.versions.get(greeting.sasl_authenticate.key, 0))
    token = greeting.plain_token(login.user, login.password)
    connection.ask(
        greeting.sasl_authenticate, version, lambda result, _: _is_logged_in(connection, result),
        entity=_before_login(connection), fields={"token": token},
    )  # fmt: skip


def _is_logged_in(connection: "Connection", result: greeting.SaslAuthenticateResponse) -> None:
    if result.error_code:
        connection.world.story.tell(f"{connection.setting.name} is refused its login")
        connection.close()
    else:
        connection.greeted()
