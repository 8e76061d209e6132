"""What a quota topic has of each entity: its rule, and its settings, each as it was understood last. No I/O, no clock.

An entity that has a rule is its publisher's, as one of the file is the file's: the settings beside it do not hold.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from kafka_quota_proxy.config.quota_record import TERMS

# The key of a rule as a whole, beside those of settings.
RULE: Final = ""
# What an entity has in the place of terms that were not understood.
UNKNOWN_TERMS: Final = object()

E = TypeVar("E")


class EntityLimits(NamedTuple):
    """What holds for an entity.

    ``offset``: of the latest record of it; ``terms``: on which, as they were put, or ``UNKNOWN_TERMS``;
    ``is_published``: it is a rule.
    """

    limits: Mapping[str, float]
    offset: int
    terms: object = None
    is_published: bool = False


class Held(NamedTuple):
    """What a record says: the limits of a rule, or the value of a setting."""

    value: object
    offset: int


class RecordTable(Generic[E]):
    """Rules and settings by entity. ``most``: of how many entities."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entities: dict[E, dict[str, Held]] = {}
        self._deleted: set[tuple[E, str]] = set()

    def __len__(self) -> int:
        return len(self._entities)

    def __iter__(self) -> Iterator[E]:
        return iter(self._entities)

    def put(self, entity: E, key: str, value: object, offset: int) -> bool:
        """Take what a record says, nothing (None, or no limits) deletes. Return whether there was room for it."""
        held = self._entities.get(entity)
        if not value:
            if held is not None and held.pop(key, None) is not None and not held:
                del self._entities[entity]
            return True
        if held is None:
            if len(self._entities) >= self._most:
                return False
            held = self._entities[entity] = {}
        held[key] = Held(value, offset)
        return True

    def hold_back(self, entity: E, offset: int) -> bool:
        """Take it that the newest terms were not understood; return whether there are no older ones that hold.

        Its limits are others without them: what is to be observed would be enforced.
        """
        held = self.held(entity, TERMS)
        if held is None:
            self.put(entity, TERMS, UNKNOWN_TERMS, offset)
        return held is None or held.value is UNKNOWN_TERMS

    def held(self, entity: E, key: str) -> Held | None:
        """Return what a key of an entity has; None: nothing."""
        return self._entities.get(entity, {}).get(key)

    def has_only(self, entity: E, key: str) -> bool:
        """Return whether an entity has this key and nothing else."""
        return self._entities.get(entity, {}).keys() == {key}

    def limits(self, entity: E) -> EntityLimits | None:
        """Return what holds for an entity; None: nothing. Terms alone are nothing."""
        held = self._entities.get(entity)
        if held is None:
            return None
        rule = held.get(RULE)
        if rule is not None:
            return EntityLimits(rule.value, rule.offset, is_published=True)  # type: ignore[arg-type]
        limits: dict[str, float] = {key: held[key].value for key in sorted(held) if key != TERMS}  # type: ignore[misc]
        if not limits:
            return None
        terms = held[TERMS].value if TERMS in held else None
        return EntityLimits(limits, max(one.offset for one in held.values()), terms)

    # -- a second reading; the first table holds until its end is reached

    def remember_deletion(self, before: "RecordTable[E]", entity: E, key: str) -> None:
        """Have garbage behind a tombstone bring back nothing. Of what there never was a tombstone needs no place."""
        if before.held(entity, key) is not None:
            self._deleted.add((entity, key))

    def carry_over(self, before: "RecordTable[E]", entity: E, key: str) -> None:
        """Keep what a key had when it was understood last, where the topic itself has it no more."""
        held = before.held(entity, key)
        if held is not None and (entity, key) not in self._deleted and self.held(entity, key) is None:
            self.put(entity, key, held.value, held.offset)

    def forget_deletions(self) -> None:
        """Take it that the end is reached."""
        self._deleted.clear()
