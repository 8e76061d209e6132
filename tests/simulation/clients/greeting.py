"""How a connection begins: ApiVersions, with the retry in version 0, then SASL PLAIN for a client with a login."""

from typing import TYPE_CHECKING, Final

from tests.simulation.clients.profiles import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.simulation.ledger import Entity
from tests.simulation.wire import api_versions, sasl_authenticate, sasl_handshake

if TYPE_CHECKING:
    from tests.simulation.clients.connection import Connection
    from tests.simulation.ledger import Exchange

_ANONYMOUS: Final = "ANONYMOUS"


def greet(connection: "Connection") -> None:
    """Begin a connection, and call its ``greeted`` at the end."""
    profile = connection.profile
    if profile.asks_versions:
        _ask_versions(connection, profile.versions[API_VERSIONS])
    else:
        _log_in(connection)


def _before_login(connection: "Connection") -> Entity:
    entity = connection.setting.entity
    return entity if connection.setting.login is None else entity._replace(user=_ANONYMOUS)


def _ask_versions(connection: "Connection", version: int) -> None:
    setting = connection.setting
    version = min(version, api_versions.VERSIONS[-1])
    correlation_id = connection.world.ledger.next_id()
    frame = api_versions.request(
        correlation_id, version, setting.entity.client_id, software_name=setting.profile.name, software_version="1.0"
    )
    connection.send(
        frame, API_VERSIONS, version, correlation_id, parse=api_versions.parse_response,
        on_response=lambda result, exchange: _has_versions(connection, result, exchange),
        entity=_before_login(connection),
    )  # fmt: skip


def _has_versions(connection: "Connection", result: api_versions.ApiVersionsResponse, exchange: "Exchange") -> None:
    if result.error_code == api_versions.UNSUPPORTED_VERSION and exchange.api_version > 0:
        _ask_versions(connection, 0)
    elif result.error_code:
        connection.close()
    else:
        connection.versions = {api.api_key: api.last for api in result.apis}
        _log_in(connection)


def _log_in(connection: "Connection") -> None:
    setting = connection.setting
    if setting.login is None:
        connection.greeted()
        return
    correlation_id = connection.world.ledger.next_id()
    frame = sasl_handshake.request(correlation_id, 1, setting.entity.client_id)
    connection.send(
        frame, SASL_HANDSHAKE, 1, correlation_id, parse=sasl_handshake.parse_response,
        on_response=lambda result, exchange: _has_handshake(connection, result),
        entity=_before_login(connection),
    )  # fmt: skip


def _has_handshake(connection: "Connection", result: sasl_handshake.SaslHandshakeResponse) -> None:
    login = connection.setting.login
    if result.error_code or login is None:
        connection.close()
        return
    version = min(connection.profile.versions[SASL_AUTHENTICATE], 2)
    if connection.versions is not None:
        version = min(version, connection.versions.get(SASL_AUTHENTICATE, 0))
    correlation_id = connection.world.ledger.next_id()
    token = sasl_authenticate.plain_token(login.user, login.password)
    frame = sasl_authenticate.request(correlation_id, version, connection.setting.entity.client_id, token)
    connection.send(
        frame, SASL_AUTHENTICATE, version, correlation_id, parse=sasl_authenticate.parse_response,
        on_response=lambda result, exchange: _is_logged_in(connection, result),
        entity=_before_login(connection),
    )  # fmt: skip


def _is_logged_in(connection: "Connection", result: sasl_authenticate.SaslAuthenticateResponse) -> None:
    if result.error_code:
        connection.world.story.tell(f"{connection.setting.name} is refused its login")
        connection.close()
    else:
        connection.greeted()
