"""Converts the values of the section ``fair_call_queue`` to settings, by a table of its keys.

Source: Hadoop's ``CommonConfigurationKeys``, ``FairCallQueue``, ``DecayRpcScheduler`` and ``WeightedTimeCostProvider``.
"""

from collections.abc import Mapping
from typing import Any, Final

from kafka_quota_proxy.config import fair_call_queue as queue
from kafka_quota_proxy.config import value_readers as read
from kafka_quota_proxy.config.sections import Key, ListOf, Section
from kafka_quota_proxy.config.units import INT32_MAX, shown

# Thresholds are whole per cents, so with more levels some would have the same threshold.
MAX_LEVELS: Final = 100
ADAPTIVE: Final = "adaptive"

LEVELS: Final = "scheduler.priority.levels"
CAPACITY: Final = "callqueue.capacity"
CAPACITY_WEIGHTS: Final = "callqueue.capacity.weights"
MULTIPLEXER_WEIGHTS: Final = "faircallqueue.multiplexer.weights"
THRESHOLDS: Final = "decay-scheduler.thresholds"
RESPONSE_TIMES: Final = "decay-scheduler.backoff.responsetime.thresholds"
DEFAULTS: Final = queue.FairCallQueue()


def parse_max_in_flight(value: object) -> int | None:
    """Return how many requests the proxy may have sent to a broker that the broker has not answered yet.

    Return None for ``adaptive``, which means that the proxy finds the number from the broker's latency.
    """
    if value == ADAPTIVE:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= INT32_MAX:
        raise ValueError(f"must be {ADAPTIVE}, or a whole number from 1 to {INT32_MAX}, not {shown(value)}")
    return value


def settings(given: Mapping[str, Any]) -> queue.FairCallQueue:
    """Create the settings of a fair call queue from the values of a section, with defaults for missing keys.

    The keys of ``given`` are the fields of ``FairCallQueue``, and ``weight_…`` for the fields of ``CostWeights``.
    """
    own = {name: value for name, value in given.items() if not name.startswith("weight_")}
    levels = own.get("levels", DEFAULTS.levels)
    if "thresholds" in own:
        own["thresholds"] = tuple(per_cent / 100 for per_cent in own["thresholds"])
    if own.get("callqueue_impl") is queue.CallQueueImpl.FIFO:
        own = {"scheduler_impl": queue.SchedulerImpl.DEFAULT, "within_level": queue.WithinLevel.FIFO, **own}
    weights = {name.removeprefix("weight_"): value for name, value in given.items() if name.startswith("weight_")}
    # Hadoop's defaults. The lowest level begins at half of the total cost. The threshold of each other level is half
    # the threshold of the level below it.
    by_level = {
        "capacity_weights": (1,) * levels,
        "multiplexer_weights": tuple(min(2 ** (levels - 1 - level), INT32_MAX) for level in range(levels)),
        "thresholds": tuple(2.0 ** (level - levels + 1) for level in range(levels - 1)),
        "backoff_responsetime_thresholds_ms": tuple(10_000 * (level + 1) for level in range(levels)),
    }
    return queue.FairCallQueue(**{**by_level, **own}, cost_weights=queue.CostWeights(**weights))


# Earlier versions had these keys. The error for each says what to write instead.
_REMOVED: Final = {
    "mode": "no longer exists: all is as with mode: improved; remove it. Of mode: hadoop, these can still be written: "
    "callqueue.within-level: fifo, decay-scheduler.utilisation-floor: 0 and identities.max: null",
    "callqueue.capacity.remainder": "no longer exists: the levels that lose most by rounding get the rest; remove it, "
    "or write a callqueue.capacity that the sum of the weights divides",
    "callqueue.overflow.trigger.failover": "has no counterpart in Kafka, whose clients cannot use another broker; "
    "remove it, and write backoff.enable: true if a full queue is to refuse requests",
    "decay-scheduler.pause": "no longer exists: after a pause costs decay once, as with pause: once; remove it",
    "decay-scheduler.backoff.responsetime.inclusive": "no longer exists: only the levels below a slow one are refused; "
    "remove it, and write a lower decay-scheduler.backoff.responsetime.thresholds for the level above, if need be",
    "decay-scheduler.backoff.responsetime.min-calls": "no longer exists: a level is slow after 10 answers in a period "
    "at least; remove it",
    "decay-scheduler.average": "no longer exists: an average is the true one, no longer twice as large; remove it, and "
    "write half of decay-scheduler.backoff.responsetime.thresholds where it was hadoop",
    **dict.fromkeys(
        ("max_in_flight.min", "max_in_flight.max"),
        "no longer exists: an adaptive number is from 4 to 500; remove it, or write a number as max_in_flight",
    ),
    "faircallqueue.priority-levels": f"is Hadoop's old name; write {LEVELS}",
    **{
        f"faircallqueue.{key}": f"is Hadoop's old name; write {key}"
        for key in ("decay-scheduler.period-ms", "decay-scheduler.decay-factor", THRESHOLDS)
    },
}


# ``settings`` takes the values of these keys by their fields.
FAIR_CALL_QUEUE: Final = Section(
    dict,
    {
        "callqueue.impl": Key(read.member_of(queue.CallQueueImpl)),
        CAPACITY: Key(read.at_least_one, "capacity"),
        CAPACITY_WEIGHTS: Key(ListOf(read.at_least_one, needs_one=True), "capacity_weights"),
        "callqueue.within-level": Key(read.member_of(queue.WithinLevel), "within_level"),
        "scheduler.impl": Key(read.member_of(queue.SchedulerImpl)),
        LEVELS: Key(read.whole_number(1, MAX_LEVELS, ", though Hadoop takes more"), "levels"),
        # Hadoop takes weights below 1, and then serves one level for ever.
        MULTIPLEXER_WEIGHTS: Key(ListOf(read.at_least_one, needs_one=True), "multiplexer_weights"),
        "backoff.enable": Key(read.boolean),
        "identity-provider.impl": Key(read.member_of(queue.IdentityProvider), "identity_provider"),
        "identities.max": Key(
            read.whole_number(1, INT32_MAX, ", or null for any number"), "max_identities", or_null=True
        ),
        "cost-provider.impl": Key(read.member_of(queue.CostProvider), "cost_provider"),
        **{
            f"weighted-cost.{phase}": Key(
                read.whole_number(0, INT32_MAX, ", the weight of this phase's time"), f"weight_{phase}"
            )
            for phase in queue.CostWeights.__dataclass_fields__
        },
        "decay-scheduler.period-ms": Key(read.at_least_one, "period_ms"),
        "decay-scheduler.decay-factor": Key(read.number_between(0, 1, is_open=True), "decay_factor"),
        THRESHOLDS: Key(ListOf(read.whole_number(1, 99, ", a share of all cost in per cent")), "thresholds"),
        "decay-scheduler.utilisation-floor": Key(read.number_between(0, 1, is_open=False), "utilisation_floor"),
        "decay-scheduler.backoff.responsetime.enable": Key(read.boolean, "backoff_responsetime_enable"),
        RESPONSE_TIMES: Key(ListOf(read.duration_ms, needs_one=True), "backoff_responsetime_thresholds_ms"),
        "decay-scheduler.metrics.top.user.count": Key(read.at_least_one, "top_user_count"),
        "decay-scheduler.service-users": Key(ListOf(read.user_name, frozenset), "service_users"),
        "max_in_flight": Key(parse_max_in_flight),
    },
    removed=_REMOVED,
)
