"""The section ``fair_call_queue`` of the file and of a listener."""

from enum import Enum
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, PlainValidator, StrictBool

from kafka_quota_proxy.config.fair_call_queue import (
    CallQueueImpl,
    CapacityRemainder,
    CostProvider,
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
from kafka_quota_proxy.config.schema_fields import Section, member_of, number_between, or_null, whole_number
from kafka_quota_proxy.config.units import INT32_MAX

_E = TypeVar("_E", bound=Enum)


def _implementation(choices: type[_E]) -> PlainValidator:
    return PlainValidator(partial(parse_implementation, choices=choices))


def _providers(choices: type[_E]) -> PlainValidator:
    return PlainValidator(partial(parse_providers, choices=choices))


def _nothing_for_false(value: object) -> object:
    if value is not False and not isinstance(value, dict):
        raise ValueError("must be a mapping of its settings, {} where all is left to the defaults, or false for none")
    return None if value is False else value


WholeNumber = Annotated[Any, PlainValidator(whole_number(1, INT32_MAX))]
Levels = Annotated[Any, PlainValidator(whole_number(1, MAX_LEVELS, ", though Hadoop takes more"))]
Period = Annotated[Any, PlainValidator(whole_number(1, INT64_MAX))]
# Of a deprecated key 0 means that it is not set.
DeprecatedLevels = Annotated[Any, PlainValidator(whole_number(0, MAX_LEVELS, ", though Hadoop takes more"))]
DeprecatedPeriod = Annotated[Any, PlainValidator(whole_number(0, INT64_MAX))]
Weights = Annotated[Any, PlainValidator(parse_whole_numbers)]
Turns = Annotated[Any, PlainValidator(parse_turns)]
# Which of them make sense without mode: hadoop, fair_call_queue_checks.py says.
PerCents = Annotated[Any, PlainValidator(partial(parse_whole_numbers, minimum=INT32_MIN))]
_FACTOR: Final = number_between(0, 1, is_open=True)
Factor = Annotated[Any, PlainValidator(_FACTOR)]
DeprecatedFactor = Annotated[Any, PlainValidator(lambda value: _FACTOR(value) if value != 0 else value)]
Weight = Annotated[Any, PlainValidator(whole_number(INT32_MIN, INT32_MAX, ", the weight of this phase's time"))]


class FairCallQueueSection(Section):
    """``fair_call_queue``: Hadoop's keys without ``ipc.<port>.``, and ours."""

    mode: Annotated[Any, PlainValidator(member_of(FairCallQueueMode))] = None
    callqueue_impl: Annotated[Any, _implementation(CallQueueImpl)] = Field(None, alias="callqueue.impl")
    capacity: WholeNumber = Field(None, alias="callqueue.capacity")
    capacity_weights: Weights = Field(None, alias="callqueue.capacity.weights")
    capacity_remainder: Annotated[Any, PlainValidator(member_of(CapacityRemainder))] = Field(
        None, alias="callqueue.capacity.remainder"
    )
    overflow_trigger_failover: StrictBool = Field(False, alias="callqueue.overflow.trigger.failover")
    within_level: Annotated[Any, PlainValidator(member_of(WithinLevel))] = Field(None, alias="callqueue.within-level")
    scheduler_impl: Annotated[Any, _implementation(SchedulerImpl)] = Field(None, alias="scheduler.impl")
    levels: Levels = Field(None, alias="scheduler.priority.levels")
    multiplexer_weights: Turns = Field(None, alias="faircallqueue.multiplexer.weights")
    backoff_enable: StrictBool = Field(False, alias="backoff.enable")
    identity_provider: Annotated[Any, PlainValidator(parse_identity_provider)] = Field(
        None, alias="identity-provider.impl"
    )
    max_identities: Annotated[Any, PlainValidator(or_null(whole_number(1, INT32_MAX, ", or null for any number")))] = (
        Field(None, alias="identities.max")
    )
    cost_provider: Annotated[Any, _providers(CostProvider)] = Field(None, alias="cost-provider.impl")
    weight_lockshared: Weight = Field(None, alias="weighted-cost.lockshared")
    weight_lockexclusive: Weight = Field(None, alias="weighted-cost.lockexclusive")
    weight_handler: Weight = Field(None, alias="weighted-cost.handler")
    weight_lockfree: Weight = Field(None, alias="weighted-cost.lockfree")
    weight_response: Weight = Field(None, alias="weighted-cost.response")
    weight_queue: Weight = Field(None, alias="weighted-cost.queue")
    weight_enqueue: Weight = Field(None, alias="weighted-cost.enqueue")
    weight_lockwait: Weight = Field(None, alias="weighted-cost.lockwait")
    weight_processing: Weight = Field(None, alias="weighted-cost.processing")
    period_ms: Period = Field(None, alias="decay-scheduler.period-ms")
    decay_factor: Factor = Field(None, alias="decay-scheduler.decay-factor")
    thresholds: PerCents = Field(None, alias="decay-scheduler.thresholds")
    pause: Annotated[Any, PlainValidator(member_of(DecayPause))] = Field(None, alias="decay-scheduler.pause")
    utilisation_floor: Annotated[Any, PlainValidator(number_between(0, 1, is_open=False))] = Field(
        None, alias="decay-scheduler.utilisation-floor"
    )
    backoff_responsetime_enable: StrictBool = Field(False, alias="decay-scheduler.backoff.responsetime.enable")
    backoff_responsetime_thresholds_ms: Annotated[Any, PlainValidator(parse_durations_ms)] = Field(
        None, alias="decay-scheduler.backoff.responsetime.thresholds"
    )
    backoff_responsetime_inclusive: StrictBool = Field(False, alias="decay-scheduler.backoff.responsetime.inclusive")
    backoff_responsetime_min_calls: WholeNumber = Field(None, alias="decay-scheduler.backoff.responsetime.min-calls")
    average: Annotated[Any, PlainValidator(member_of(ResponseTimeAverage))] = Field(
        None, alias="decay-scheduler.average"
    )
    top_user_count: WholeNumber = Field(None, alias="decay-scheduler.metrics.top.user.count")
    service_users: Annotated[Any, PlainValidator(parse_names)] = Field(None, alias="decay-scheduler.service-users")
    deprecated_levels: DeprecatedLevels = Field(None, alias="faircallqueue.priority-levels")
    deprecated_period_ms: DeprecatedPeriod = Field(None, alias="faircallqueue.decay-scheduler.period-ms")
    deprecated_decay_factor: DeprecatedFactor = Field(None, alias="faircallqueue.decay-scheduler.decay-factor")
    deprecated_thresholds: PerCents = Field(None, alias="faircallqueue.decay-scheduler.thresholds")
    max_in_flight: Annotated[Any, PlainValidator(parse_max_in_flight)] = None
    min_in_flight: WholeNumber = Field(None, alias="max_in_flight.min")
    most_in_flight: WholeNumber = Field(None, alias="max_in_flight.max")


# In the file null is a fault, see checks.py; False is None here.
FairCallQueueOrFalse = Annotated[FairCallQueueSection | None, BeforeValidator(_nothing_for_false)]
