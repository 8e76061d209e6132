"""Checks the configuration section ``fair_call_queue`` for faults that concern more than one key.

Examples are a list with too few elements, a priority level whose part of the queue is empty, and a key without effect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from kafka_quota_proxy.config import fair_call_queue as queue
from kafka_quota_proxy.config import fair_call_queue_options as options
from kafka_quota_proxy.config.document import Location
from kafka_quota_proxy.config.identity_function import load_identity_function
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.unvalidated import UncheckedFile, upstreams_of

_KEY: Final = "fair_call_queue"
_IDENTITY_PROVIDER: Final = "identity-provider.impl"
_COSTS: Final = "weighted-cost."
_LEAST_IN_FLIGHT: Final = "max_in_flight.min"
_MOST_IN_FLIGHT: Final = "max_in_flight.max"
_PROVIDERS: Final[Mapping[str, type[Enum]]] = {
    _IDENTITY_PROVIDER: queue.IdentityProvider,
    "cost-provider.impl": queue.CostProvider,
}
_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)


def check_fair_call_queue(file: UncheckedFile) -> None:
    """Report faults that concern several keys of a section ``fair_call_queue``, at the top level or in a listener."""
    for at, section in _sections(file):
        _Section(file, at, section).check()
    _check_shared_upstreams(file)


def check_identity_functions(file: UncheckedFile) -> None:
    """Report each function that is configured as an identity provider (``MODULE:FUNCTION``) but cannot be imported."""
    for at, section in _sections(file):
        try:
            provider = options.parse_identity_provider(section.get(_IDENTITY_PROVIDER))
        except ValueError:  # absent, or a fault that the schema reports
            continue
        try:
            if isinstance(provider, queue.OwnIdentityProvider):
                load_identity_function(provider)
        except ValueError as error:
            file.error((*at, _IDENTITY_PROVIDER), str(error))


def _sections(file: UncheckedFile) -> Iterator[tuple[Location, Mapping[str, object]]]:
    """Yield the location and the mapping of each section ``fair_call_queue``, the top-level section first."""
    places: list[tuple[Location, object]] = [((_KEY,), file.top.get(_KEY))]
    places += [((*at, _KEY), listener.get(_KEY)) for at, listener in file.elements("listeners")]
    yield from ((at, section) for at, section in places if isinstance(section, dict))


def _check_shared_upstreams(file: UncheckedFile) -> None:
    """Report listeners that share the queue of one broker but have different settings for the queue."""
    first: dict[frozenset[Address], tuple[object, int]] = {}
    for at, listener in file.elements("listeners"):
        upstream, section = upstreams_of(listener), listener.get(_KEY, file.top.get(_KEY))
        if upstream and isinstance(section, dict):
            other, line = first.setdefault(upstream, (section, file.line(at)))
            if other != section:
                message = f"the listener in line {line} has another {_KEY} and the same upstream, whose queue"
                file.error((*at, _KEY), f"{message} they share; give both the same, or false to one")


class _Section:
    """Checks one section ``fair_call_queue`` before validation. A value of the wrong type counts as missing."""

    def __init__(self, file: UncheckedFile, at: Location, section: Mapping[str, object]) -> None:
        self._file = file
        self._at = at
        self._section = section
        callqueue = self._choice("callqueue.impl", queue.CallQueueImpl, queue.CallQueueImpl.FAIR)
        self._is_fair = callqueue is queue.CallQueueImpl.FAIR
        implied = queue.SchedulerImpl.DECAY if self._is_fair else queue.SchedulerImpl.DEFAULT
        self._is_decay = self._choice("scheduler.impl", queue.SchedulerImpl, implied) is queue.SchedulerImpl.DECAY

    def check(self) -> None:
        self._warn_of_deprecated()
        levels = self._levels()
        if levels is not None:
            self._check_lists(levels)
        self._check_in_flight()
        for key, choices in _PROVIDERS.items():
            if self._parsed(key, partial(options.parse_providers, choices=choices)) and "," in str(self._section[key]):
                self._warn(key, "has several values, of which only the first counts; write only that one")
        self._warn_of_what_has_no_effect()

    def _warn_of_deprecated(self) -> None:
        """Warn of Hadoop's deprecated keys, which take precedence over their new names."""
        for old, new in options.DEPRECATED.items():
            if self._section.get(old):
                instead = f" and overrides {new}" if new in self._section else ""
                self._warn(old, f"is Hadoop's old name{instead}; write {new}")

    def _levels(self) -> int | None:
        """Return how many priority levels the queue has, or None if the section gives no valid number."""
        (key,) = self._keys_of(options.LEVELS) or (options.LEVELS,)
        levels = self._whole(key, options.DEFAULTS.levels)
        return levels if levels is not None and levels <= options.MAX_LEVELS else None

    def _check_lists(self, levels: int) -> None:
        """Check the lengths of lists. Like Hadoop, ignore lists for a queue or a scheduler that is not in use."""
        each = f"{levels}, one for each level"
        self._check_length(options.CAPACITY_WEIGHTS, options.parse_whole_numbers, levels, "weight", each)
        if self._is_fair:
            self._check_length(options.MULTIPLEXER_WEIGHTS, options.parse_turns, levels, "weight", each)
            self._check_capacity(levels)
        if self._is_decay:
            self._check_length(options.RESPONSE_TIMES, options.parse_durations_ms, levels, "duration", each)
            for key in self._keys_of(options.THRESHOLDS):
                below = f"{levels - 1}, one for each level but the last"
                self._check_length(key, options.parse_per_cents, levels - 1, "threshold", below)

    def _check_length(
        self, key: str, parse: Callable[[object], Sequence[int]], length: int, noun: str, wanted: str
    ) -> None:
        values = self._parsed(key, parse)
        if values and len(values) != length:
            self._error(key, f"has {len(values)} {noun}{'s' if len(values) != 1 else ''}; give {wanted}")

    def _check_capacity(self, levels: int) -> None:
        capacity = self._whole(options.CAPACITY, options.DEFAULTS.capacity)
        weights = self._parsed(options.CAPACITY_WEIGHTS, options.parse_whole_numbers) or (1,) * levels
        if capacity is None or len(weights) != levels:
            return
        without = queue.places(capacity, weights).count(0)
        if without:
            key = options.CAPACITY if options.CAPACITY in self._section else options.CAPACITY_WEIGHTS
            message = f"{capacity}, divided by {','.join(map(str, weights))}, leaves {without} of {levels} levels"
            message += f" without a place; give {options.CAPACITY} of {sum(weights)} or more, or more even weights"
            self._error(key, message)

    def _check_in_flight(self) -> None:
        least = self._whole(_LEAST_IN_FLIGHT, options.DEFAULTS.min_in_flight)
        most = self._whole(_MOST_IN_FLIGHT, options.DEFAULTS.most_in_flight)
        if least is not None and most is not None and least > most:
            key = _LEAST_IN_FLIGHT if _LEAST_IN_FLIGHT in self._section else _MOST_IN_FLIGHT
            message = f"the least, {least}, is above the most, {most}; give max_in_flight.min and .max in order"
            self._error(key, message)
        if self._section.get("max_in_flight", options.ADAPTIVE) != options.ADAPTIVE:
            for key in (_LEAST_IN_FLIGHT, _MOST_IN_FLIGHT):
                if key in self._section:
                    self._error(key, f"belongs to max_in_flight: {options.ADAPTIVE}; remove it if the number is fixed")

    def _warn_of_what_has_no_effect(self) -> None:
        by_response_time = "decay-scheduler.backoff.responsetime.enable"
        if self._section.get(by_response_time) is True and self._section.get("backoff.enable") is not True:
            self._warn(by_response_time, "has no effect without backoff.enable: true")
        cost = self._choice("cost-provider.impl", queue.CostProvider, queue.CostProvider.DEFAULT)
        if cost is not queue.CostProvider.WEIGHTED:
            self._warn_of_all(_COSTS, "cost-provider.impl: weighted")
        if not self._is_fair:
            for key in (options.CAPACITY_WEIGHTS, options.MULTIPLEXER_WEIGHTS):
                self._warn_of_all(key, "callqueue.impl: fair")
        if not self._is_decay:
            self._warn_of_all("decay-scheduler.", "scheduler.impl: decay")

    def _warn_of_all(self, prefix: str, needed: str) -> None:
        for key in self._section:
            if key.startswith(prefix):
                self._warn(key, f"has no effect without {needed}")

    def _keys_of(self, key: str) -> list[str]:
        """Return the name under which the section sets ``key``: ``key`` itself, or its deprecated name.

        Hadoop accepts both. The result is a list with this name. It is empty if the section does not set the key.
        """
        old = next(old for old, new in options.DEPRECATED.items() if new == key)
        return [old] if self._section.get(old) else [key] if key in self._section else []

    def _parsed(self, key: str, parse: Callable[[object], _T]) -> _T | None:
        """Return the value of ``key`` as converted by ``parse``, or None if the value is missing or not valid."""
        with suppress(KeyError, ValueError):
            return parse(self._section[key])
        return None

    def _choice(self, key: str, choices: type[_E], default: _E) -> _E | None:
        if key not in self._section:
            return default
        return self._parsed(key, lambda value: options.parse_providers(value, choices))

    def _whole(self, key: str, default: int) -> int | None:
        value = self._section.get(key, default)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None

    def _error(self, key: str, message: str) -> None:
        self._file.error((*self._at, key), message)

    def _warn(self, key: str, message: str) -> None:
        self._file.warn((*self._at, key), message)
