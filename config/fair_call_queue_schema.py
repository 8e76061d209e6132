"""The section ``fair_call_queue`` of the file and of a listener: Hadoop's keys without ``ipc.<port>.``, and ours."""

from functools import partial
from typing import Final

from kafka_quota_proxy.config.fair_call_queue import (
    CallQueueImpl,
    CapacityRemainder,
    CostProvider,
    CostWeights,
    DecayPause,
    FairCallQueueMode,
    ResponseTimeAverage,
    SchedulerImpl,
    WithinLevel,
)
from kafka_quota_proxy.config.fair_call_queue_options import (
    INT32_MIN,
    INT64_MAX,
    MAX_LEVELS,
    parse_durations_ms,
    parse_identity_provider,
    parse_implementation,
    parse_max_in_flight,
    parse_names,
    parse_providers,
    parse_turns,
    parse_whole_numbers,
)
from kafka_quota_proxy.config.sections import Key, Section
from kafka_quota_proxy.config.units import INT32_MAX
from kafka_quota_proxy.config.value_readers import (
    at_least_one,
    boolean,
    member_of,
    number_between,
    or_null,
    whole_number,
)

_TOO_MANY_LEVELS: Final = ", though Hadoop takes more"
# fair_call_queue_checks.py reports those that make sense with mode: hadoop only.
_per_cents: Final = partial(parse_whole_numbers, minimum=INT32_MIN)
_decay_factor: Final = number_between(0, 1, is_open=True)
_weight: Final = whole_number(INT32_MIN, INT32_MAX, ", the weight of this phase's time")


def none_for_false(value: object) -> object:
    """Return the mapping of a section, or None for false."""
    if value is not False and not isinstance(value, dict):
        raise ValueError("must be a mapping of its settings, {} where all is left to the defaults, or false for none")
    return None if value is False else value


# The fields are those of ``fair_call_queue_options.settings``.
FAIR_CALL_QUEUE: Final = Section(
    dict,
    {
        "mode": Key(member_of(FairCallQueueMode)),
        "callqueue.impl": Key(partial(parse_implementation, choices=CallQueueImpl)),
        "callqueue.capacity": Key(at_least_one, "capacity"),
        "callqueue.capacity.weights": Key(parse_whole_numbers, "capacity_weights"),
        "callqueue.capacity.remainder": Key(member_of(CapacityRemainder), "capacity_remainder"),
        "callqueue.overflow.trigger.failover": Key(boolean, "overflow_trigger_failover"),
        "callqueue.within-level": Key(member_of(WithinLevel), "within_level"),
        "scheduler.impl": Key(partial(parse_implementation, choices=SchedulerImpl)),
        "scheduler.priority.levels": Key(whole_number(1, MAX_LEVELS, _TOO_MANY_LEVELS), "levels"),
        "faircallqueue.multiplexer.weights": Key(parse_turns, "multiplexer_weights"),
        "backoff.enable": Key(boolean),
        "identity-provider.impl": Key(parse_identity_provider, "identity_provider"),
        "identities.max": Key(or_null(whole_number(1, INT32_MAX, ", or null for any number")), "max_identities"),
        "cost-provider.impl": Key(partial(parse_providers, choices=CostProvider), "cost_provider"),
        **{f"weighted-cost.{phase}": Key(_weight, f"weight_{phase}") for phase in CostWeights.__dataclass_fields__},
        "decay-scheduler.period-ms": Key(whole_number(1, INT64_MAX), "period_ms"),
        "decay-scheduler.decay-factor": Key(_decay_factor, "decay_factor"),
        "decay-scheduler.thresholds": Key(_per_cents, "thresholds"),
        "decay-scheduler.pause": Key(member_of(DecayPause), "pause"),
        "decay-scheduler.utilisation-floor": Key(number_between(0, 1, is_open=False), "utilisation_floor"),
        "decay-scheduler.backoff.responsetime.enable": Key(boolean, "backoff_responsetime_enable"),
        "decay-scheduler.backoff.responsetime.thresholds": Key(
            parse_durations_ms, "backoff_responsetime_thresholds_ms"
        ),
        "decay-scheduler.backoff.responsetime.inclusive": Key(boolean, "backoff_responsetime_inclusive"),
        "decay-scheduler.backoff.responsetime.min-calls": Key(at_least_one, "backoff_responsetime_min_calls"),
        "decay-scheduler.average": Key(member_of(ResponseTimeAverage), "average"),
        "decay-scheduler.metrics.top.user.count": Key(at_least_one, "top_user_count"),
        "decay-scheduler.service-users": Key(parse_names, "service_users"),
        # Of a deprecated key 0 means that it is not set.
        "faircallqueue.priority-levels": Key(whole_number(0, MAX_LEVELS, _TOO_MANY_LEVELS), "deprecated_levels"),
        "faircallqueue.decay-scheduler.period-ms": Key(whole_number(0, INT64_MAX), "deprecated_period_ms"),
        "faircallqueue.decay-scheduler.decay-factor": Key(
            lambda value: value if value == 0 else _decay_factor(value), "deprecated_decay_factor"
        ),
        "faircallqueue.decay-scheduler.thresholds": Key(_per_cents, "deprecated_thresholds"),
        "max_in_flight": Key(parse_max_in_flight),
        "max_in_flight.min": Key(at_least_one, "min_in_flight"),
        "max_in_flight.max": Key(at_least_one, "most_in_flight"),
    },
)
