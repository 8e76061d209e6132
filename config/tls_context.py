"""Makes TLS contexts for connections to brokers."""

from __future__ import annotations

import ssl

from kafka_quota_proxy.config.addresses import without_final_dot


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


def broker_side_context(cafile: str | None) -> BrokerSideContext:
    """Return a context that trusts the certificates in a PEM file, or those of the system if ``cafile`` is None.

    Raises:
        OSError: The file cannot be read or used.
    """
    context = BrokerSideContext(ssl.PROTOCOL_TLS_CLIENT)
    if cafile is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=cafile)
    return context
