"""How this program's own Kafka clients log in, and by which TLS: aiokafka's keyword arguments."""

import ssl
from errno import EILSEQ
from pathlib import Path

from kafka_quota_proxy.config.model import AdminClient


def security(settings: AdminClient) -> dict[str, object]:
    """Return the keyword arguments. Files are read each time, so that a new password holds from the next connection.

    Raises:
        OSError: A file of a password or certificates cannot be read, or (``ssl.SSLError``) used.
    """
    keywords: dict[str, object] = {"security_protocol": settings.security_protocol.value}
    if settings.security_protocol.has_tls:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        if settings.ssl_certfile:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile)
        context.check_hostname = settings.ssl_check_hostname
        keywords["ssl_context"] = context
    return keywords | _login(settings)


def _login(settings: AdminClient) -> dict[str, object]:
    if not (settings.security_protocol.has_sasl and settings.sasl_mechanism and settings.sasl_password_file):
        return {}
    try:
        lines = Path(settings.sasl_password_file).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise OSError(EILSEQ, "the password is not UTF-8", settings.sasl_password_file) from None
    return {
        "sasl_mechanism": settings.sasl_mechanism.value,
        "sasl_plain_username": settings.sasl_username,
        "sasl_plain_password": lines[0] if lines else "",
    }
