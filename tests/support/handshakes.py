"""Makes TLS handshakes in memory."""

import ssl
from contextlib import suppress


def shake(
    server: ssl.SSLContext,
    client: ssl.SSLContext,
    host: str = "proxy.example",
    *,
    session: ssl.SSLSession | None = None,
) -> tuple[ssl.SSLObject, ...]:
    """Make a TLS handshake in memory. Return the TLS objects of server and client. Raises ssl.SSLError on refusal."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    its = client.wrap_bio(to_client, to_server, server_hostname=host, session=session)
    for _ in range(4):
        for side in (its, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    with suppress(ssl.SSLWantReadError):
        its.read(1)  # in TLS 1.3 the client gets a refusal of the server only now
    return ours, its
