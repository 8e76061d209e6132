"""Kafka's protocol as the simulated clients and brokers speak it, apart from the proxy's own codecs."""
