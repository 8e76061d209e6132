"""Benchmarks of the proxy against a direct connection, Envoy and Kroxylicious: see ``README.md``."""
