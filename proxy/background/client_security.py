"""aiokafka's keyword arguments: where a cluster is, how this program's clients log in, and by which TLS.

Files are read at each call, so that a new password holds from the next connection. One of a password or certificates
that cannot be read raises ``OSError``; one that cannot be used, ``ssl.SSLError``, which is one, too.
"""

import logging
import ssl
from errno import EILSEQ
from pathlib import Path

from kafka_quota_proxy.config.model import AdminClient


def connection(settings: AdminClient, client_id: str) -> dict[str, object]:
    """Return the arguments of a client of topics."""
    # aiokafka logs each attempt to connect as an error; failures that matter arrive as exceptions.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return {
        "bootstrap_servers": [str(address) for address in settings.bootstrap_servers],
        "client_id": client_id,
        **security(settings),
    }


def security(settings: AdminClient) -> dict[str, object]:
    """Return the arguments for the login and TLS."""
    keywords: dict[str, object] = {"security_protocol": settings.security_protocol.value}
    if settings.security_protocol.has_tls:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        if settings.ssl_certfile:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile)
        context.check_hostname = settings.ssl_check_hostname
        keywords["ssl_context"] = context
    if settings.security_protocol.has_sasl and settings.sasl_mechanism and settings.sasl_password_file:
        keywords |= {
            "sasl_mechanism": settings.sasl_mechanism.value,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": _first_line(settings.sasl_password_file),
        }
    return keywords


def _first_line(path: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise OSError(EILSEQ, "the password is not UTF-8", path) from None
    return lines[0] if lines else ""
