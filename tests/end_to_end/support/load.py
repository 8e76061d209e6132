"""Floods of raw frames, and the rates of their responses.

Sizes are those that Kafka charges, without the size field of a frame. A sampled quota causes bursts, so its rate must
be measured over whole cycles of burst and silence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tests.end_to_end.support.frames import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    RawClient,
    fetch_body,
    produce_body,
    read_produce,
    record_batch,
)

KIB: Final = 1024
MIB: Final = 1024 * 1024
_BIN_S: Final = 0.25
_SILENT_BINS: Final = 3
_RECORD_BYTES: Final = 16 * KIB


class Answer(NamedTuple):
    """A response: its time (``time.monotonic``), the charged bytes, and the throttle time."""

    at_s: float
    size_bytes: int
    throttle_time_ms: int


def batch_of(size_bytes: int) -> bytes:
    """Return a record batch of about this size, in incompressible records of at most 16 KiB."""
    record = min(size_bytes, _RECORD_BYTES)
    return record_batch([os.urandom(record) for _ in range(max(1, size_bytes // record))])


def is_throttled(client: RawClient, topic: str) -> bool:
    """Produce 64 KiB, and return whether the response has a throttle time."""
    return client.produce(topic, batch_of(64 * KIB)).throttle_time_ms > 0


def produce_flood(
    port: int,
    topic: str,
    *,
    client_id: str,
    request_bytes: int,
    seconds: float,
    ahead: int = 1,
    obeys: bool = True,
) -> list[Answer]:
    """Write to partition 0 as fast as possible, and return the responses.

    ``ahead`` is the number of requests in flight. ``obeys`` says whether the client waits for ``throttle_time_ms``.
    """
    body = produce_body(topic, batch_of(request_bytes), acks=1)
    client = RawClient(port, client_id=client_id)
    answers: list[Answer] = []
    charged = 8 + 2 + len(client_id) + len(body)
    end = time.monotonic() + seconds
    with suppress(TimeoutError):
        for _ in range(ahead):
            client.send(PRODUCE, PRODUCE_VERSION, body)
        while (left := end - time.monotonic()) > 0:
            client.socket.settimeout(left)
            answer = read_produce(client.receive().body)
            if answer.error_code != 0:
                raise AssertionError(f"the broker answered Produce with error {answer.error_code}")
            answers.append(Answer(time.monotonic(), charged, answer.throttle_time_ms))
            if obeys and answer.throttle_time_ms:
                time.sleep(min(answer.throttle_time_ms / 1_000, max(0, end - time.monotonic())))
            client.socket.settimeout(max(0.001, end - time.monotonic()))
            client.send(PRODUCE, PRODUCE_VERSION, body)
    client.close()
    return answers


def fetch_flood(
    port: int, topic: str, *, client_id: str, max_bytes: int, seconds: float, obeys: bool = True
) -> list[Answer]:
    """Fetch the start of partition 0 again and again, as fast as possible."""
    body = fetch_body(topic, offset=0, max_bytes=max_bytes)
    client = RawClient(port, client_id=client_id)
    answers: list[Answer] = []
    end = time.monotonic() + seconds
    with suppress(TimeoutError):
        while (left := end - time.monotonic()) > 0:
            client.socket.settimeout(left)
            frame = client.ask(FETCH, FETCH_VERSION, body)
            throttle_time_ms = int.from_bytes(frame.body[:4], "big")
            answers.append(Answer(time.monotonic(), frame.size_bytes - 4, throttle_time_ms))
            if obeys and throttle_time_ms:
                time.sleep(min(throttle_time_ms / 1_000, max(0, end - time.monotonic())))
    client.close()
    return answers


def throttled_s(answers: Iterable[Answer]) -> float:
    """Return the sum of the throttle times in seconds."""
    return sum(answer.throttle_time_ms for answer in answers) / 1_000


def steady_rate(answers: Sequence[Answer], *, after_s: float) -> float:
    """Return the bytes per second of an even flow, from the first response after ``after_s`` to the last.

    The bytes of the first response do not count, because they were transferred earlier.
    """
    start = answers[0].at_s + after_s
    late = [answer for answer in answers if answer.at_s >= start]
    return sum(answer.size_bytes for answer in late[1:]) / (late[-1].at_s - late[0].at_s)


def per_second(answers: Sequence[Answer]) -> list[int]:
    """Return the bytes of each complete second since the first answer."""
    first, last = answers[0].at_s, answers[-1].at_s
    seconds = [0] * (int(last - first) + 1)
    for answer in answers:
        seconds[int(answer.at_s - first)] += answer.size_bytes
    return seconds[:-1]


def rate_over_whole_cycles(flow: Iterable[tuple[float, float]], *, quota: float) -> float:
    """Return the rate of a bursty flow of (time, bytes), from the start of the second burst to that of the last.

    The first burst begins with empty windows, so it does not count. A burst with less than half the bytes of the
    largest is a fragment, and does not count either. Windows can settle until the flow is even: then it counts from
    the second burst to its end. Raises AssertionError if too few bursts remain.
    """
    moments = list(flow)
    bursts = _bursts(moments, quota)
    sizes = [sum(size for _, size in burst) for burst in bursts]
    starts = [burst[0][0] for burst, size in zip(bursts, sizes, strict=True) if size >= max(sizes) / 2]
    end = moments[-1][0] if _ends_evenly(moments, quota) else starts[-1] if len(starts) > 2 else None
    if len(starts) < 2 or end is None:
        raise AssertionError(f"no whole cycle in {moments[-1][0] - moments[0][0]:.1f} s: bursts at {starts}")
    return sum(size for at, size in moments if starts[1] <= at < end) / (end - starts[1])


def _ends_evenly(moments: list[tuple[float, float]], quota: float) -> bool:
    """Tell whether each quarter of the last three seconds brought what the quota allows in it, within a quarter."""
    last = moments[-1][0]
    bins = [0.0] * int(3 / _BIN_S)
    for at, size in moments:
        before = int((last - at) / _BIN_S)
        if before < len(bins):
            bins[before] += size
    return all(0.75 <= bytes_ / (quota * _BIN_S) <= 1.25 for bytes_ in bins)


def _bursts(moments: list[tuple[float, float]], quota: float) -> list[list[tuple[float, float]]]:
    """Split a flow into bursts. Three quarters of a second at no more than the quota end a burst."""
    first = moments[0][0]
    bins: list[list[tuple[float, float]]] = [[] for _ in range(int((moments[-1][0] - first) / _BIN_S) + 1)]
    for moment in moments:
        bins[int((moment[0] - first) / _BIN_S)].append(moment)
    bursts: list[list[tuple[float, float]]] = []
    silent_bins = _SILENT_BINS
    for inside in bins:
        if sum(size for _, size in inside) <= quota * _BIN_S:
            silent_bins += 1
            continue
        if silent_bins >= _SILENT_BINS:
            bursts.append([])
        silent_bins = 0
        bursts[-1] += inside
    # The end of the measurement may have cut the last burst.
    return bursts if silent_bins >= _SILENT_BINS else bursts[:-1]


def flow_of(answers: Iterable[Answer]) -> list[tuple[float, float]]:
    return [(answer.at_s, answer.size_bytes) for answer in answers]
