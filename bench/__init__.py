"""Benchmarks against a direct connection, Envoy and Kroxylicious in one run. ``README.md`` is the method."""
