"""Kafka's error codes, as far as both APIs of client quotas answer with them.

Source: ``Errors`` in Apache Kafka.
"""

from typing import Final

UNKNOWN_SERVER_ERROR: Final = -1
NONE: Final = 0
CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
KAFKA_STORAGE_ERROR: Final = 56

# What Kafka says where a request as a whole is refused.
CLUSTER_AUTHORIZATION_FAILED_MESSAGE: Final = "Cluster authorization failed."
UNKNOWN_SERVER_ERROR_MESSAGE: Final = "The server experienced an unexpected error when processing the request."
POLICY_VIOLATION_MESSAGE: Final = "Request parameters do not satisfy the configured policy."
