"""Checks the configuration section ``fair_call_queue`` for faults that concern more than one key.

Examples are a list with too few elements, a priority level whose part of the queue is empty, and a key without effect.
"""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config import fair_call_queue as queue
from kafka_quota_proxy.config import fair_call_queue_options as options
from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.fair_call_queue import load_identity_function
from kafka_quota_proxy.config.listener_checks import upstreams_of
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.sections import Part

_KEY: Final = "fair_call_queue"
_IDENTITY_PROVIDER: Final = "identity-provider.impl"
_COST_PROVIDER: Final = "cost-provider.impl"
_LEAST_IN_FLIGHT: Final = "max_in_flight.min"
_MOST_IN_FLIGHT: Final = "max_in_flight.max"
_BY_RESPONSE_TIME: Final = "decay-scheduler.backoff.responsetime.enable"


def check_identity_functions(top: Part, _: Document) -> Iterator[Finding]:
    """Report each function that is configured as an identity provider (``MODULE:FUNCTION``) but cannot be imported."""
    for section in _sections(top):
        provider = section.get(_IDENTITY_PROVIDER)
        try:
            if isinstance(provider, queue.OwnIdentityProvider):
                load_identity_function(provider)
        except ValueError as fault:
            yield error((*section.at, _IDENTITY_PROVIDER), str(fault))


def _sections(top: Part) -> list[Part]:
    """Return each section ``fair_call_queue``, the top-level section first."""
    places = [top, *top.parts("listeners")]
    return [section for place in places if (section := place.find(_KEY)) is not None]


def _check_sections(top: Part, document: Document) -> Iterator[Finding]:
    for section in _sections(top):
        callqueue = section.get("callqueue.impl", queue.CallQueueImpl.FAIR)
        is_fifo = callqueue is queue.CallQueueImpl.FIFO
        implied = queue.SchedulerImpl.DEFAULT if is_fifo else queue.SchedulerImpl.DECAY
        scheduler = section.get("scheduler.impl", callqueue and implied)
        yield from _warn_of_deprecated(section)
        levels = section.get(_name_of(section, options.LEVELS), options.DEFAULTS.levels)
        if levels is not None:
            yield from _check_length(section, options.CAPACITY_WEIGHTS, levels, "weight")
            # Like Hadoop, ignore lists for a queue or a scheduler that is not in use.
            if callqueue is queue.CallQueueImpl.FAIR:
                yield from _check_length(section, options.MULTIPLEXER_WEIGHTS, levels, "weight")
                yield from _check_capacity(section, levels)
            if scheduler is queue.SchedulerImpl.DECAY:
                yield from _check_length(section, options.RESPONSE_TIMES, levels, "duration")
                thresholds = _name_of(section, options.THRESHOLDS)
                yield from _check_length(section, thresholds, levels - 1, "threshold", " but the last")
        yield from _check_in_flight(section)
        for key in (_IDENTITY_PROVIDER, _COST_PROVIDER):
            if section.get(key) is not None and "," in document.text((*section.at, key)):
                message = "has several values, of which only the first counts; write only that one"
                yield warning((*section.at, key), message)
        if section.get(_BY_RESPONSE_TIME) and not section.get("backoff.enable"):
            yield warning((*section.at, _BY_RESPONSE_TIME), "has no effect without backoff.enable: true")
        if section.get(_COST_PROVIDER, queue.CostProvider.DEFAULT) not in (None, queue.CostProvider.WEIGHTED):
            yield from _warn_of_all(section, "weighted-cost.", f"{_COST_PROVIDER}: weighted")
        if is_fifo:
            yield from _warn_of_all(section, options.CAPACITY_WEIGHTS, "callqueue.impl: fair")
            yield from _warn_of_all(section, options.MULTIPLEXER_WEIGHTS, "callqueue.impl: fair")
        if scheduler is queue.SchedulerImpl.DEFAULT:
            yield from _warn_of_all(section, "decay-scheduler.", "scheduler.impl: decay")


def _warn_of_deprecated(section: Part) -> Iterator[Finding]:
    """Warn of Hadoop's deprecated keys, which take precedence over their new names."""
    for old, new in options.DEPRECATED.items():
        if _is_set(section, old):
            instead = f" and overrides {new}" if new in section else ""
            yield warning((*section.at, old), f"is Hadoop's old name{instead}; write {new}")


def _is_set(section: Part, old: str) -> bool:
    """Whether a section has a deprecated key. There, 0 and an empty list mean that the key is not set."""
    return old in section and section[old] not in (0, ())


def _name_of(section: Part, key: str) -> str:
    """Return the name under which a section sets ``key``: its deprecated name, or ``key`` itself."""
    return next((old for old, new in options.DEPRECATED.items() if new == key and _is_set(section, old)), key)


def _check_length(section: Part, key: str, length: int, noun: str, but: str = "") -> Iterator[Finding]:
    values = section.get(key)
    if values and len(values) != length:
        given = f"{len(values)} {noun}{'s' if len(values) != 1 else ''}"
        yield error((*section.at, key), f"has {given}; give {length}, one for each level{but}")


def _check_capacity(section: Part, levels: int) -> Iterator[Finding]:
    capacity = section.get(options.CAPACITY, options.DEFAULTS.capacity)
    weights = section.get(options.CAPACITY_WEIGHTS, ()) or (1,) * levels
    if capacity is None or len(weights) != levels:
        return
    without = queue.places(capacity, weights).count(0)
    if without:
        key = options.CAPACITY if options.CAPACITY in section else options.CAPACITY_WEIGHTS
        message = f"{capacity}, divided by {','.join(map(str, weights))}, leaves {without} of {levels} levels without a"
        message += f" place; give {options.CAPACITY} of {sum(weights)} or more, or more even weights"
        yield error((*section.at, key), message)


def _check_in_flight(section: Part) -> Iterator[Finding]:
    least = section.get(_LEAST_IN_FLIGHT, options.DEFAULTS.min_in_flight)
    most = section.get(_MOST_IN_FLIGHT, options.DEFAULTS.most_in_flight)
    if least is not None and most is not None and least > most:
        key = _LEAST_IN_FLIGHT if _LEAST_IN_FLIGHT in section else _MOST_IN_FLIGHT
        message = f"the least, {least}, is above the most, {most}; give max_in_flight.min and .max in order"
        yield error((*section.at, key), message)
    if section.get("max_in_flight") is not None:
        for key in (_LEAST_IN_FLIGHT, _MOST_IN_FLIGHT):
            if key in section:
                message = f"belongs to max_in_flight: {options.ADAPTIVE}; remove it if the number is fixed"
                yield error((*section.at, key), message)


def _warn_of_all(section: Part, prefix: str, needed: str) -> Iterator[Finding]:
    for key in section:
        if key.startswith(prefix):
            yield warning((*section.at, key), f"has no effect without {needed}")


def _check_shared_upstreams(top: Part, document: Document) -> Iterator[Finding]:
    """Report listeners that share the queue of one broker but have different settings for the queue."""
    first: dict[frozenset[Address], tuple[Part, int]] = {}
    for listener in top.parts("listeners"):
        upstream, section = upstreams_of(listener), listener.get(_KEY, top.get(_KEY))
        if upstream and section is not None:
            other, line = first.setdefault(upstream, (section, document.line(listener.at)))
            if other != section:
                message = f"the listener in line {line} has another {_KEY} and the same upstream, whose queue"
                yield error((*listener.at, _KEY), f"{message} they share; give both the same, or false to one")


CHECKS: Final = (_check_sections, _check_shared_upstreams)
