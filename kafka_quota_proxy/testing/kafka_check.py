"""Asks whether a Kafka answers at an address, so that tests do not wait for one that is not there."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Final

from kafka_quota_proxy.config.addresses import parse_addresses
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import Address

_TIMEOUT_S: Final = 5.0
# ApiVersions v0 without a client-id, which each Kafka answers, also before a login. The size comes first.
_QUESTION: Final = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"
_CORRELATION_ID: Final = _QUESTION[8:12]


def why_not_kafka(servers: str) -> str:
    """Return why no Kafka answers at ``HOST:PORT,HOST:PORT``, or an empty text if one does.

    Addresses that cannot be read are the proxy's to report.
    """
    try:
        addresses = parse_addresses(servers)
    except UnitError:
        return ""
    faults: list[str] = []
    for address in addresses:
        fault = _fault(address)
        if not fault:
            return ""
        faults.append(f"{address}: {fault}")
    return f"no Kafka answers at {'; '.join(faults)}. Start one, or run without an address to use the embedded broker"


def _fault(address: Address) -> str:
    """Return why a broker does not answer, or an empty text if it does."""
    try:
        with closing(socket.create_connection((address.host, address.port), _TIMEOUT_S)) as connection:
            connection.sendall(_QUESTION)
            answer = connection.makefile("rb").read(8)
    except TimeoutError:
        return f"no answer within {_TIMEOUT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    if answer[4:] == _CORRELATION_ID:
        return ""
    return "what listens there does not speak Kafka's protocol, or only over TLS"
