"""The settings of this program's own clients of topics, as aiokafka's keyword arguments."""

import logging

from kafka_quota_proxy.config.model import AdminClient
from kafka_quota_proxy.proxy.background.client_security import security


def connection(settings: AdminClient, client_id: str) -> dict[str, object]:
    """Return where the cluster is, the client id, and how to log in. Files are read each time.

    Raises:
        OSError: A file of a password or certificates cannot be read, or (``ssl.SSLError``) used.
    """
    # aiokafka logs each attempt to connect as an error; failures that matter arrive as exceptions.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return {
        "bootstrap_servers": [str(address) for address in settings.bootstrap_servers],
        "client_id": client_id,
        **security(settings),
    }
