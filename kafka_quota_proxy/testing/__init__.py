"""Throttles Kafka clients in tests: ``ThrottlingProxy``, and the pytest fixture ``kafka_throttle``."""

from kafka_quota_proxy.testing.control import ControlError, ObservedResponses, SeenClient, ThrottledResponse
from kafka_quota_proxy.testing.throttling_proxy import StartError, ThrottlingProxy

__all__ = [
    "ControlError",
    "ObservedResponses",
    "SeenClient",
    "StartError",
    "ThrottledResponse",
    "ThrottlingProxy",
]
