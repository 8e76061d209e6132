"""Several clients under one limit, each with a connection of its own. It is an oracle for rules that clients share.

A client sends one request after the other: the next one when it has come, and the last one has passed. The requests of
all clients wait in one line, and pass in the order in which they were sent, with the waits that Kafka computes. The
oracle uses neither the proxy's arithmetic nor arrays.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.support.kafka_rate import MetricConfig, Rate, record_and_get_throttle_time_ms


class Passed(NamedTuple):
    """A request that passed at ``out_ms``. Its client could send it at ``ready_ms``. ``wait_ms`` is what follows it."""

    client: str
    ready_ms: int
    out_ms: int
    wait_ms: int


def passed(clients: Mapping[str, Sequence[tuple[int, int]]], limit: float) -> list[Passed]:
    """Return the requests of all clients in the order in which they pass the limit.

    ``clients`` has the arrival time and the amount of each request, in order.
    """
    rate, windows = Rate(), MetricConfig(samples=11, window_ms=1_000, bound=limit)
    waiting = {client: list(requests) for client, requests in clients.items()}
    last_out_ms = dict.fromkeys(clients, 0)
    free_ms, found = 0, list[Passed]()
    while any(waiting.values()):
        ready = {client: max(left[0][0], last_out_ms[client]) for client, left in waiting.items() if left}
        client = min(ready, key=lambda one: (ready[one], one))
        _, amount = waiting[client].pop(0)
        now_ms = max(ready[client], free_ms)
        wait_ms = max(0, record_and_get_throttle_time_ms(rate, windows, amount, now_ms))
        last_out_ms[client], free_ms = now_ms, now_ms + wait_ms
        found.append(Passed(client, ready[client], now_ms, wait_ms))
    return found
