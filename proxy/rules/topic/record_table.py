"""Keeps the latest valid record for each entity and quota key of a quota topic. No I/O, no clock."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.quota_record import TERMS, RecordFault, Setting
from kafka_quota_proxy.proxy.rules.model import Entity

# The table keeps this value in place of terms that were not understood.
UNKNOWN_TERMS: Final = object()


class TopicRecord(NamedTuple):
    """One record of a quota topic. ``record`` is its decoded content, or the reason why it could not be decoded."""

    offset: int
    record: Setting | RecordFault


class EntityLimits(NamedTuple):
    """The limits that the topic sets for an entity.

    Attributes:
        limits: The limits by quota key.
        offset: The offset of the latest record that contributed to the limits.
        terms: The conditions of the limits, such as an expiry, or None. ``UNKNOWN_TERMS`` if they were not understood.
    """

    limits: Mapping[str, float]
    offset: int
    terms: object = None


class TableValue(NamedTuple):
    """The value of a quota key of an entity, and the ``offset`` of the record that set it."""

    value: object
    offset: int


class RecordTable:
    """Contains the latest value of each quota key of each entity, for at most ``most`` entities."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entities: dict[Entity, dict[str, TableValue]] = {}
        self._deleted: set[tuple[Entity, str]] = set()

    def __len__(self) -> int:
        return len(self._entities)

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._entities)

    def put(self, entity: Entity, key: str, value: object, offset: int) -> bool:
        """Set the value of a key, or delete the key if the value is empty. Return False if the table is full."""
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

    def mark_unknown_terms(self, entity: Entity, offset: int) -> bool:
        """Note that an entity's latest terms (expiry, schedule, ramp) could not be decoded.

        If earlier terms of the entity are known, they remain valid, and the result is False. Otherwise the result is
        True: the entity's limits must not apply, because the new terms may say so.
        """
        terms = self.value(entity, TERMS)
        if terms is None:
            self.put(entity, TERMS, UNKNOWN_TERMS, offset)
        return terms is None or terms.value is UNKNOWN_TERMS

    def value(self, entity: Entity, key: str) -> TableValue | None:
        """Return the value of an entity's quota key and the offset of its record, or None if the key has no value."""
        return self._entities.get(entity, {}).get(key)

    def has_only(self, entity: Entity, key: str) -> bool:
        """Return whether ``key`` is the only quota key of an entity that has a value."""
        return self._entities.get(entity, {}).keys() == {key}

    def limits(self, entity: Entity) -> EntityLimits | None:
        """Return the limits of an entity, or None if it has none."""
        values = self._entities.get(entity)
        if values is None:
            return None
        limits: dict[str, float] = {key: values[key].value for key in sorted(values) if key != TERMS}  # type: ignore[misc]
        if not limits:
            return None
        terms = values[TERMS].value if TERMS in values else None
        return EntityLimits(limits, max(one.offset for one in values.values()), terms)

    # -- for the new table while the topic is read again; ``before`` is the table of the previous reading

    def remember_deletion(self, before: "RecordTable", entity: Entity, key: str) -> None:
        """Note that the topic deletes a quota key that had a value when the topic was read before (in ``before``).

        ``carry_over`` then does not copy this value.
        """
        if before.value(entity, key) is not None:
            self._deleted.add((entity, key))

    def carry_over(self, before: "RecordTable", entity: Entity, key: str) -> None:
        """Copy the value of a key from ``before``, the previous table. Call this for a record that was not understood.

        Nothing is copied if the topic has deleted the key, or if this table has a value for it.
        """
        last = before.value(entity, key)
        if last is not None and (entity, key) not in self._deleted and self.value(entity, key) is None:
            self.put(entity, key, last.value, last.offset)

    def forget_deletions(self) -> None:
        """Discard what ``remember_deletion`` has noted. Call this once the topic has been read to its end."""
        self._deleted.clear()
