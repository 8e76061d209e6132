"""Names the ways in which a broker cannot be reached. This module does no I/O and reads no clock."""

import errno
import socket
import ssl
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext, broker_fault


class Fault(NamedTuple):
    """Says why a broker cannot be reached.

    ``reason`` is a word that metrics and ``/readyz`` have, and ``detail`` a text for people. ``is_behind_dial`` says
    whether connections are made all the same, so that another connection proves nothing.
    """

    reason: str
    detail: str
    is_behind_dial: bool = False


NOT_TRIED: Final = Fault("not_tried", "the proxy has not tried to connect yet")
NO_PORT: Final = "no_port"
TLS_EXPECTED: Final = Fault(
    "tls_expected", "it expects TLS there; give upstream_tls, or use its plaintext port", is_behind_dial=True
)
NOT_KAFKA: Final = Fault("not_kafka", "what answers there does not speak Kafka's protocol", is_behind_dial=True)

# asyncio joins the errors of several addresses of a host into one text.
_REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"


def fault_of(
    error: Exception, address: Address, tls: TlsContext | None, *, after_s: float, is_connected: bool = False
) -> Fault:
    """Return the fault that an exception of a connection to ``address`` shows.

    ``after_s`` is the time after which the attempt is given up. ``is_connected`` says whether the connection, and with
    ``tls`` its handshake, was made before the error.
    """
    if isinstance(error, TimeoutError):
        what = "it accepts connections, but sent no response" if is_connected else "no response"
        return Fault(
            "silent", f"{what} in {after_s:.0f} s{'' if is_connected else '; is a firewall in between?'}", is_connected
        )
    if isinstance(error, ssl.SSLError):
        return Fault(*broker_fault(error, tls, address.host), is_connected)
    if isinstance(error, socket.gaierror | UnicodeError):  # UnicodeError: no name in DNS, such as kafka..local
        return Fault("unknown_host", f"the name {address.host} does not resolve here: {error}")
    if isinstance(error, EOFError | ConnectionError) and not isinstance(error, ConnectionRefusedError):
        if is_connected and tls is not None:
            text = (
                "it closes connections after the TLS handshake; if it asks for certificates, give certificate and key"
            )
            return Fault("tls_refused", text, is_connected)
        if is_connected:
            text = "it closes connections without a response; if it expects TLS there, give upstream_tls"
            return Fault("closed", text, is_connected)
        if tls:
            error = ConnectionError("it closed the connection during the TLS handshake")
        reason = "closed"
    else:
        is_refused = isinstance(error, ConnectionRefusedError) or _REFUSED in str(error)
        reason = "refused" if is_refused else "unreachable"
    return Fault(reason, f"{error}; is the broker running, and is this its {'TLS address' if tls else 'address'}?")
