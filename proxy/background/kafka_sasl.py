"""How this program logs in to a cluster of its own accord: what its two client libraries want, which is the same."""

from errno import EILSEQ
from pathlib import Path

from kafka_quota_proxy.config.model import AdminClient


def sasl_keywords(settings: AdminClient) -> dict[str, object]:
    """Return the keyword arguments of kafka-python's and aiokafka's clients; none where nobody logs in.

    The file of the password is read each time, so that a new one holds from the next connection on.

    Raises:
        OSError: It cannot be read, or is not UTF-8.
    """
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
