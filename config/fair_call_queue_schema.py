"""Defines the keys of the section ``fair_call_queue``, which is at the top of the file or in a listener.

They are Hadoop's keys for its fair call queue, without the prefix ``ipc.<port>.``, and some keys that only this program
has.
"""

from functools import partial
from typing import Final

from kafka_quota_proxy.config import fair_call_queue as queue
from kafka_quota_proxy.config import fair_call_queue_options as options
from kafka_quota_proxy.config import value_readers as read
from kafka_quota_proxy.config.sections import Key, Section
from kafka_quota_proxy.config.units import INT32_MAX

_TOO_MANY_LEVELS: Final = ", though Hadoop takes more"
_decay_factor: Final = read.number_between(0, 1, is_open=True)
_weight: Final = read.whole_number(0, INT32_MAX, ", the weight of this phase's time")


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
}


def none_for_false(value: object) -> object:
    """Return a section as it is, or None for ``false``, by which a listener has no fair call queue."""
    if value is not False and not isinstance(value, dict):
        raise ValueError("must be a mapping of its settings, {} where all is left to the defaults, or false for none")
    return None if value is False else value


# ``fair_call_queue_options.settings`` takes the values of these keys by their fields.
FAIR_CALL_QUEUE: Final = Section(
    dict,
    {
        "callqueue.impl": Key(partial(options.parse_implementation, choices=queue.CallQueueImpl)),
        "callqueue.capacity": Key(read.at_least_one, "capacity"),
        "callqueue.capacity.weights": Key(options.parse_whole_numbers, "capacity_weights"),
        "callqueue.within-level": Key(read.member_of(queue.WithinLevel), "within_level"),
        "scheduler.impl": Key(partial(options.parse_implementation, choices=queue.SchedulerImpl)),
        "scheduler.priority.levels": Key(read.whole_number(1, options.MAX_LEVELS, _TOO_MANY_LEVELS), "levels"),
        "faircallqueue.multiplexer.weights": Key(options.parse_turns, "multiplexer_weights"),
        "backoff.enable": Key(read.boolean),
        "identity-provider.impl": Key(options.parse_identity_provider, "identity_provider"),
        "identities.max": Key(
            read.or_null(read.whole_number(1, INT32_MAX, ", or null for any number")), "max_identities"
        ),
        "cost-provider.impl": Key(partial(options.parse_providers, choices=queue.CostProvider), "cost_provider"),
        **{
            f"weighted-cost.{phase}": Key(_weight, f"weight_{phase}")
            for phase in queue.CostWeights.__dataclass_fields__
        },
        "decay-scheduler.period-ms": Key(read.whole_number(1, options.INT64_MAX), "period_ms"),
        "decay-scheduler.decay-factor": Key(_decay_factor, "decay_factor"),
        "decay-scheduler.thresholds": Key(options.parse_per_cents, "thresholds"),
        "decay-scheduler.utilisation-floor": Key(read.number_between(0, 1, is_open=False), "utilisation_floor"),
        "decay-scheduler.backoff.responsetime.enable": Key(read.boolean, "backoff_responsetime_enable"),
        "decay-scheduler.backoff.responsetime.thresholds": Key(
            options.parse_durations_ms, "backoff_responsetime_thresholds_ms"
        ),
        "decay-scheduler.metrics.top.user.count": Key(read.at_least_one, "top_user_count"),
        "decay-scheduler.service-users": Key(options.parse_names, "service_users"),
        # In a deprecated key, 0 means that the key is not set.
        "faircallqueue.priority-levels": Key(
            read.whole_number(0, options.MAX_LEVELS, _TOO_MANY_LEVELS), "deprecated_levels"
        ),
        "faircallqueue.decay-scheduler.period-ms": Key(read.whole_number(0, options.INT64_MAX), "deprecated_period_ms"),
        "faircallqueue.decay-scheduler.decay-factor": Key(
            lambda value: value if value == 0 else _decay_factor(value), "deprecated_decay_factor"
        ),
        "faircallqueue.decay-scheduler.thresholds": Key(options.parse_per_cents, "deprecated_thresholds"),
        "max_in_flight": Key(options.parse_max_in_flight),
        "max_in_flight.min": Key(read.at_least_one, "min_in_flight"),
        "max_in_flight.max": Key(read.at_least_one, "most_in_flight"),
    },
    removed=_REMOVED,
)
