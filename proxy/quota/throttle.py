"""Computes how long a client must wait, by Kafka's throttle formula."""

from math import floor
from typing import Final

# The field throttle_time_ms is an int32 in the protocol. A longer wait overflows in Kafka, which then does not
# throttle. This code returns the largest value.
MAX_THROTTLE_TIME_MS: Final = 2**31 - 1


def throttle_time_ms(*, byte_rate: float, byte_rate_limit: float, window_ms: int) -> int:
    """Return how many milliseconds a client must wait for its rate to fall to the limit.

    With a pause X after the window W, the rate O becomes O * W / (W + X). This is the limit T if X = (O - T) / T * W.
    The result is at most ``MAX_THROTTLE_TIME_MS``. It is 0 or negative if the rate is within the limit.

    Source: ``QuotaUtils.throttleTime``. Its ``Math.round(x)`` is floor(x + 0.5).
    """
    wait_ms = (byte_rate - byte_rate_limit) / byte_rate_limit * window_ms
    return MAX_THROTTLE_TIME_MS if wait_ms >= MAX_THROTTLE_TIME_MS else floor(wait_ms + 0.5)


def wait_for_tokens_ms(*, tokens: float, byte_rate_limit: float) -> int:
    """Return after how many ms the tokens of a token bucket are no longer negative, at most ``MAX_THROTTLE_TIME_MS``.

    Source: ``ControllerMutationQuotaManager.throttleTimeMs``.
    """
    if tokens >= 0.0:
        return 0
    wait_ms = -tokens / byte_rate_limit * 1000
    return MAX_THROTTLE_TIME_MS if wait_ms >= MAX_THROTTLE_TIME_MS else floor(wait_ms + 0.5)
