"""Finds out whether a broker can be reached, without a login. If not, finds out why.

With TLS the handshake must work. Without TLS the broker must answer ApiVersions, which brokers answer before a login:
a port that expects TLS accepts connections, too, and so do forwarders of ports whose broker is away.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Final

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.server.brokers.broker import local_address, numeric
from kafka_quota_proxy.proxy.server.brokers.cluster_query import request_frame
from kafka_quota_proxy.proxy.server.brokers.faults import NOT_KAFKA, TLS_EXPECTED, Fault, fault_of
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext

_TIMEOUT_S: Final = 10.0
_REFUSAL_S: Final = 0.2
# Every broker since 0.10.0 answers it, also one that does not support this version.
GREETING: Final = request_frame(ApiKey.API_VERSIONS, 0, b"kafka-quota-proxy-probe")
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")


class _FaultError(ConnectionError):
    """The broker's answer shows a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.detail)
        self.fault = fault


async def try_broker(
    address: Address, source: str | None, tls: TlsContext | None
) -> tuple[Address | None, Fault | None]:
    """Connect to the broker at ``address`` from the local address ``source``, and disconnect.

    Return the broker's numeric address, and None or the fault.
    """
    is_connected = asyncio.Event()
    try:
        return await _greet(address, source, tls.context if tls else None, is_connected), None
    except _FaultError as error:
        return None, error.fault
    except (OSError, UnicodeError, EOFError) as error:  # TimeoutError is an OSError
        return None, fault_of(error, address, tls, after_s=_TIMEOUT_S, is_connected=is_connected.is_set())


async def _greet(
    address: Address, source: str | None, context: ssl.SSLContext | None, is_connected: asyncio.Event
) -> Address | None:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, local_addr=local_address(source), ssl=context
            )
            is_connected.set()
            if context is None:
                writer.write(GREETING)
                await _await_answer(reader)
            else:
                await _await_refusal(reader)
            return numeric(writer.get_extra_info("peername"))
    finally:
        if writer is not None:
            writer.transport.abort()


async def _await_answer(reader: asyncio.StreamReader) -> None:
    """Read the begin of the answer to ``GREETING``: its size and the correlation id."""
    try:
        begin = await reader.readexactly(8)
    except asyncio.IncompleteReadError as error:
        begin = error.partial
        if not begin:
            raise
    if begin.startswith(_TLS_RECORDS):
        raise _FaultError(TLS_EXPECTED)
    if begin[4:] != GREETING[8:12]:
        raise _FaultError(NOT_KAFKA)


async def _await_refusal(reader: asyncio.StreamReader) -> None:
    """In TLS 1.3 a broker that refuses our certificate sends an alert or hangs up now. Others send nothing."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_REFUSAL_S):
            await reader.read(1)
        raise ConnectionResetError
