"""The keys of the APIs that the checks look at, and the throttle times of responses."""

from typing import Final

from tests.simulation.wire.api import whole_response
from tests.simulation.wire.common import WireError

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
DESCRIBE_QUOTAS: Final = 48
ALTER_QUOTAS: Final = 49
DESCRIBE_CLUSTER: Final = 60
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79


def throttle_ms(frame: bytes, api_key: int, version: int) -> int:
    """Return the throttle time of a broker's response, or 0 if it has none."""
    try:
        return int(getattr(whole_response(frame, api_key, version), "throttle_time", 0))
    except WireError:
        return 0  # of a test
