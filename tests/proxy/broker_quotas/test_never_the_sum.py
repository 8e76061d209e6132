"""Two in a row with the same quota, a broker and the proxy before it: the client waits for the longer, not for both.

Reckoned without either of them: the broker's arithmetic is ours (``shaping: sampled``), a request takes a millisecond.
"""

from typing import NamedTuple

import pytest

from config.model import QuotaRule, Shaping
from proxy.quota.client import ClientQuotaManager
from proxy.quota.entity import QuotaKind

KIB = 1 << 10
LIMIT = 10 << 20
SECONDS = 220


class Flow(NamedTuple):
    rate: float  # in multiples of the limit
    waited_ms: int
    longest_silence_ms: int


def manager(shaping: Shaping) -> ClientQuotaManager:
    return ClientQuotaManager(
        QuotaKind.PRODUCE, [QuotaRule(client_id="etl", producer_byte_rate=LIMIT)], shaping=shaping
    )


def flow(*shapings: Shaping, request_bytes: int, is_held: bool = False) -> Flow:
    """Return what passes of a client that sends all it may, and waits as it is told.

    Args:
        shapings: Of each that throttles, the broker first.
        request_bytes: Of each request.
        is_held: Whether the last of them holds the answer for its time (``delay``).
    """
    managers = [manager(shaping) for shaping in shapings]
    now_ms = moved = waited_ms = longest_ms = 0
    while now_ms < SECONDS * 1_000:
        moved += request_bytes
        waits_ms = [
            one.record_and_get_throttle_time_ms(request_bytes, user="alice", client_id="etl", now_ms=now_ms)
            for one in managers
        ]
        wait_ms = max(waits_ms) + (waits_ms[-1] if is_held else 0)
        waited_ms += wait_ms
        longest_ms = max(longest_ms, wait_ms)
        now_ms += 1 + wait_ms
    return Flow(moved / LIMIT / SECONDS, waited_ms, longest_ms)


@pytest.mark.parametrize("request_kib", [64, 256, 1_024])
def test_as_fast_as_through_the_broker_alone_and_no_wait_longer(request_kib: int) -> None:
    alone = flow(Shaping.SAMPLED, request_bytes=request_kib * KIB)

    assert flow(Shaping.SAMPLED, Shaping.SAMPLED, request_bytes=request_kib * KIB) == alone


@pytest.mark.parametrize("request_kib", [64, 256, 1_024])
def test_paced_it_is_as_fast_and_even(request_kib: int) -> None:
    alone = flow(Shaping.SAMPLED, request_bytes=request_kib * KIB)
    paced = flow(Shaping.SAMPLED, Shaping.PACED, request_bytes=request_kib * KIB)

    assert paced.rate == pytest.approx(1, abs=0.01)
    assert paced.rate == pytest.approx(alone.rate, abs=0.02)
    assert alone.longest_silence_ms > 500
    # What a request is worth, and at the start what the broker remembers of the first burst.
    assert paced.longest_silence_ms <= 1_100


@pytest.mark.parametrize("request_kib", [64, 256, 1_024])
def test_delay_makes_a_client_wait_twice_and_lose_some_per_cent(request_kib: int) -> None:
    held = flow(Shaping.SAMPLED, Shaping.SAMPLED, request_bytes=request_kib * KIB, is_held=True)

    assert 0.92 < held.rate < 0.98
