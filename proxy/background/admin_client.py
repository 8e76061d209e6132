"""kafka-python's clients, as the file says: its admin client for a cluster, and a connection to one broker.

Both are synchronous, with a thread of their own for the network: call them in a thread, never on the event loop.
Importing kafka-python takes a tenth of a second, so this module is imported only where the file has ``replication`` or
``quotas_from: broker``.
"""

import logging
from io import BytesIO
from socket import socket
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket
from kafka.protocol.metadata import MetadataRequest

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.proxy.background.kafka_sasl import sasl_keywords

CLIENT_ID: Final = "kafka-quota-proxy"
# A poll that waits longer than this says less than the one after it.
_REQUEST_TIMEOUT_MS: Final = 10_000
_BOOTSTRAP_TIMEOUT_MS: Final = 10_000

# 200,000 entities with names of a hundred bytes.
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_CORRELATION_ID: Final = Struct(">i")
_SIZE: Final = Struct(">i")

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
        fallback: Whom to ask where it has no ``bootstrap_servers``: ``proxy.replication.cluster_view.servers_behind``.
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


class RequestFrame(Protocol):
    """Returns the whole frame of a request, of the version and the correlation id that it is given."""

    def __call__(self, api_version: int, correlation_id: int) -> bytes:
        """Return it."""


class Answer(NamedTuple):
    """A response as it came, whole, and the version that it was asked in."""

    frame: bytes
    api_version: int


class BrokerClient:
    """A connection to the broker at an address, and never to those that brokers advertise: these may be proxies'.

    Blocks, as does ``ask``; ``close`` it, for it holds a thread and sockets. After an error, take another.

    Args:
        settings: How it is spoken to; its ``bootstrap_servers`` count for nothing.
        server: Where.
        timeout_ms: How long connecting may take, login included, and how long each answer.

    Raises:
        OSError: A file that the settings name cannot be read.
        KafkaError: It was not reached in time, or the login failed.
    """

    def __init__(self, settings: AdminClient, server: Address, *, timeout_ms: int) -> None:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        security = _security(settings)
        self._timeout_ms = timeout_ms
        self._client = KafkaNetClient(
            bootstrap_servers=[str(server)],
            client_id=CLIENT_ID,
            request_timeout_ms=timeout_ms,
            receive_message_max_bytes=_MAX_ANSWER_BYTES,
            proxy_url=f"{_ClosedWhenRefused.SCHEMES[0]}://",
            **security,
        )
        self._manager = self._client._manager  # noqa: SLF001 - its public face asks for metadata first, and follows it
        self._manager._net.start()  # noqa: SLF001
        try:
            self._connection: KafkaConnection = self._manager.run(self._connect)
        except KafkaTimeoutError as error:
            self.close()
            message = f"no answer of {server} as {settings.security_protocol.value}: it is away, or wants another"
            raise KafkaTimeoutError(f"{message} security_protocol, certificate or login") from error
        except BaseException:
            self.close()
            raise

    def version_of(self, api_key: int, most: int) -> int | None:
        """Return the highest version of an API that the broker knows, up to ``most``; None where it has none."""
        least, highest = self._connection.broker_version_data.api_versions.get(api_key, (0, -1))
        return None if highest < 0 or least > most else min(highest, most)

    def ask(self, api_key: int, api_version: int, request: RequestFrame) -> Answer:
        """Send a request and return the answer.

        Raises:
            KafkaError: There is none in time.
        """
        return Answer(self._manager.run(self._send, _Raw(api_key, api_version, request)), api_version)

    def close(self) -> None:
        """End the connection and the thread; what another thread waits for fails."""
        self._client.close()

    async def _connect(self) -> KafkaConnection:
        connection = self._manager.get_connection(
            "bootstrap-0", timeout_ms=self._timeout_ms, refresh_metadata_on_err=False
        )
        return await connection

    async def _send(self, request: "_Raw") -> bytes:
        frame: bytes = await self._connection.send_request(request)
        return frame


class _Raw:
    """A request and its answer as bytes, in the place of kafka-python's own messages."""

    def __init__(self, api_key: int, api_version: int, request: RequestFrame) -> None:
        self.API_KEY = api_key
        self.API_VERSION = api_version
        self.correlation_id = 0
        self._request = request

    def __str__(self) -> str:
        return f"request of API {self.API_KEY}"

    # -- what is asked of a request --

    def with_header(self, correlation_id: int = 0, client_id: str = "") -> None:
        self.correlation_id = correlation_id

    def encode(self, **_: object) -> bytes:
        return self._request(self.API_VERSION, self.correlation_id)

    def expect_response(self) -> bool:
        return True

    # -- of its header, and of the response's class --

    @property
    def header(self) -> "_Raw":
        return self

    def get_response_class(self) -> "_Raw":
        return self

    def parse_header(self, buffer: BytesIO) -> "_RawHeader":
        """Return the header of a response, and leave the buffer where it was."""
        found = _RawHeader(*_CORRELATION_ID.unpack(buffer.read(_CORRELATION_ID.size)))
        buffer.seek(0)
        return found

    def decode(self, buffer: BytesIO) -> bytes:
        body = buffer.read()
        return _SIZE.pack(len(body)) + body


class _RawHeader(NamedTuple):
    correlation_id: int


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
