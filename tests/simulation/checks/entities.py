"""Kafka's eight levels of client quotas, written down once more from the specification.

Which limit a client has follows in two steps, and both matter. The *tags* say which bucket is charged. The *limit* is
then looked up for the tags. An empty client-id, or rules of one kind only, make the two differ.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.checks.settings import Settings, number

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange

DEFAULT: Final = "<default>"
PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
OF_REQUESTS: Final = ("request_percentage", "request_rate")
MUTATIONS: Final = "controller_mutation_rate"
# The quota of bytes that each API is charged to, by its key.
KIND_OF: Final = {0: PRODUCE, 1: FETCH, 78: FETCH}
KINDS: Final = (PRODUCE, FETCH, *OF_REQUESTS, MUTATIONS)

# An entity of a rule: a name, DEFAULT, or None where the rule has no such part.
Entity = tuple[str | None, str | None]
Tags = tuple[str, str]


class Limit(NamedTuple):
    """A limit of a bucket, and how it is applied. ``rate`` is per second."""

    rate: float
    shaping: str
    enforcement: str


class Rules:
    """The rules of one kind of quota."""

    __slots__ = ("_kinds_of_entity", "_limits")

    def __init__(self, quotas: Iterable[Mapping[str, object]], kind: str, settings: Settings) -> None:
        self._limits: dict[Entity, Limit] = {}
        for rule in quotas:
            value = rule.get(kind)
            if value is None:
                continue
            shaping = str(rule.get("shaping") or settings.shaping)
            enforcement = str(rule.get("enforcement") or settings.enforcement)
            self._limits[_part(rule, "user"), _part(rule, "client-id")] = Limit(number(value), shaping, enforcement)
        self._kinds_of_entity = {(user is not None, client is not None) for user, client in self._limits}

    def tags(self, user: str, client_id: str) -> Tags:
        """Return the tags that identify the bucket of a client."""
        kinds = self._kinds_of_entity
        if kinds <= {(False, True)}:
            return "", client_id
        if kinds == {(True, False)}:
            return user, ""
        if kinds == {(True, True)}:
            return user, client_id
        limits = self._limits
        if (user, client_id) in limits or (user, DEFAULT) in limits:
            return user, client_id
        if (user, None) in limits:
            return user, ""
        if (DEFAULT, client_id) in limits or (DEFAULT, DEFAULT) in limits:
            return user, client_id
        if (DEFAULT, None) in limits:
            return user, ""
        return "", client_id

    def limit(self, tags: Tags) -> Limit | None:
        """Return the limit of the bucket with these tags, or None."""
        user, client_id = tags
        looked_up: tuple[Entity, ...] = ()
        if user and client_id:
            looked_up = ((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))
        elif user:
            looked_up = ((user, None), (DEFAULT, None))
        elif client_id:
            looked_up = ((None, client_id), (None, DEFAULT))
        for entity in looked_up:
            if entity in self._limits:
                return self._limits[entity]
        return None


def _part(rule: Mapping[str, object], key: str) -> str | None:
    value = rule.get(key)
    if value is None and key == "client-id":
        value = rule.get("client_id")
    return None if value is None else str(value)


class RuleBook:
    """The rules of all kinds, now and earlier."""

    __slots__ = ("_history",)

    def __init__(self) -> None:
        self._history: list[tuple[float, dict[str, list[Rules]]]] = []
        self.change(((),), Settings(), -inf)

    def change(self, possible: Iterable[Iterable[Mapping[str, object]]], settings: Settings, now_ms: float) -> None:
        """Note that one of these sets of rules is in force from now on."""
        sets = [tuple(quotas) for quotas in possible]
        rules = {kind: [Rules(quotas, kind, settings) for quotas in sets] for kind in KINDS}
        self._history.append((now_ms, rules))

    def limits(
        self, exchange: "Exchange", kinds: Iterable[str] = KINDS, *, since_ms: float | None = None
    ) -> list[Limit]:
        """Return the limits of a client that may have been enforced since it sent a request, or since ``since_ms``."""
        user, client_id, _ = exchange.entity
        since_ms = exchange.sent_ms if since_ms is None else since_ms
        found = []
        for kind in kinds:
            for from_ms, rules in reversed(self._history):
                for one in rules[kind]:
                    limit = one.limit(one.tags(user, client_id))
                    if limit is not None and limit.enforcement != "observe":
                        found.append(limit)
                if from_ms <= since_ms:
                    break
        return found
