"""The broker's side of a client's connection."""

import asyncio
from typing import TYPE_CHECKING, cast

from kafka_quota_proxy.proxy.background.isolation import isolated

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.server.connection import ClientConnection


class BrokerConnection(asyncio.Protocol):
    """The protocol of the broker's transport; passes every event to its ``ClientConnection``.

    ``ClientConnection`` gets the transport when the dial has ended (``broker_connected``).
    """

    __slots__ = ("_owner", "_transport")

    def __init__(self, owner: "ClientConnection") -> None:
        self._owner = owner
        self._transport: asyncio.BaseTransport | None = None

    def fail(self) -> None:
        """See ``ClientConnection.fail``."""
        if self._transport is not None:
            cast(asyncio.Transport, self._transport).abort()
        self._owner.fail()

    @isolated
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, so that ``fail`` can abort it before the dial has ended."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See ``ClientConnection.broker_received``."""
        self._owner.broker_received(data)

    @isolated
    def pause_writing(self) -> None:
        """See ``ClientConnection.broker_full``."""
        self._owner.broker_full(True)

    @isolated
    def resume_writing(self) -> None:
        """See ``ClientConnection.broker_full``."""
        self._owner.broker_full(False)

    @isolated
    def connection_lost(self, exc: Exception | None) -> None:
        """See ``ClientConnection.broker_lost``."""
        self._owner.broker_lost(exc)
