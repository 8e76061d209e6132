"""TLS for clients and for brokers: contexts, the transport, and the principal of a client's certificate."""
