"""The login by SASL/PLAIN, in two requests, at listeners that demand it."""

from typing import TYPE_CHECKING, Final

from tests.simulation.wire import greeting
from tests.simulation.wire.common import RequestHeader, WireError

if TYPE_CHECKING:
    from tests.simulation.brokers.connection import Connection

_UNSUPPORTED_MECHANISM: Final = 33
_ILLEGAL_STATE: Final = 34
_MECHANISM: Final = "PLAIN"


def answer_handshake(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Agree on PLAIN. Any other mechanism is refused, and the connection stays open."""
    request = greeting.sasl_handshake.parse_request(frame)
    error = 0
    if not connection.terms.requires_login:
        error = _ILLEGAL_STATE
    elif request.mechanism != _MECHANISM:
        error = _UNSUPPORTED_MECHANISM
    else:
        connection.mechanism = _MECHANISM
    connection.answer(greeting.sasl_handshake, header, (_MECHANISM,), error_code=error)


def answer_authenticate(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Accept a user with its password. After a refusal, close the connection."""
    request = greeting.sasl_authenticate.parse_request(frame)
    broker = connection.broker
    user: str | None = None
    error = 0
    if connection.mechanism is None:
        error = _ILLEGAL_STATE
    else:
        try:
            user, password = greeting.parse_plain_token(request.token)
        except (WireError, UnicodeDecodeError):
            password = ""
        if user is None or broker.cluster.users.get(user) != password:
            error = greeting.AUTHENTICATION_FAILED
        elif connection.user is not None and connection.user != user:
            error = greeting.AUTHENTICATION_FAILED  # who logs in again may not become another
    if not error:
        connection.user = user
    message = "Authentication failed: Invalid username or password" if error else None
    connection.answer(greeting.sasl_authenticate, header, error_code=error, error_message=message)
    if error:
        broker.world.story.tell(f"broker {broker.node_id} refuses a login")
        connection.close()
