"""Checks the configuration section ``fair_call_queue`` for faults that concern more than one key.

Examples are a list with too few elements, and a priority level whose part of the queue is empty.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from kafka_quota_proxy.config import fair_call_queue as queue
from kafka_quota_proxy.config import fair_call_queue_options as options
from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.sections import Part

_BY_RESPONSE_TIME: Final = "decay-scheduler.backoff.responsetime.enable"


def _check_section(top: Part, _: Document) -> Iterator[Finding]:
    section = top.find("fair_call_queue")
    if section is None:
        return
    levels = section.get(options.LEVELS, options.DEFAULTS.levels)
    if levels is not None:
        yield from _check_length(section, options.CAPACITY_WEIGHTS, levels, "weight")
        yield from _check_length(section, options.MULTIPLEXER_WEIGHTS, levels, "weight")
        yield from _check_length(section, options.RESPONSE_TIMES, levels, "duration")
        yield from _check_length(section, options.THRESHOLDS, levels - 1, "threshold", " but the last")
        if section.get("callqueue.impl") is not queue.CallQueueImpl.FIFO:
            yield from _check_capacity(section, levels)
    thresholds = section.get(options.THRESHOLDS) or []
    if None not in thresholds and any(high <= low for low, high in pairwise(thresholds)):
        message = f"must ascend, each above the one before, not {thresholds}"
        yield error((*section.at, options.THRESHOLDS), message)
    if section.get(_BY_RESPONSE_TIME) and not section.get("backoff.enable"):
        yield warning((*section.at, _BY_RESPONSE_TIME), "has no effect without backoff.enable: true")


def _check_length(section: Part, key: str, length: int, noun: str, but: str = "") -> Iterator[Finding]:
    values = section.get(key)
    if values is not None and len(values) != length:
        given = f"{len(values)} {noun}{'s' if len(values) != 1 else ''}"
        yield error((*section.at, key), f"has {given}; give {length}, one for each level{but}")


def _check_capacity(section: Part, levels: int) -> Iterator[Finding]:
    capacity = section.get(options.CAPACITY, options.DEFAULTS.capacity)
    weights = section.get(options.CAPACITY_WEIGHTS, [1] * levels) or []
    if capacity is None or None in weights or len(weights) != levels:
        return
    without = queue.places(capacity, weights).count(0)
    if without:
        key = options.CAPACITY if options.CAPACITY in section else options.CAPACITY_WEIGHTS
        message = f"{capacity}, divided by {','.join(map(str, weights))}, leaves {without} of {levels} levels without a"
        message += f" place; give {options.CAPACITY} of {sum(weights)} or more, or more even weights"
        yield error((*section.at, key), message)


CHECKS: Final = (_check_section,)
