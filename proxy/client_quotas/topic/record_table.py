"""The records of a quota topic, by entity, each as it was last understood. No I/O, no clock.

An entity has a rule from a publisher, settings from proxies, or both; then its settings do not hold.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from kafka_quota_proxy.config.quota_record import TERMS, QuotaRecord, RecordFault

# The key of a rule as a whole, among the keys of settings.
RULE: Final = ""
# The value of terms that were not understood.
UNKNOWN_TERMS: Final = object()
# The bound on different faults that the log names.
MOST_NAMED: Final = 100

E = TypeVar("E")


class TopicRecord(NamedTuple):
    """A record of the topic."""

    offset: int
    timestamp_ms: int  # Unix time
    record: QuotaRecord | RecordFault


class Notice(NamedTuple):
    """A message for the log."""

    is_warning: bool
    text: str


class Notices:
    """Messages for the log. Iterating takes them."""

    def __init__(self) -> None:
        self._waiting: deque[Notice] = deque()

    def __iter__(self) -> Iterator[Notice]:
        while self._waiting:
            yield self._waiting.popleft()

    def add(self, text: str, *, is_warning: bool = True) -> None:
        """Add a message."""
        self._waiting.append(Notice(is_warning, text))

    def add_once(self, named: set[E], about: E, text: str, *, others: str = "only counted") -> None:
        """Add a message unless ``named``, which is bounded, has ``about``; ``others``: how the log treats the rest."""
        if about not in named and len(named) < MOST_NAMED:
            named.add(about)
            more = f"; others are {others} from now on" if len(named) == MOST_NAMED else ""
            self.add(f"{text}{more}")


class EntityLimits(NamedTuple):
    """The limits of an entity.

    Attributes:
        limits: The limits by key.
        offset: The offset of the latest record.
        terms: The value of the terms, or ``UNKNOWN_TERMS``; None: there are none.
        is_published: Whether they are a publisher's rule.
    """

    limits: Mapping[str, float]
    offset: int
    terms: object = None
    is_published: bool = False


class TableValue(NamedTuple):
    """The limits of a rule, or the value of a setting."""

    value: object
    offset: int


class RecordTable(Generic[E]):
    """Rules and settings of at most ``most`` entities."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entities: dict[E, dict[str, TableValue]] = {}
        self._deleted: set[tuple[E, str]] = set()

    def __len__(self) -> int:
        return len(self._entities)

    def __iter__(self) -> Iterator[E]:
        return iter(self._entities)

    def put(self, entity: E, key: str, value: object, offset: int) -> bool:
        """Set the value of a key; None or no limits deletes it. Return whether there was room."""
        values = self._entities.get(entity)
        if not value:
            if values is not None and values.pop(key, None) is not None and not values:
                del self._entities[entity]
            return True
        if values is None:
            if len(self._entities) >= self._most:
                return False
            values = self._entities[entity] = {}
        values[key] = TableValue(value, offset)
        return True

    def mark_unknown_terms(self, entity: E, offset: int) -> bool:
        """Note terms that were not understood; return whether no earlier terms hold.

        Without its terms a limit means something else: one that is only observed would be enforced.
        """
        terms = self.value(entity, TERMS)
        if terms is None:
            self.put(entity, TERMS, UNKNOWN_TERMS, offset)
        return terms is None or terms.value is UNKNOWN_TERMS

    def value(self, entity: E, key: str) -> TableValue | None:
        """Return the value of a key; None: it has none."""
        return self._entities.get(entity, {}).get(key)

    def has_only(self, entity: E, key: str) -> bool:
        """Return whether an entity has this key and no other."""
        return self._entities.get(entity, {}).keys() == {key}

    def limits(self, entity: E) -> EntityLimits | None:
        """Return the limits of an entity; None: it has none. Terms alone limit nothing."""
        values = self._entities.get(entity)
        if values is None:
            return None
        rule = values.get(RULE)
        if rule is not None:
            return EntityLimits(rule.value, rule.offset, is_published=True)  # type: ignore[arg-type]
        limits: dict[str, float] = {key: values[key].value for key in sorted(values) if key != TERMS}  # type: ignore[misc]
        if not limits:
            return None
        terms = values[TERMS].value if TERMS in values else None
        return EntityLimits(limits, max(one.offset for one in values.values()), terms)

    # -- while the topic is read again, until its end is reached; ``before`` is the table of the first reading

    def remember_deletion(self, before: "RecordTable[E]", entity: E, key: str) -> None:
        """Keep ``carry_over`` from restoring a key that the topic has deleted."""
        if before.value(entity, key) is not None:
            self._deleted.add((entity, key))

    def carry_over(self, before: "RecordTable[E]", entity: E, key: str) -> None:
        """Keep the last value of a key that was understood, if compaction has removed it from the topic."""
        last = before.value(entity, key)
        if last is not None and (entity, key) not in self._deleted and self.value(entity, key) is None:
            self.put(entity, key, last.value, last.offset)

    def forget_deletions(self) -> None:
        """Forget deletions: the end is reached."""
        self._deleted.clear()
