"""A listener's door for TLS clients: the handshake, and who the client's certificate says it is."""

import logging
import ssl
from collections.abc import Callable

from kafka_quota_proxy.config.model import ClientTls
from kafka_quota_proxy.proxy.server.connection import ClientConnection
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext, client_fault
from kafka_quota_proxy.proxy.server.tls.principal import user_of_certificate
from kafka_quota_proxy.proxy.server.tls.transport import TlsTransport

log = logging.getLogger(__name__)


class TlsHandshakes:
    """Lets in the clients of one listener. ``shaking`` are those whose handshake goes on; they have no session yet."""

    def __init__(self, listener: ListenerState, settings: ClientTls, context: TlsContext) -> None:
        self.shaking: set[TlsTransport] = set()
        self._listener = listener
        self._rules = settings.principal_mapping_rules
        self._context = context

    def greet(self, accept: Callable[[], ClientConnection], abandon: Callable[[], None]) -> TlsTransport:
        """Return the protocol of a new connection.

        ``accept`` gives what comes behind its handshake; ``abandon`` is called where nothing does.
        """

        def welcome(tls: ssl.SSLObject) -> ClientConnection:
            user = user_of_certificate(tls.getpeercert(binary_form=True), self._rules)
            self.shaking.discard(transport)
            connection = accept()
            connection.session.account.log_in(user)
            return connection

        def fail(transport: TlsTransport, error: Exception) -> None:
            if not transport.is_up:  # else its connection is told, and counted, as any that is lost
                abandon()
                self._failed(transport, error)

        transport = TlsTransport(self._context.context, welcome=welcome, fail=fail)
        self.shaking.add(transport)
        return transport

    def close(self) -> None:
        """End the handshakes that go on."""
        for transport in tuple(self.shaking):
            transport.abort()
        self.shaking.clear()

    def _failed(self, transport: TlsTransport, error: Exception) -> None:
        self.shaking.discard(transport)
        cause = client_fault(error)
        self._listener.counters.disconnect(cause)
        is_news = cause != "client_closed" and self._listener.may_warn(cause)
        level = logging.WARNING if is_news else logging.DEBUG
        address = transport.get_extra_info("peername")
        peer = f"{address[0]}:{address[1]}" if address else "a client"
        log.log(level, "closed %s on listener %s: %s: %s", peer, self._listener.name, cause, error)
