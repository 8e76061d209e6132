"""Makes TLS contexts that trust the certificates in a file, as a Java truststore does."""

from __future__ import annotations

import ssl

from kafka_quota_proxy.config.addresses import without_final_dot


def trust(context: ssl.SSLContext, ca: str) -> None:
    """Make a context trust all certificates in the PEM file ``ca``, be they roots, intermediates or peers' own.

    If several have the same name, OpenSSL tells them apart by the identifiers of their keys (RFC 5280, 4.2.1.1).

    Raises:
        OSError: The file cannot be read or used.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cafile=ca)


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
