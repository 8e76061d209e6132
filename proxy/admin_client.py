"""kafka-python's admin client, as the file says.

It is synchronous, with a thread of its own for the network: call it in a thread, never on the event loop. Importing it
takes a tenth of a second, so this module is imported only where the file has ``replication``.
"""

import logging
from socket import socket
from typing import Any, Final

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.protocol.metadata import MetadataRequest

from config.model import Address, AdminClient
from proxy.client_sasl import sasl_keywords

CLIENT_ID: Final = "kafka-quota-proxy"
# A poll that waits longer than this says less than the one after it.
_REQUEST_TIMEOUT_MS: Final = 10_000
_BOOTSTRAP_TIMEOUT_MS: Final = 10_000

# What is a reason to try again later: all that kafka-python raises about brokers, and what sockets, TLS and the files
# of passwords and certificates raise. It means AssertionError and ValueError for answers that it does not understand.
ADMIN_ERRORS: Final = (KafkaError, OSError, ValueError, AssertionError, RuntimeError)


class _ClosedWhenRefused(KafkaNetSocket):  # type: ignore[misc]  # it ships no types
    """Unlike its own, a socket whose connect fails is closed, where a broker that is away would cost one each second.

    They hang in cycles of exceptions and their frames until a garbage collection, which a proxy that is busy with bytes
    alone comes to rarely.
    """

    SCHEMES = ("closing",)  # what kafka-python finds the class by

    async def sock_connect(
        self, net: object, sock: socket, sockaddr: object, timeout_at: float | None = None
    ) -> socket:
        try:
            connected: socket = await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
        return connected


def connect(
    settings: AdminClient, fallback: tuple[Address, ...], *, timeout_ms: int = _BOOTSTRAP_TIMEOUT_MS
) -> KafkaAdminClient:
    """Return a client that has reached a broker. Blocks; ``close`` it, for it holds a thread and sockets.

    Args:
        settings: The file's ``replication.admin_client``.
        fallback: Whom to ask where it has no ``bootstrap_servers``: ``proxy.cluster_view.servers_behind``.
        timeout_ms: How long it may take to reach the first broker.

    Raises:
        OSError: A file that the settings name cannot be read.
        KafkaError: No broker was reached in time, or the login failed.
    """
    # It logs its whole configuration on level debug, password included, and each attempt to connect as an error. What
    # matters of it comes as an exception.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    clients: list[KafkaNetClient] = []

    def network(**configs: object) -> KafkaNetClient:
        clients.append(KafkaNetClient(**configs))
        return clients[-1]

    servers = [str(address) for address in settings.bootstrap_servers or fallback]
    try:
        return KafkaAdminClient(
            bootstrap_servers=servers,
            client_id=CLIENT_ID,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=timeout_ms,
            reconnect_backoff_max_ms=1_000,
            kafka_client=network,
            proxy_url=f"{_ClosedWhenRefused.SCHEMES[0]}://",
            **_security(settings),
        )
    except KafkaTimeoutError as error:
        _end(clients)
        # Brokers hang up on a login that fails, so that it looks no different.
        message = (
            f"no answer of {','.join(servers)} as {settings.security_protocol.value}: they are away, or want another"
        )
        raise KafkaTimeoutError(f"{message} security_protocol, certificate or login") from error
    except BaseException:
        _end(clients)
        raise


def _end(clients: list[KafkaNetClient]) -> None:
    """Close what a constructor that failed has left behind: a thread, a further one with each attempt."""
    for client in clients:
        client.close()


def metadata_of(client: KafkaAdminClient, *, has_topics: bool) -> Any:  # noqa: ANN401 - kafka-python has no types
    """Ask for the brokers, and all topics. Its own ``describe_cluster`` fails with brokers before 3.7.

    Returns:
        A Metadata response as kafka-python has it.

    Raises:
        Exception: One of ``ADMIN_ERRORS``.
    """
    request = MetadataRequest(topics=None if has_topics else [], allow_auto_topic_creation=False)
    return client._manager.run(client._manager.send, request)  # noqa: SLF001


def racks_in(metadata: Any) -> dict[int, str | None]:  # noqa: ANN401
    """Return the rack of each broker, by node id."""
    return {broker.node_id: broker.rack for broker in metadata.brokers}


def _security(settings: AdminClient) -> dict[str, object]:
    keywords: dict[str, object] = {"security_protocol": settings.security_protocol.value}
    if settings.security_protocol.has_tls:
        keywords |= {
            "ssl_cafile": settings.ssl_cafile,
            "ssl_certfile": settings.ssl_certfile,
            "ssl_keyfile": settings.ssl_keyfile,
            "ssl_check_hostname": settings.ssl_check_hostname,
        }
    return keywords | sasl_keywords(settings)
