"""The throttle formula: how long a client must wait."""

from math import floor
from typing import Final

# throttle_time_ms is an int32 in the protocol. Kafka wraps around and then does not throttle; this code saturates.
MAX_THROTTLE_TIME_MS: Final = 2**31 - 1


def throttle_time_ms(*, byte_rate: float, byte_rate_limit: float, window_ms: int) -> int:
    """Return how many milliseconds a client must wait for its rate to fall to the limit.

    A pause X after a window W makes the rate O * W / (W + X) = T, so X = (O - T) / T * W. Rounded half up, at most
    ``MAX_THROTTLE_TIME_MS``; 0 or negative within the quota.

    Source: ``QuotaUtils.throttleTime``; its ``Math.round`` is floor(x + 0.5).
    """
    wait_ms = (byte_rate - byte_rate_limit) / byte_rate_limit * window_ms
    return MAX_THROTTLE_TIME_MS if wait_ms >= MAX_THROTTLE_TIME_MS else floor(wait_ms + 0.5)


def wait_for_tokens_ms(*, tokens: float, byte_rate_limit: float) -> int:
    """Return how many milliseconds a token bucket needs to come back to 0; negative tokens are bytes owed.

    Rounded half up, at most ``MAX_THROTTLE_TIME_MS``; 0 if nothing is owed.

    Source: ``ControllerMutationQuotaManager.throttleTimeMs``.
    """
    if tokens >= 0.0:
        return 0
    wait_ms = -tokens / byte_rate_limit * 1000
    return MAX_THROTTLE_TIME_MS if wait_ms >= MAX_THROTTLE_TIME_MS else floor(wait_ms + 0.5)
