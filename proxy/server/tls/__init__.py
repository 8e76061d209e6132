"""TLS on both sides of the proxy: contexts, the transport, and the principal of a client certificate."""
