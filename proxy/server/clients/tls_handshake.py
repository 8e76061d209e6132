"""Runs the TLS handshakes of a listener's clients. The user of each client is derived from its certificate."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import cast

from kafka_quota_proxy.config.security import ClientTls
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext, client_fault
from kafka_quota_proxy.proxy.server.tls.principal import user_of_certificate
from kafka_quota_proxy.proxy.server.tls.transport import TlsTransport

log = logging.getLogger(__name__)


class TlsHandshakes:
    """Creates and tracks the TLS handshakes of one listener. ``pending`` contains those that have not ended."""

    def __init__(self, listener: ListenerState, settings: ClientTls, context: TlsContext) -> None:
        self.pending: set[TlsTransport] = set()
        self._listener = listener
        self._rules = settings.principal_mapping_rules
        self._context = context

    def new_protocol(self, accept: Callable[[], ClientConnection], abandon: Callable[[], None]) -> asyncio.BaseProtocol:
        """Return the protocol of a new TLS connection. ``ListenerState.new_protocol`` explains the arguments."""

        def welcome(tls: ssl.SSLObject) -> asyncio.Protocol:
            user = user_of_certificate(tls.getpeercert(binary_form=True), self._rules)
            self.pending.discard(transport)
            connection = accept()
            connection.session.account.log_in(user)
            return cast(asyncio.Protocol, connection)

        def fail(transport: TlsTransport, error: Exception) -> None:
            if not transport.is_up:  # after the handshake, the connection itself counts its end
                abandon()
                self._failed(transport, error)

        transport = TlsTransport(self._context.context, welcome=welcome, fail=fail)
        self.pending.add(transport)
        return cast(asyncio.BaseProtocol, transport)

    def close(self) -> None:
        """Abort every handshake that has not ended."""
        for transport in tuple(self.pending):
            transport.abort()
        self.pending.clear()

    def _failed(self, transport: TlsTransport, error: Exception) -> None:
        self.pending.discard(transport)
        cause = client_fault(error)
        self._listener.counters.disconnect(cause)
        may_warn = cause != "client_closed" and self._listener.may_warn(cause)
        level = logging.WARNING if may_warn else logging.DEBUG
        address = transport.get_extra_info("peername")
        peer = f"{address[0]}:{address[1]}" if address else "a client"
        log.log(level, "closed %s on listener %s: %s: %s", peer, self._listener.name, cause, error)
