"""Builds the keyword arguments of aiokafka's clients: the addresses of a cluster, the login and the TLS settings.

Each function reads the password and certificate files, and raises ``OSError`` if a file cannot be read or used.
"""

import logging
import ssl
from errno import EILSEQ
from pathlib import Path

from kafka_quota_proxy.config.model import AdminClient
from kafka_quota_proxy.config.trust import BrokerSideContext, trust


def connection(settings: AdminClient, client_id: str) -> dict[str, object]:
    """Return all arguments for an aiokafka client that reads or writes topics, such as a consumer or a producer."""
    # aiokafka logs each attempt to connect as an error. Failures that matter arrive as exceptions.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return {
        "bootstrap_servers": [str(address) for address in settings.bootstrap_servers],
        "client_id": client_id,
        **security(settings),
    }


def security(settings: AdminClient) -> dict[str, object]:
    """Return only the arguments for login and TLS, which all of aiokafka's clients take."""
    keywords: dict[str, object] = {"security_protocol": settings.security_protocol.value}
    if settings.security_protocol.has_tls:
        keywords["ssl_context"] = _context(settings)
    if settings.security_protocol.has_sasl and settings.sasl_mechanism and settings.sasl_password_file:
        keywords |= {
            "sasl_mechanism": settings.sasl_mechanism.value,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": _first_line(settings.sasl_password_file),
        }
    return keywords


def _context(settings: AdminClient) -> ssl.SSLContext:
    context = BrokerSideContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.ssl_check_hostname
    if settings.ssl_cafile is None:
        context.load_default_certs()
    else:
        trust(context, settings.ssl_cafile)
    if settings.ssl_certfile:
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile)
    return context


def _first_line(path: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise OSError(EILSEQ, "the password is not UTF-8", path) from None
    return lines[0] if lines else ""
