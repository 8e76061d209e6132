"""TLS for clients and brokers: contexts (``ssl``), the transport, and the user (principal) of a client certificate."""
