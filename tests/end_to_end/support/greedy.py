"""One greedy user and ten polite users at a slow broker: their throughput and latency."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.closed_loop import Crowd, Load, Served, Writes
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

POLITE: Final = tuple(Crowd(f"polite-{number}") for number in range(10))
GREEDY: Final = Crowd("greedy", connections=100)
_SERVICE_MS: Final = 5
_SLOW_WRITES: Final = Path(__file__).parents[1] / "java" / "SlowWrites.java"
# These seconds do not count. In the first some clients still connect, and in the last some have finished.
_WARM_UP_S: Final = 1
_RUN_OUT_S: Final = 0.5


def slow_kafka() -> Kafka:
    """Return a broker with one I/O thread and writes of 5 ms, so that the broker is the bottleneck."""
    return Kafka(
        KAFKA_4,
        config={"num.io.threads": 1, "authorizer.class.name": "SlowWrites", "slow.writes.ms": _SERVICE_MS},
        plugins=[_SLOW_WRITES],
    )


class Outcome(NamedTuple):
    """The requests that were answered after the start and before the end of the load."""

    polite: list[Served]
    greedy: list[Served]
    seconds: float

    @property
    def p99_ms(self) -> float:
        """Return the 99th percentile of the polite users' latency in a calm second.

        It is the lower quartile over all seconds, because other programs of the machine slow down only some of them.
        """
        seconds: dict[int, list[float]] = {}
        for one in self.polite:
            seconds.setdefault(int(one.at_s), []).append(one.took_s * 1_000)
        p99 = sorted(sorted(took)[int(len(took) * 0.99)] for took in seconds.values())
        return p99[len(p99) // 4]

    @property
    def median_ms(self) -> float:
        return statistics.median(one.took_s for one in self.polite) * 1_000

    @property
    def per_second(self) -> float:
        return (len(self.polite) + len(self.greedy)) / self.seconds

    def __str__(self) -> str:
        polite, greedy = len(self.polite) / self.seconds, len(self.greedy) / self.seconds
        return (
            f"polite p50 {self.median_ms:.0f} ms, p99 of a calm second {self.p99_ms:.0f} ms, {polite:.0f}/s; "
            f"greedy {greedy:.0f}/s; all {self.per_second:.0f}/s"
        )


def meet(
    kafka: Kafka,
    topic: str,
    queue: Mapping[str, Any] | None,
    *,
    seconds: float,
    is_greedy_there: bool = True,
    kind: Writes = Writes(),  # noqa: B008 - a value
) -> Outcome:
    """Run all users behind a proxy. ``queue`` is its ``fair_call_queue``, or None for a proxy without one."""
    loads = [POLITE, (GREEDY,)] if is_greedy_there else [POLITE]
    served: dict[str, list[Served]] = {}
    with Proxy({} if queue is None else {"fair_call_queue": queue}, kafka) as proxy, ExitStack() as stack:
        running = [
            stack.enter_context(Load(proxy.port(), topic, *crowds, seconds=seconds, kind=kind)) for crowds in loads
        ]
        for load in running:
            served |= load.served()
    polite = [one for crowd in POLITE for one in served[crowd.client_id]]
    end_s = max(one.at_s for one in polite) - _RUN_OUT_S
    begin_s = end_s - seconds + _WARM_UP_S + _RUN_OUT_S

    def counted(answers: list[Served]) -> list[Served]:
        return [one for one in answers if begin_s <= one.at_s < end_s]

    return Outcome(counted(polite), counted(served.get(GREEDY.client_id, [])), end_s - begin_s)
