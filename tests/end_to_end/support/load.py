"""Floods of raw frames, and what their answers say about a quota.

The quantity that Kafka charges is the frame without its size field; for Fetch v4 that holds for the response too.
Sampled windows come in bursts, N windows apart, so a rate must be taken over whole cycles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
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
    """One answer: when it came (``time.monotonic``), what was charged for it, what it asks the client to wait."""

    at_s: float
    size_bytes: int
    throttle_time_ms: int


def batch_of(size_bytes: int) -> bytes:
    """A record batch of about this size, in records of at most 16 KiB that do not compress."""
    record = min(size_bytes, _RECORD_BYTES)
    return record_batch([os.urandom(record) for _ in range(max(1, size_bytes // record))])


def produce_flood(
    port: int,
    topic: str,
    *,
    client_id: str,
    request_bytes: int,
    seconds: float,
    ahead: int = 1,
    obeys: bool = True,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Answer]:
    """Produce all that the other side takes.

    Args:
        port: Where to.
        topic: Its partition 0 is written.
        client_id: Whose quota.
        request_bytes: The size of each batch.
        seconds: How long. A mute that lasts longer is not sat out.
        ahead: How many requests are sent before the answer of the first is read.
        obeys: Whether it waits ``throttle_time_ms`` as a well-behaved client does.
        is_over: Whether it is to end before its time; asked after each answer.
    """
    body = produce_body(topic, batch_of(request_bytes), acks=1)
    client = RawClient(port, client_id=client_id)
    answers: list[Answer] = []
    charged = 8 + 2 + len(client_id) + len(body)
    end = time.monotonic() + seconds
    with suppress(TimeoutError):
        for _ in range(ahead):
            client.send(PRODUCE, PRODUCE_VERSION, body)
        while (left := end - time.monotonic()) > 0 and not is_over():
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
    """Fetch the start of partition 0 over and over, all that the other side gives."""
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


def steady_rate(answers: Sequence[Answer], *, after_s: float) -> float:
    """Bytes per second of an even flow, from the first answer after ``after_s`` to the last one.

    The first answer's own bytes lie before the interval, the last one's in it: no error from where the ends fall.
    """
    start = answers[0].at_s + after_s
    late = [answer for answer in answers if answer.at_s >= start]
    return sum(answer.size_bytes for answer in late[1:]) / (late[-1].at_s - late[0].at_s)


def per_second(answers: Sequence[Answer]) -> list[int]:
    """Bytes in each whole second since the first answer; the last, incomplete second is left out."""
    first, last = answers[0].at_s, answers[-1].at_s
    seconds = [0] * (int(last - first) + 1)
    for answer in answers:
        seconds[int(answer.at_s - first)] += answer.size_bytes
    return seconds[:-1]


def rate_over_whole_cycles(flow: Iterable[tuple[float, float]], *, quota: float) -> float:
    """Bytes per second of a flow of (time, bytes) that comes in bursts, from the start of one burst to another's.

    A burst is what lies between two silences. The first one is left out, it begins with an empty history; so is what
    has less than half the bytes of the largest, a fragment cut off by a client's pause. Bursts get longer from cycle to
    cycle, so from middle to middle a client of Kafka's own quota measures 0.95 of it, from start to start 0.998.

    Raises:
        AssertionError: There are fewer than three bursts, so there is no whole cycle after the first.
    """
    moments = list(flow)
    bursts = _bursts(moments, quota)
    sizes = [sum(size for _, size in burst) for burst in bursts]
    starts = [burst[0][0] for burst, size in zip(bursts, sizes, strict=True) if size >= max(sizes) / 2]
    if len(starts) < 3:
        raise AssertionError(f"no whole cycle in {moments[-1][0] - moments[0][0]:.1f} s: bursts at {starts}")
    begin, end = starts[1], starts[-1]
    return sum(size for at, size in moments if begin <= at < end) / (end - begin)


def _bursts(moments: list[tuple[float, float]], quota: float) -> list[list[tuple[float, float]]]:
    """Cut a flow at its silences: stretches of most of a second with less than half the quota."""
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
    # The last one may have been cut short by the end of the measurement.
    return bursts if silent_bins >= _SILENT_BINS else bursts[:-1]


def flow_of(answers: Iterable[Answer]) -> list[tuple[float, float]]:
    """Answers as a flow of (time, bytes)."""
    return [(answer.at_s, answer.size_bytes) for answer in answers]
