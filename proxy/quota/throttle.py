"""The throttle decision: how long a client must be silent."""

from math import floor
from typing import Final

# throttle_time_ms is an int32 on the wire. Unlike Kafka, which wraps and then does not throttle, we saturate.
MAX_THROTTLE_TIME_MS: Final = 2**31 - 1


def throttle_time_ms(*, byte_rate: float, byte_rate_limit: float, window_ms: int) -> int:
    """Return how long a client must be silent for its rate to fall to the limit.

    A pause of X after a window W makes O * W / (W + X) = T, so X = (O - T) / T * W.

    Args:
        byte_rate: O, the observed rate; bytes per second.
        byte_rate_limit: T, the quota; bytes per second, above 0.
        window_ms: W, the window that O was measured over.

    Returns:
        Whole milliseconds, half rounded up, at most ``MAX_THROTTLE_TIME_MS``; negative or 0 within the quota.

    Source: ``QuotaUtils.throttleTime``; its ``Math.round`` is floor(x + 0.5).
    """
    wait_ms = (byte_rate - byte_rate_limit) / byte_rate_limit * window_ms
    return MAX_THROTTLE_TIME_MS if wait_ms >= MAX_THROTTLE_TIME_MS else floor(wait_ms + 0.5)


def wait_for_tokens_ms(*, tokens: float, byte_rate_limit: float) -> int:
    """Return how long a token bucket needs to come back to 0.

    Args:
        tokens: bytes that may still pass; negative: bytes owed.
        byte_rate_limit: bytes per second that flow in, above 0.

    Returns:
        Whole milliseconds, half rounded up, at most ``MAX_THROTTLE_TIME_MS``; 0 where nothing is owed.

    Source: ``ControllerMutationQuotaManager.throttleTimeMs``.
    """
    if tokens >= 0.0:
        return 0
    wait_ms = -tokens / byte_rate_limit * 1000
    return MAX_THROTTLE_TIME_MS if wait_ms >= MAX_THROTTLE_TIME_MS else floor(wait_ms + 0.5)
