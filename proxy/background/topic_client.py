"""How this program's own clients of topics reach a cluster: what all of aiokafka's want to be told.

Imported only where a topic is configured: aiokafka comes with the extra ``usage-topic``.
"""

import logging
import ssl

from aiokafka.helpers import create_ssl_context

from kafka_quota_proxy.config.model import AdminClient
from kafka_quota_proxy.proxy.background.kafka_sasl import sasl_keywords


def connection(settings: AdminClient, client_id: str) -> dict[str, object]:
    """Return where the cluster is, who asks, and how it is spoken to. Files are read each time.

    Raises:
        OSError: A file of a password or certificates cannot be read, or (``ssl.SSLError``) used.
    """
    # Each attempt to connect is an error to aiokafka; what matters of it comes as an exception.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    keywords: dict[str, object] = {
        "bootstrap_servers": [str(address) for address in settings.bootstrap_servers],
        "client_id": client_id,
        "security_protocol": settings.security_protocol.value,
    }
    if settings.security_protocol.has_tls:
        context: ssl.SSLContext = create_ssl_context(
            cafile=settings.ssl_cafile, certfile=settings.ssl_certfile, keyfile=settings.ssl_keyfile
        )
        context.check_hostname = settings.ssl_check_hostname
        keywords["ssl_context"] = context
    return keywords | sasl_keywords(settings)
