"""Throttles responses on demand, so that tests of Kafka clients meet exactly the throttle times that they ask for.

``orders`` says which responses are throttled, and ``observed`` keeps which were. Neither does I/O.
"""
