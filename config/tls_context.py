"""Makes TLS contexts for connections to brokers."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from kafka_quota_proxy.config.addresses import without_final_dot
from kafka_quota_proxy.config.trust import trust


class BrokerSideContext(ssl.SSLContext):
    """A TLS context for connections to brokers, whose host names may end with a dot.

    The dot makes a name absolute for DNS. It is no part of the name in SNI (RFC 6066, 3) and in certificates.
    """

    def wrap_bio(  # type: ignore[override] # typeshed: the arguments that are not used here
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return the TLS object of a connection. All event loops call this, and so does ``TlsTransport``."""
        name = without_final_dot(server_hostname) if server_hostname else server_hostname
        return super().wrap_bio(incoming, outgoing, server_side, name, session)


def broker_side_context(ca: str | None, load_own: Callable[[ssl.SSLContext], None] | None = None) -> BrokerSideContext:
    """Return a context that trusts the certificates in the PEM file ``ca``, or those of the system if that is None.

    ``load_own`` loads the own certificate into a context. It may be called again later.

    Raises:
        OSError: The file cannot be read or used.
    """

    def bare() -> BrokerSideContext:
        context = BrokerSideContext(ssl.PROTOCOL_TLS_CLIENT)
        if load_own is not None:
            load_own(context)
        return context

    context = bare()
    if ca is None:
        context.load_default_certs()
    else:
        trust(context, ca, bare)
    return context
