"""Asks a broker for the id and the brokers of its cluster, by sending a Metadata request as clients do."""

import asyncio
import ssl
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.protocol import metadata
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import Truncated
from kafka_quota_proxy.proxy.server.brokers.broker import local_address, numeric
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext, broker_fault

# The oldest version of Metadata with the cluster's id in the response. Every broker since 0.10.1 supports it.
_VERSION: Final = 2
_CLIENT_ID: Final = b"kafka-quota-proxy"
_TIMEOUT_S: Final = 5.0
_MAX_RESPONSE_BYTES: Final = 1024 * 1024
_HEADER: Final = Struct(">ihhih")
_INT32: Final = Struct(">i")
_CORRELATION_ID: Final = 1


class ClusterDescription(NamedTuple):
    """Holds what a broker has answered about its cluster. ``peer`` is the numeric address of that broker, or None."""

    brokers: dict[int, Address]
    cluster_id: str | None
    peer: Address | None


def request_frame(api_key: int, api_version: int, client_id: bytes, body: bytes = b"") -> bytes:
    """Return the bytes of a request of the proxy itself, with its size and a header of version 1."""
    size_bytes = _HEADER.size - 4 + len(client_id) + len(body)
    return _HEADER.pack(size_bytes, api_key, api_version, _CORRELATION_ID, len(client_id)) + client_id + body


def request() -> bytes:
    """Return the bytes of a Metadata request, with its size and header, that asks for the brokers and for no topics."""
    return request_frame(ApiKey.METADATA, _VERSION, _CLIENT_ID, _INT32.pack(0))


def read(frame: bytes, peer: Address | None = None) -> ClusterDescription:
    """Decode a Metadata response, which starts with its size, from the broker at ``peer``.

    Raises:
        ProtocolError: If the bytes are not a Metadata response.
    """
    found = metadata.find_brokers(frame, 0, _VERSION)
    if found is None:
        raise Truncated(f"a response of {len(frame)} bytes ends within its list of brokers")
    brokers = {broker.node_id: Address(host=broker.host, port=broker.port) for broker in found.brokers}
    return ClusterDescription(brokers, metadata.find_cluster_id(frame, 0, found, _VERSION), peer)


async def describe_cluster(
    address: Address,
    source: str | None,
    tls: TlsContext | None = None,
    *,
    on_connected: Callable[[Address | None], None] = lambda _: None,
) -> ClusterDescription:
    """Ask the broker at ``address`` about its cluster, on a new connection from the local address ``source``.

    ``on_connected`` is called with the numeric address of the broker once the connection is made, even if the broker
    does not answer. It is None if the connection is closed already.

    Raises:
        OSError: If the broker cannot be reached, or does not answer.
        ProtocolError: If the broker sends something other than a Metadata response.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, local_addr=local_address(source), ssl=tls.context if tls else None
            )
            peer = numeric(writer.get_extra_info("peername"))
            on_connected(peer)
            writer.write(request())
            size = await reader.readexactly(4)
            size_bytes = _INT32.unpack(size)[0]
            if not 4 <= size_bytes <= _MAX_RESPONSE_BYTES:
                raise Truncated(f"a response has {size_bytes} bytes")
            return read(size + await reader.readexactly(size_bytes), peer)
    except ssl.SSLError as error:
        raise ConnectionAbortedError(broker_fault(error, tls, address.host)[1]) from error
    except TimeoutError as error:
        raise TimeoutError(f"no answer in {_TIMEOUT_S:g} s") from error
    except UnicodeError as error:  # the host is no valid name in DNS
        raise OSError(f"{address.host!r} is no host name") from error
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("it closed the connection; does it require TLS or a login?") from error
    finally:
        if writer is not None:
            writer.transport.abort()
