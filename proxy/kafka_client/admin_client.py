"""Asks a cluster about its brokers, topics, configs and reassignments. It changes nothing in the cluster.

aiokafka's own admin client returns neither topic ids nor log sizes, and cannot ask several brokers for configs at once.
So this module sends the requests of ``admin_requests`` itself, over aiokafka's connections.

All public methods block except ``BrokerClient.send``, so they must not be called on the event loop that serves clients.
Each may raise one of ``ADMIN_ERRORS``, mostly because a broker does not answer in time. Import this module only where
it is needed, because aiokafka loads slowly.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, TypeVar

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, NoError, for_code

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.kafka_client.admin_requests import (
    ConfigQuery,
    Configs,
    Metadata,
    TableRequest,
    configs_request,
    log_dirs_request,
    metadata_request,
    read_configs,
    read_metadata,
)
from kafka_quota_proxy.proxy.kafka_client.client_security import security
from kafka_quota_proxy.proxy.kafka_client.loop_thread import LoopThread

CLIENT_ID: Final = "kafka-quota-proxy"
_REQUEST_TIMEOUT_MS: Final = 10_000
_CLOSE_S: Final = 1.0

# Errors after which the caller may try again later. They come from brokers, from sockets and TLS, and from the files
# of passwords and certificates. aiokafka raises AssertionError and ValueError if it does not understand an answer.
ADMIN_ERRORS: Final = (KafkaError, OSError, ValueError, AssertionError, RuntimeError)

T = TypeVar("T")


class LogSizes(NamedTuple):
    """The size in bytes of each partition's log at each broker, by node id, topic and partition number.

    ``failures`` has the errors of brokers that did not answer, by node id. Each is one of ``ADMIN_ERRORS``.
    """

    sizes: Mapping[tuple[int, str, int], int]
    failures: Mapping[int, Exception]


class BrokerClient:
    """A client of a single broker: the first of several that answers.

    It never uses the addresses in a Metadata response, because these may lead back to this proxy. If the broker closes
    the connection, the next request opens a new one. The client runs a thread until ``close`` is called.

    Args:
        settings: The login and TLS settings. Their ``bootstrap_servers`` are not used.
        servers: The brokers to try, in this order.
        timeout_ms: The time limit for connecting and login, and the time limit for each answer.

    Attributes:
        server: The address of the broker that answered.

    Raises:
        OSError: A password or certificate file cannot be read or used.
        ConnectionError: No broker was reached in time, or the login failed.
    """

    def __init__(
        self, settings: AdminClient, servers: Sequence[Address], *, timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> None:
        # aiokafka logs each attempt to connect as an error, and passwords at level debug. This class raises exceptions.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        self.server = servers[0]
        self._settings = settings
        self._security = security(settings)
        self._timeout_ms = timeout_ms
        self._connections: dict[Address, AIOKafkaConnection] = {}
        self._connecting: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._thread = LoopThread("kafka-admin", on_close=self._end)
        try:
            self.server = self.run(self._first(servers))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this client's event loop, and return its result."""
        return self._thread.run(work)

    def ask(self, request: TableRequest) -> Any:  # noqa: ANN401 - the fields of a message have many types
        """Send a request to the broker that this client is connected to, and return the answer."""
        return self.run(self.send(request, self.server))

    def describe_configs(self, query: ConfigQuery) -> list[Configs]:
        """Ask the broker that this client is connected to for configs, and return its answer."""
        return read_configs(self.ask(configs_request(query)))

    def close(self) -> None:
        """Close the connections and end the thread. Calls that are waiting in other threads fail."""
        self._thread.close()

    async def send(self, request: TableRequest, server: Address) -> Any:  # noqa: ANN401
        """Send a request to a broker and return the answer, from a coroutine on this client's event loop.

        If a connection from an earlier request turns out to be closed, the request is repeated once over a new
        connection.
        """
        is_kept = server in self._connections
        connection = await self._connection(server)
        try:
            return await self._answer(connection, request)
        except KafkaConnectionError:
            if not is_kept:
                raise
        return await self._answer(await self._connection(server), request)

    async def _answer(self, connection: AIOKafkaConnection, request: TableRequest) -> Any:  # noqa: ANN401
        try:
            return await connection.send(request)
        except TimeoutError:
            connection.close()  # a late answer would be taken for the answer to the next request
            raise TimeoutError(f"no answer within {self._timeout_ms} ms") from None

    async def _connection(self, server: Address) -> AIOKafkaConnection:
        async with self._connecting[server]:
            found = self._connections.get(server)
            if found is None or not found.connected():
                async with asyncio.timeout(self._timeout_ms / 1_000):
                    found = self._connections[server] = await create_conn(
                        server.host,
                        server.port,
                        client_id=CLIENT_ID,
                        request_timeout_ms=self._timeout_ms,
                        **self._security,
                    )
            return found

    async def _first(self, servers: Sequence[Address]) -> Address:
        failures: list[str] = []
        for server in servers:
            try:
                await self._connection(server)
            except ADMIN_ERRORS as error:
                failures.append(f"{server}: {_words(error)}")
            else:
                return server
        raise ConnectionError(
            f"no answer as {self._settings.security_protocol.value}: {', '.join(failures)}; the brokers are away, or "
            "require another security_protocol, certificate or login"
        )

    async def _end(self) -> None:
        closing = [connection.close() for connection in self._connections.values()]
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*(one for one in closing if one is not None))


class ClusterClient(BrokerClient):
    """Sends requests to all brokers of a cluster, each at the address that the cluster advertises.

    It first connects to the ``bootstrap_servers`` of ``settings``, or to ``fallback`` if none are set.
    """

    def __init__(
        self, settings: AdminClient, fallback: Sequence[Address], *, timeout_ms: int = _REQUEST_TIMEOUT_MS
    ) -> None:
        self._addresses: Mapping[int, Address] = {}
        self._controller_id = -1
        super().__init__(settings, settings.bootstrap_servers or fallback, timeout_ms=timeout_ms)

    def metadata(self, topics: Sequence[str] | None = ()) -> Metadata:
        """Return the brokers of the cluster and the given topics. If ``topics`` is None, return all topics."""
        return self.run(self._metadata(topics))

    def configs(self, queries: Sequence[ConfigQuery]) -> list[list[Configs] | Exception]:
        """Send all queries at once. Return, for each query, its configs or the exception that it raised."""
        return self.run(self._configs(queries))

    def reassignments(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Return the node ids of the replicas that reassignments are adding, for each topic and partition number."""
        return self.run(self._reassignments())

    def log_sizes(self, partitions: Mapping[str, Sequence[int]], node_ids: Iterable[int]) -> LogSizes:
        """Return the sizes of the partitions' logs at these brokers. A broker that is away is no error.

        If a log is being moved to another directory of its broker, only the copy in the old directory counts. Brokers
        leave out topics that this client is not authorized to describe.
        """
        return self.run(self._log_sizes(partitions, tuple(node_ids)))

    async def _metadata(self, topics: Sequence[str] | None) -> Metadata:
        found = read_metadata(await self._from_any(metadata_request(topics)))
        self._addresses = {broker.node_id: Address(host=broker.host, port=broker.port) for broker in found.brokers}
        self._controller_id = found.controller_id
        return found

    async def _configs(self, queries: Sequence[ConfigQuery]) -> list[list[Configs] | Exception]:
        answers = await asyncio.gather(*(self._config(query) for query in queries), return_exceptions=True)
        return [one if isinstance(one, Exception) else _answered(one) for one in answers]

    async def _config(self, query: ConfigQuery) -> list[Configs]:
        request = configs_request(query)
        answer = self._from_any(request) if query.node_id is None else self._from_broker(request, query.node_id)
        return read_configs(await answer)

    async def _reassignments(self) -> dict[tuple[str, int], tuple[int, ...]]:
        await self._metadata(())  # the controller may have changed
        request = TableRequest(ApiKey.LIST_PARTITION_REASSIGNMENTS, (self._timeout_ms, None))
        try:
            answer = await self._from_broker(request, self._controller_id)
        except ADMIN_ERRORS:
            # With KRaft any broker passes the request on, and the one in Metadata is any broker, which may be away.
            answer = await self._from_any(request)
        _, error_code, error_message, topics = answer
        error = for_code(error_code)
        if error is not NoError:
            raise error(f"ListPartitionReassignments: {error_message or error.__name__}")
        return {(topic, index): adding for topic, partitions in topics for index, _, adding, _ in partitions}

    async def _log_sizes(self, partitions: Mapping[str, Sequence[int]], node_ids: Sequence[int]) -> LogSizes:
        request = log_dirs_request(partitions)
        asked = (self._from_broker(request, node_id) for node_id in node_ids)
        answers = dict(zip(node_ids, await asyncio.gather(*asked, return_exceptions=True), strict=True))
        failures = {node_id: answer for node_id, answer in answers.items() if isinstance(answer, ADMIN_ERRORS)}
        sizes = {
            (node_id, topic, index): size_bytes
            for node_id, answer in answers.items()
            if node_id not in failures
            for _, _, topics, *_ in _answered(answer)[-1]
            for topic, logs in topics
            for index, size_bytes, _, is_future in logs
            if not is_future
        }
        return LogSizes(sizes, failures)

    async def _from_any(self, request: TableRequest) -> Any:  # noqa: ANN401
        """Send a request to the broker that answered last, or to another known broker if that one fails."""
        try:
            return await self.send(request, self.server)
        except ADMIN_ERRORS:
            others = [address for address in self._addresses.values() if address != self.server]
            if not others:
                raise
            self.server = await self._first(others)
        return await self.send(request, self.server)

    async def _from_broker(self, request: TableRequest, node_id: int) -> Any:  # noqa: ANN401
        address = self._addresses.get(node_id)
        if address is None:
            raise ConnectionError(f"broker {node_id} is not among those of the cluster")
        return await self.send(request, address)


def _answered(answer: T | BaseException) -> T:
    """Return an answer of ``asyncio.gather``, or raise what was raised."""
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _words(error: BaseException) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))
