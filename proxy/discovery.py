"""Asking a cluster for its brokers, as a client would.

A cluster that wants a login does not answer; its brokers are then known from what it answers to clients.
"""

import asyncio
import ssl
from struct import Struct
from typing import Final

from config.model import Address
from protocol import metadata
from protocol.api import ApiKey
from protocol.errors import Truncated
from proxy.tls import TlsContext, broker_fault
from proxy.upstream import local_address

# The oldest version in which no topics can be asked for; every broker since 0.10.0 has it.
_VERSION: Final = 1
_CLIENT_ID: Final = b"kafka-quota-proxy"
_TIMEOUT_S: Final = 5.0
_MAX_ANSWER_BYTES: Final = 1024 * 1024
_HEADER: Final = Struct(">ihhih")
_INT32: Final = Struct(">i")
_CORRELATION_ID: Final = 1


def request() -> bytes:
    """Return a whole Metadata request for no topic."""
    size_bytes = _HEADER.size - 4 + len(_CLIENT_ID) + 4
    head = _HEADER.pack(size_bytes, ApiKey.METADATA, _VERSION, _CORRELATION_ID, len(_CLIENT_ID))
    return head + _CLIENT_ID + _INT32.pack(0)


def brokers_of(frame: bytes) -> dict[int, Address]:
    """Return node id and address of the brokers that are alive, from the whole answer.

    Raises:
        ProtocolError: It is no such answer.
    """
    found = metadata.find_brokers(frame, 0, _VERSION)
    if found is None:
        raise Truncated(f"an answer of {len(frame)} bytes ends among its brokers")
    return {broker.node_id: Address(host=broker.host, port=broker.port) for broker in found.brokers}


async def ask(address: Address, source: str | None, tls: TlsContext | None = None) -> dict[int, Address]:
    """Ask one broker for all; ``source`` is the address of this machine to do it from, None the system's choice.

    Raises:
        OSError: It cannot be reached, or does not answer.
        ProtocolError: It answers something else.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, local_addr=local_address(source), ssl=tls.context if tls else None
            )
            writer.write(request())
            size = await reader.readexactly(4)
            size_bytes = _INT32.unpack(size)[0]
            if not 4 <= size_bytes <= _MAX_ANSWER_BYTES:
                raise Truncated(f"an answer has {size_bytes} bytes")
            return brokers_of(size + await reader.readexactly(size_bytes))
    except ssl.SSLError as error:
        raise ConnectionAbortedError(broker_fault(error, tls, address.host)) from error
    except TimeoutError as error:
        raise TimeoutError(f"no answer in {_TIMEOUT_S:g} s") from error
    except UnicodeError as error:  # a host that is no name in DNS
        raise OSError(f"{address.host!r} is no host name") from error
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("it closed the connection; does it want TLS or a login?") from error
    finally:
        if writer is not None:
            writer.transport.abort()
