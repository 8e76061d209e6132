"""Clients of the simulated world, modelled on Java's, librdkafka, aiokafka and franz-go."""
