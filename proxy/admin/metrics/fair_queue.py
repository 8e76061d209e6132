"""The metrics of fair call queues: of each broker its queue and slots, of each listener its levels and users."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kafka_quota_proxy.protocol.api import API_NAMES
from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, labels, summed
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher
from kafka_quota_proxy.proxy.fair_queue.queue_stats import CONTROL_LEVEL, QueueStats
from kafka_quota_proxy.proxy.server.broker_queue import BrokerQueue, ListenerPriorities
from kafka_quota_proxy.proxy.server.listener_state import ListenerState

_PREFIX: Final = "kafka_quota_proxy_call_queue"
_REQUESTS: Final = "requests"
_CONTROL: Final = "control"
# What ``QueueStats.served`` has of each level.
_SERVED: Final = (
    ("requests", "Requests that were answered.", 1),
    ("wait_seconds", "How long these were in the queue.", 1e6),
    ("broker_seconds", "How long the broker took for them then, without what polls and groups wait there.", 1e6),
)

# What is read of a broker: its address, and the queue in front of it. A broker may have more than one: behind an
# ``upstream`` and in a cluster.
Named = tuple[str, BrokerQueue]
Samples = Iterable[tuple[str, float]]


def families(desks: Sequence[Named], ports: Sequence[ListenerState]) -> Iterator[Family]:
    """Return them; nothing where no listener has or had a queue."""
    listeners = [(port.name, port.priorities) for port in ports if port.priorities is not None]
    if desks:
        yield from _of_brokers([(name, desk.dispatcher) for name, desk in desks])
    if listeners:
        yield from _of_tallies([(name, calls.stats) for name, calls in listeners])
        yield from _of_users(listeners)


def _of_brokers(brokers: Sequence[tuple[str, Dispatcher]]) -> Iterator[Family]:
    sizes: list[tuple[str, float]] = []
    capacities: list[tuple[str, float]] = []
    overflows: list[tuple[str, float]] = []
    for name, dispatcher in brokers:
        queue = dispatcher.queue
        sizes += _by_level(name, queue.sizes)
        sizes.append((labels(broker=name, level=_CONTROL), len(dispatcher.control_queue)))
        capacities += _by_level(name, queue.capacities)
        overflows += _by_level(name, tuple(queue.overflowed))
    yield _gauge("size", "Requests that wait, by level; control requests have a queue of their own.", sizes)
    yield _gauge("capacity", "How many may wait in each level.", capacities)
    yield _gauge(
        "waiting_for_room",
        "Requests that wait for a place in the queue; their connections are not read, like those of all that wait.",
        [(labels(broker=name), one.queue.waiting_for_room) for name, one in brokers],
    )
    yield _counter("overflows", "How often a level was full when a request was to go there.", overflows)
    yield _gauge(
        "in_flight",
        "Slots in use: requests that the broker works on.",
        [row for name, one in brokers for row in _by_pool(name, one.in_flight, one.control_in_flight)],
    )
    yield _gauge(
        "max_in_flight",
        "How many slots there are.",
        [row for name, one in brokers for row in _by_pool(name, one.limit, one.options.control_slots)],
    )


def _of_tallies(tallies: Sequence[tuple[str, QueueStats]]) -> Iterator[Family]:
    for at, (name, help_, per_unit) in enumerate(_SERVED):
        rows = [row for listener, one in tallies for row in _levels(listener, one.served, at, per_unit)]
        yield _counter(name, help_, rows)
    yield _counter(
        "refused",
        "Requests that were refused.",
        [
            (labels(listener=name, level=str(level), api=_api(api_key), action=answer.name.lower()), count)
            for name, stats in tallies
            for (level, api_key, answer), count in stats.refused.copy().items()
        ],
    )
    yield _counter(
        "parked",
        "Requests that gave their slot back before they were answered, for the broker waited and did no work.",
        [row for name, stats in tallies for row in _apis(name, stats.parked)],
    )
    yield _counter(
        "passed_by",
        "Requests that went past the queue: logins, and polls of who had to wait for data the last time.",
        [row for name, stats in tallies for row in _apis(name, stats.passed_by)],
    )


def _of_users(listeners: Sequence[tuple[str, ListenerPriorities]]) -> Iterator[Family]:
    schedulers = [(name, calls.scheduler) for name, calls in listeners]
    yield _gauge(
        "average_response_seconds",
        "Of each level, from being queued to the answer, as of the last sweep: what backoff goes by.",
        [
            (labels(listener=name, level=str(level)), average_ms / 1_000)
            for name, scheduler in schedulers
            for level, average_ms in enumerate(tuple(scheduler.average_response_ms))
        ],
    )
    yield _gauge(
        "identities", "Users that have a cost.", [(labels(listener=name), len(one)) for name, one in schedulers]
    )
    totals = [(labels(listener=name), one.totals) for name, one in schedulers]
    yield _gauge(
        "cost",
        "What all users have cost since they were last new; a user of whose cost nothing is left is forgotten.",
        [(text, one.raw) for text, one in totals],
    )
    yield _gauge(
        "decayed_cost",
        "What is left of that by now; what each user has a share of.",
        [(text, one.decayed) for text, one in totals],
    )
    yield _gauge(
        "service_user_cost",
        "What service users have cost, who are always in level 0.",
        [(text, one.service_raw) for text, one in totals],
    )
    yield _gauge(
        "service_user_decayed_cost",
        "What is left of that by now.",
        [(text, one.service_decayed) for text, one in totals],
    )
    costs: list[tuple[str, float]] = []
    shares: list[tuple[str, float]] = []
    levels: list[tuple[str, float]] = []
    for name, calls in listeners:
        for user in calls.scheduler.top(calls.settings.top_user_count):
            text = labels(listener=name, user=user.identity)
            costs.append((text, user.raw))
            shares.append((text, user.share))
            levels.append((text, user.level))
    yield _gauge("top_user_cost", "What the costliest users have cost since they were last new.", costs)
    yield _gauge("top_user_share", "Their share of the decayed cost of all, which decides on their level.", shares)
    yield _gauge("top_user_level", "Their levels.", levels)


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


def _gauge(name: str, help_: str, samples: Samples) -> Family:
    return Family(f"{_PREFIX}_{name}", "gauge", help_, summed(samples))


def _counter(name: str, help_: str, samples: Samples) -> Family:
    return Family(f"{_PREFIX}_{name}_total", "counter", help_, summed(samples))
