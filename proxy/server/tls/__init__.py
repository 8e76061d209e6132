"""Provides TLS to clients and to brokers: contexts, the transport, and the principal of a client's certificate."""
