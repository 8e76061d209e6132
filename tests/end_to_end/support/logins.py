"""Logs in with SASL over a ``RawClient``, and creates SCRAM users at a broker."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from tests.end_to_end.support.clients import QUIET
from tests.end_to_end.support.frames import RawClient, string
from tests.end_to_end.support.kafka import Kafka

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
_ITERATIONS: Final = 4_096  # Kafka's minimum


def secret_of(user: str) -> str:
    """Return the password of a test user."""
    return f"{user}-secret"


def add_scram_users(kafka: Kafka, users: Sequence[str], *mechanisms: str) -> None:
    """Create SCRAM users with the passwords of ``secret_of``."""
    admin: Any = import_module("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    for mechanism in mechanisms:
        credentials = admin.ScramCredentialInfo(getattr(admin.ScramMechanism, mechanism.replace("-", "_")), _ITERATIONS)
        # A request may contain each user only once.
        wanted = [admin.UserScramCredentialUpsertion(user, credentials, secret_of(user).encode()) for user in users]
        for done in client.alter_user_scram_credentials(wanted).values():
            done.result(timeout=30)


def shake_hands(client: RawClient, mechanism: str, *, version: int) -> int:
    """Send SaslHandshake, and return the error code."""
    answer = client.ask(SASL_HANDSHAKE, version, string(mechanism)).body
    return int(struct.unpack_from(">h", answer)[0])


def authenticate(client: RawClient, token: bytes) -> tuple[int, bytes]:
    """Send a token by SaslAuthenticate v1, and return the error code and the broker's token."""
    body = client.ask(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token).body
    error_code, text_bytes = struct.unpack_from(">hh", body)
    at = 4 + max(text_bytes, 0)
    (token_bytes,) = struct.unpack_from(">i", body, at)
    return error_code, body[at + 4 : at + 4 + token_bytes]


def log_in_scram(client: RawClient, user: str, mechanism: str = "SCRAM-SHA-256") -> None:
    """Log in with SCRAM, and check the broker's signature. Raises AssertionError if the broker refuses."""
    scram: Any = import_module("kafka.net.sasl.scram")
    exchange = scram.ScramClient(user, secret_of(user), mechanism)
    assert shake_hands(client, mechanism, version=1) == 0
    error_code, answer = authenticate(client, exchange.first_message())
    assert error_code == 0, f"{user}: {answer!r}"
    exchange.process_server_first_message(answer)
    error_code, answer = authenticate(client, exchange.final_message())
    assert error_code == 0, f"{user}: {answer!r}"
    exchange.process_server_final_message(answer)
