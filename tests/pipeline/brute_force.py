"""Replays a bucket's records under a limit, step by step as Kafka computes throttle times.

It is an oracle, so it uses neither the proxy's arithmetic nor arrays.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.support.kafka_rate import MetricConfig, Rate, TokenBucket, java_round, record_and_get_throttle_time_ms


class Passed(NamedTuple):
    """A piece of a part: its arrival time, its departure time, and the wait of the next piece."""

    came_ms: int
    out_ms: int
    amount: int
    wait_ms: int


def passed(comes: Iterable[tuple[int, int]], limit: float, *, is_paced: bool, is_fetch: bool) -> Iterator[Passed]:
    """Yield the pieces that pass the limit, in order. ``comes`` has the arrival time and the amount of each part.

    A paced quota allows a burst of one second. In sampled windows a fetch asks for five seconds' worth at most. A fetch
    is cut into pieces as large as the room under the limit, but at least a quarter of the part.
    """
    rate, windows = Rate(), MetricConfig(samples=11, window_ms=1_000, bound=limit)
    tokens, burst = TokenBucket(), MetricConfig(samples=1, window_ms=1_000, bound=limit)
    most = limit if is_paced else 5 * limit
    free_ms = 0
    for came_ms, amount in comes:
        pieces, left = 0, amount
        while left or not pieces:
            pieces += 1
            now_ms, piece = max(came_ms, free_ms), left
            if is_fetch:
                if is_paced:
                    room = tokens.measure(burst, now_ms)
                else:
                    room = limit * 10 - rate.stat.measure_sum(windows, now_ms)
                room = min(max(room, limit * 50 / 1_000), most)
                piece = min(left, max(1, int(room), math.ceil(amount / 4)))
            left -= piece
            if is_paced:
                tokens.record(burst, piece, now_ms)
                wait_ms = max(0, java_round(-tokens.tokens / limit * 1_000))
            else:
                wait_ms = max(0, record_and_get_throttle_time_ms(rate, windows, piece, now_ms))
            free_ms = now_ms + wait_ms
            yield Passed(came_ms, now_ms, piece, free_ms - now_ms)
