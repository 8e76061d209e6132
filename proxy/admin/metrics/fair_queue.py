"""Reads the metrics of fair call queues, in which requests wait for a broker by the priority level of their user.

Some metrics are about brokers: each has one queue, and a limited number of requests that it works on at a time. The
others are about listeners: each has its own users, with their levels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kafka_quota_proxy.protocol.api import API_NAMES
from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, Metric, Namespace, labels
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler, Standing
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher
from kafka_quota_proxy.proxy.fair_queue.queue_stats import CONTROL_LEVEL, QueueStats
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue, ListenerPriorities
from kafka_quota_proxy.proxy.server.listener_state import ListenerState

_QUEUE: Final = Namespace("kafka_quota_proxy_call_queue", sums_duplicates=True)
_REQUESTS: Final = "requests"
_CONTROL: Final = "control"
# For each count that ``QueueStats.served`` keeps by level: the name, the help text, and the divisor of the count.
_SERVED: Final = (
    ("requests", "Requests that were answered.", 1),
    ("wait_seconds", "Time that answered requests spent in the queue.", 1e6),
    (
        "broker_seconds",
        "Time that the broker took for these requests, without the waits of polls and group requests.",
        1e6,
    ),
)

_OF_SCHEDULERS: Final[tuple[Metric[DecayScheduler], ...]] = (
    ("identities", "Users that have a cost.", len),
    ("cost", "Cost of all users since each was first seen; a user whose cost has decayed is removed.",
     lambda one: one.totals.raw),
    ("decayed_cost", "Cost of all users after decay; each user has a share of it.", lambda one: one.totals.decayed),
    ("service_user_cost", "Cost of service users, which are always in level 0.", lambda one: one.totals.service_raw),
    ("service_user_decayed_cost", "Cost of service users after decay.", lambda one: one.totals.service_decayed),
)  # fmt: skip
_OF_TOP_USERS: Final[tuple[Metric[Standing], ...]] = (
    ("top_user_cost", "Cost of the costliest users since each was first seen.", lambda user: user.raw),
    (
        "top_user_share",
        "The share of each of the costliest users in the decayed cost of all, which decides the level.",
        lambda user: user.share,
    ),
    ("top_user_level", "Their levels.", lambda user: user.level),
)

# The address of a broker, and the queue in front of this broker.
Named = tuple[str, BrokerQueue]


def fair_queue_metrics(queues: Sequence[Named], listeners: Sequence[ListenerState]) -> Iterator[Family]:
    """Yield the metrics of fair call queues, or nothing if no listener has ever had a fair call queue.

    ``queues`` contains the address and the queue of each broker that has a queue.
    """
    priorities = [(one.name, one.priorities) for one in listeners if one.priorities is not None]
    if queues:
        yield from _of_brokers([(name, queue.dispatcher) for name, queue in queues])
    if priorities:
        yield from _of_requests([(name, one.stats) for name, one in priorities])
        yield from _of_users(priorities)


def _of_brokers(brokers: Sequence[tuple[str, Dispatcher]]) -> Iterator[Family]:
    sizes: list[tuple[str, float]] = []
    capacities: list[tuple[str, float]] = []
    overflows: list[tuple[str, float]] = []
    for name, dispatcher in brokers:
        queue = dispatcher.queue
        sizes += _by_level(name, queue.sizes)
        sizes.append((labels(broker=name, level=_CONTROL), dispatcher.control_waiting))
        capacities += _by_level(name, queue.capacities)
        overflows += _by_level(name, tuple(queue.overflowed))
    yield _QUEUE.gauge("size", "Requests that wait, by level; control requests have a queue of their own.", sizes)
    yield _QUEUE.gauge("capacity", "How many requests may wait in each level.", capacities)
    yield _QUEUE.gauge(
        "waiting_for_room",
        "Requests that wait for room in the queue; their connections are not read.",
        [(labels(broker=name), one.queue.waiting_for_room) for name, one in brokers],
    )
    yield _QUEUE.counter("overflows", "Requests that found their level full.", overflows)
    yield _QUEUE.gauge(
        "in_flight",
        "Slots in use: requests that the broker works on.",
        [row for name, one in brokers for row in _by_pool(name, one.in_flight, one.control_in_flight)],
    )
    yield _QUEUE.gauge(
        "max_in_flight",
        "How many slots there are.",
        [row for name, one in brokers for row in _by_pool(name, one.limit, one.control_limit)],
    )


def _of_requests(stats: Sequence[tuple[str, QueueStats]]) -> Iterator[Family]:
    for at, (name, help_, per_unit) in enumerate(_SERVED):
        rows = [row for listener, one in stats for row in _levels(listener, one.served, at, per_unit)]
        yield _QUEUE.counter(name, help_, rows)
    yield _QUEUE.counter(
        "refused",
        "Requests that were refused.",
        [
            (labels(listener=name, level=str(level), api=_api(api_key)), count)
            for name, stats in stats
            for (level, api_key), count in stats.refused.copy().items()
        ],
    )
    yield _QUEUE.counter(
        "parked",
        "Requests that freed their slot before their response, because the broker was only waiting.",
        [row for name, stats in stats for row in _apis(name, stats.parked)],
    )
    yield _QUEUE.counter(
        "passed_by",
        "Requests that bypassed the queue: logins, and polls of clients whose last poll waited for data.",
        [row for name, stats in stats for row in _apis(name, stats.passed_by)],
    )


def _of_users(listeners: Sequence[tuple[str, ListenerPriorities]]) -> Iterator[Family]:
    yield _QUEUE.gauge(
        "average_response_seconds",
        "Mean time of each level from queueing to the response, as of the last sweep; backoff uses it.",
        [
            (labels(listener=name, level=str(level)), average_ms / 1_000)
            for name, one in listeners
            for level, average_ms in enumerate(tuple(one.scheduler.average_response_ms))
        ],
    )
    yield from _QUEUE.table(_OF_SCHEDULERS, [(labels(listener=name), one.scheduler) for name, one in listeners])
    top_users = [
        (labels(listener=name, user=user.identity), user)
        for name, one in listeners
        for user in one.scheduler.top(one.settings.top_user_count)
    ]
    yield from _QUEUE.table(_OF_TOP_USERS, top_users)


def _by_level(broker: str, values: Sequence[int]) -> Iterator[tuple[str, float]]:
    return ((labels(broker=broker, level=str(level)), value) for level, value in enumerate(values))


def _by_pool(broker: str, requests: int, control: int) -> Iterator[tuple[str, float]]:
    yield labels(broker=broker, pool=_REQUESTS), requests
    yield labels(broker=broker, pool=_CONTROL), control


def _levels(
    listener: str, values: Mapping[int, Sequence[int]], at: int, per_unit: float
) -> Iterator[tuple[str, float]]:
    for level, value in sorted(dict(values).items()):
        text = _CONTROL if level == CONTROL_LEVEL else str(level)
        yield labels(listener=listener, level=text), value[at] / per_unit


def _apis(listener: str, values: Mapping[int, int]) -> Iterator[tuple[str, float]]:
    for api_key, count in sorted(dict(values).items()):
        yield labels(listener=listener, api=_api(api_key)), count


def _api(api_key: int) -> str:
    return API_NAMES.get(api_key, "other")
