"""Converts the values of the section ``fair_call_queue`` to settings, by a table of its keys.

Hadoop writes a list as text, such as ``8,4,2,1``, and a class by its full name. This module also accepts a YAML list,
and a short word in place of the class.

Source: Hadoop's ``CommonConfigurationKeys``, ``FairCallQueue``, ``DecayRpcScheduler`` and ``WeightedTimeCostProvider``.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

from kafka_quota_proxy.config import fair_call_queue as queue
from kafka_quota_proxy.config import value_readers as read
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.sections import Key, Section
from kafka_quota_proxy.config.units import INT32_MAX, parse_duration_ms, shown

INT32_MIN: Final = -(2**31)
INT64_MAX: Final = 2**63 - 1
# Thresholds are whole per cents, so with more levels some would have the same threshold.
MAX_LEVELS: Final = 100
ADAPTIVE: Final = "adaptive"

LEVELS: Final = "scheduler.priority.levels"
CAPACITY: Final = "callqueue.capacity"
CAPACITY_WEIGHTS: Final = "callqueue.capacity.weights"
MULTIPLEXER_WEIGHTS: Final = "faircallqueue.multiplexer.weights"
THRESHOLDS: Final = "decay-scheduler.thresholds"
RESPONSE_TIMES: Final = "decay-scheduler.backoff.responsetime.thresholds"
# Hadoop's deprecated keys and their new names. If both are set, the deprecated key applies.
DEPRECATED: Final[Mapping[str, str]] = {
    "faircallqueue.priority-levels": LEVELS,
    "faircallqueue.decay-scheduler.period-ms": "decay-scheduler.period-ms",
    "faircallqueue.decay-scheduler.decay-factor": "decay-scheduler.decay-factor",
    "faircallqueue.decay-scheduler.thresholds": THRESHOLDS,
}

_OWN_FUNCTION: Final = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)", re.ASCII)
_HADOOP: Final = "org.apache.hadoop.ipc."
_CLASSES: Final[Mapping[str, Enum]] = {
    f"{_HADOOP}FairCallQueue": queue.CallQueueImpl.FAIR,
    "java.util.concurrent.LinkedBlockingQueue": queue.CallQueueImpl.FIFO,
    "java.util.concurrent.ArrayBlockingQueue": queue.CallQueueImpl.FIFO,
    f"{_HADOOP}DecayRpcScheduler": queue.SchedulerImpl.DECAY,
    f"{_HADOOP}DefaultRpcScheduler": queue.SchedulerImpl.DEFAULT,
    f"{_HADOOP}UserIdentityProvider": queue.IdentityProvider.USER,
    f"{_HADOOP}DefaultCostProvider": queue.CostProvider.DEFAULT,
    f"{_HADOOP}WeightedTimeCostProvider": queue.CostProvider.WEIGHTED,
}
DEFAULTS: Final = queue.FairCallQueue()

_INT32: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
# Durations that Hadoop accepts but the rest of the configuration file does not: other units, and no unit.
_HADOOPS_DURATION: Final = re.compile(r"([0-9]{1,19})(ns|us|d)?", re.ASCII)
_NS_PER_UNIT: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "d": 86_400_000_000_000}

_E = TypeVar("_E", bound=Enum)


def parse_implementation(value: object, choices: type[_E]) -> _E:
    """Return the Enum member for a short word, such as ``fair``, or for the full name of one of Hadoop's classes."""
    words = {str(choice.value): choice for choice in choices}
    classes = {name: choice for name, choice in _CLASSES.items() if isinstance(choice, choices)}
    found = (words | classes).get(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"must be {' or '.join(words)}, or of Hadoop's classes {' or '.join(classes)}, not {value!r}")
    return found


def parse_identity_provider(value: object) -> queue.IdentityProvider | queue.OwnIdentityProvider:
    """Return the built-in identity provider with this name, or the operator's function for ``MODULE:FUNCTION``."""
    own = _OWN_FUNCTION.fullmatch(value) if isinstance(value, str) else None
    if own is not None:
        return queue.OwnIdentityProvider(own["module"], own["function"])
    try:
        return parse_providers(value, queue.IdentityProvider)
    except ValueError as error:
        raise ValueError(f"{error}; or, for a function of your own, MODULE:FUNCTION") from error


def parse_providers(value: object, choices: type[_E]) -> _E:
    """Return the Enum member for the first name in a comma-separated list. Hadoop also uses only the first.

    Raises ValueError if any name in the list is unknown.
    """
    names = map(str.strip, value.split(",")) if isinstance(value, str) else (value,)
    first, *_ = (parse_implementation(name, choices) for name in names)
    return first


def parse_whole_numbers(value: object, *, minimum: int = 1, maximum: int = INT32_MAX) -> tuple[int, ...]:
    """Read whole numbers from a YAML list, from comma-separated text, or from a single number.

    Each number must be from ``minimum`` to ``maximum``, which is the largest int32 unless it is given.
    """
    return tuple(_whole(each, minimum, maximum) for each in _parts(value, "whole numbers such as 8,4,2,1"))


def parse_per_cents(value: object) -> tuple[int, ...]:
    """Read the shares of all cost, in per cent, at which the priority levels after the first begin.

    They must ascend, from 1 to 99. Hadoop accepts any numbers, and then some levels have no user.
    """
    per_cents = parse_whole_numbers(value, maximum=99)
    if any(high <= low for low, high in pairwise(per_cents)):
        raise ValueError(f"must ascend, each above the one before, not {','.join(map(str, per_cents))}")
    return per_cents


def parse_turns(value: object) -> tuple[int, ...]:
    """Read the weights that say how many requests of each priority level are served before those of the next level.

    Weights below 1 are refused. Hadoop accepts them, and then serves one level for ever.
    """
    weights = parse_whole_numbers(value, minimum=INT32_MIN)
    wrong = next((weight for weight in weights if weight < 1), None)
    if wrong is not None:
        reason = "Hadoop takes it, and then serves one level for ever"
        raise ValueError(f"each must be a whole number from 1 to {INT32_MAX}, not {wrong}: {reason}")
    return weights


def parse_durations_ms(value: object) -> tuple[int, ...]:
    """Read durations in milliseconds from a YAML list, from comma-separated text, or from a single duration.

    As in Hadoop, a number without a unit is in milliseconds.
    """
    return tuple(_duration_ms(each) for each in _parts(value, "durations such as 10s,20s,30s,40s"))


def parse_names(value: object) -> frozenset[str]:
    """Read names from a YAML list or from comma-separated text. The result may be empty."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError('must be names, such as alice,bob or [alice, "007"]')
    return frozenset(filter(None, map(str.strip, parts)))


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

    The keys of ``given`` are the fields of ``FairCallQueue``, ``deprecated_…`` for Hadoop's deprecated keys, and
    ``weight_…`` for the fields of ``CostWeights``.
    """
    # An empty list means that the key is not set.
    own = {
        name: value for name, value in given.items() if not name.startswith(("deprecated_", "weight_")) and value != ()
    }
    for name in ("levels", "period_ms", "decay_factor", "thresholds"):
        if given.get(f"deprecated_{name}"):
            own[name] = given[f"deprecated_{name}"]
    levels = own.get("levels", DEFAULTS.levels)
    if "thresholds" in own:
        own["thresholds"] = tuple(per_cent / 100 for per_cent in own["thresholds"])
    # Lists for a queue or a scheduler that is not in use are dropped, since they may have any length.
    if own.get("callqueue_impl") is queue.CallQueueImpl.FIFO:
        own = {"scheduler_impl": queue.SchedulerImpl.DEFAULT, "within_level": queue.WithinLevel.FIFO, **own}
        own = _without(own, "capacity_weights", "multiplexer_weights")
    if own.get("scheduler_impl") is queue.SchedulerImpl.DEFAULT:
        own = _without(own, "thresholds", "backoff_responsetime_thresholds_ms")
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


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _parts(value: object, what: str) -> Sequence[object]:
    if isinstance(value, str):
        # As in org.apache.hadoop.util.StringUtils.getTrimmedStrings, empty elements at the end do not count.
        text = value.strip().rstrip(", \t\r\n")
        return re.split(r"\s*[,\n]\s*", text) if text else ()
    if isinstance(value, list):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value,)
    raise ValueError(f"must be {what}, or a list of them")


def _whole(value: object, minimum: int, maximum: int) -> int:
    number = int(value) if isinstance(value, str) and _INT32.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number <= maximum:
        raise ValueError(f"each must be a whole number from {minimum} to {maximum}, not {shown(value)}")
    return number


def _duration_ms(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(f"must be durations such as 10s,20s,30s,40s, not {shown(value)}")
    text = value.strip().lower() if isinstance(value, str) else f"{value}ms"
    found = _HADOOPS_DURATION.fullmatch(text)
    of_hadoop_ns = int(found[1]) * _NS_PER_UNIT[found[2] or "ms"] if found else 0
    duration_ms = of_hadoop_ns // 1_000_000 if found else parse_duration_ms(text)
    if not 0 < duration_ms <= INT64_MAX:
        raise UnitError(f"each must be above 0ms and at most {INT64_MAX}ms")
    return duration_ms


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


# ``settings`` takes the values of these keys by their fields.
FAIR_CALL_QUEUE: Final = Section(
    dict,
    {
        "callqueue.impl": Key(partial(parse_implementation, choices=queue.CallQueueImpl)),
        "callqueue.capacity": Key(read.at_least_one, "capacity"),
        "callqueue.capacity.weights": Key(parse_whole_numbers, "capacity_weights"),
        "callqueue.within-level": Key(read.member_of(queue.WithinLevel), "within_level"),
        "scheduler.impl": Key(partial(parse_implementation, choices=queue.SchedulerImpl)),
        "scheduler.priority.levels": Key(read.whole_number(1, MAX_LEVELS, _TOO_MANY_LEVELS), "levels"),
        "faircallqueue.multiplexer.weights": Key(parse_turns, "multiplexer_weights"),
        "backoff.enable": Key(read.boolean),
        "identity-provider.impl": Key(parse_identity_provider, "identity_provider"),
        "identities.max": Key(
            read.or_null(read.whole_number(1, INT32_MAX, ", or null for any number")), "max_identities"
        ),
        "cost-provider.impl": Key(partial(parse_providers, choices=queue.CostProvider), "cost_provider"),
        **{
            f"weighted-cost.{phase}": Key(_weight, f"weight_{phase}")
            for phase in queue.CostWeights.__dataclass_fields__
        },
        "decay-scheduler.period-ms": Key(read.whole_number(1, INT64_MAX), "period_ms"),
        "decay-scheduler.decay-factor": Key(_decay_factor, "decay_factor"),
        "decay-scheduler.thresholds": Key(parse_per_cents, "thresholds"),
        "decay-scheduler.utilisation-floor": Key(read.number_between(0, 1, is_open=False), "utilisation_floor"),
        "decay-scheduler.backoff.responsetime.enable": Key(read.boolean, "backoff_responsetime_enable"),
        "decay-scheduler.backoff.responsetime.thresholds": Key(
            parse_durations_ms, "backoff_responsetime_thresholds_ms"
        ),
        "decay-scheduler.metrics.top.user.count": Key(read.at_least_one, "top_user_count"),
        "decay-scheduler.service-users": Key(parse_names, "service_users"),
        # In a deprecated key, 0 means that the key is not set.
        "faircallqueue.priority-levels": Key(read.whole_number(0, MAX_LEVELS, _TOO_MANY_LEVELS), "deprecated_levels"),
        "faircallqueue.decay-scheduler.period-ms": Key(read.whole_number(0, INT64_MAX), "deprecated_period_ms"),
        "faircallqueue.decay-scheduler.decay-factor": Key(
            lambda value: value if value == 0 else _decay_factor(value), "deprecated_decay_factor"
        ),
        "faircallqueue.decay-scheduler.thresholds": Key(parse_per_cents, "deprecated_thresholds"),
        "max_in_flight": Key(parse_max_in_flight),
        "max_in_flight.min": Key(read.at_least_one, "min_in_flight"),
        "max_in_flight.max": Key(read.at_least_one, "most_in_flight"),
    },
    removed=_REMOVED,
)
