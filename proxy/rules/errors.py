"""Defines Kafka's error codes and messages for answers about client quotas.

Source: ``Errors`` in Apache Kafka.
"""

from typing import Final

UNKNOWN_SERVER_ERROR: Final = -1
NONE: Final = 0
REQUEST_TIMED_OUT: Final = 7
CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
KAFKA_STORAGE_ERROR: Final = 56
THROTTLING_QUOTA_EXCEEDED: Final = 89

_NAMES: Final = {code: name for name, code in globals().items() if name.isupper() and isinstance(code, int)}

# Kafka's messages for a request that is refused as a whole.
CLUSTER_AUTHORIZATION_FAILED_MESSAGE: Final = "Cluster authorization failed."
UNKNOWN_SERVER_ERROR_MESSAGE: Final = "The server experienced an unexpected error when processing the request."
POLICY_VIOLATION_MESSAGE: Final = "Request parameters do not satisfy the configured policy."


def name_of(error_code: int) -> str:
    """Return Kafka's name of an error code, or the number as text if this module does not define the code."""
    return _NAMES.get(error_code, str(error_code))
