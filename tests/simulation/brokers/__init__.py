"""Brokers of the simulated world, which behave as Apache Kafka's."""
