"""Kafka's protocol as the simulated clients and brokers speak it, written apart from the proxy's own codecs."""
