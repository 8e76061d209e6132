"""Whom a rule is for, and what it says: as Kafka's APIs have it, and as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.config.quota_kinds import KafkaType, QuotaKind
from kafka_quota_proxy.config.terms import NO_TERMS, Terms
from kafka_quota_proxy.protocol.client_quotas import EntityParts
from kafka_quota_proxy.proxy.client_quotas.rules.hash_order import hash_order

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)


class Entity(NamedTuple):
    """One or two of these, an address alone; None is not part of it. Their order is that of ``ENTITY_TYPES``."""

    user: EntityName = None
    client_id: EntityName = None
    ip: EntityName = None

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name}" for kind, name in zip(ENTITY_TYPES, self, strict=True) if name is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRule:
    """What an entity may use: Kafka's keys, at least one, each above 0; and the terms, of which Kafka knows none."""

    limits: Mapping[str, float]
    terms: Terms = NO_TERMS


_KAFKA_TYPES: Final = {kind: kind.spec.kafka_type for kind in QuotaKind}
# Kafka's own keys: QuotaConfig.userAndClientQuotaConfigs and ipConfigs.
CLIENT_KEYS: Final = {kind.key: of for kind, of in _KAFKA_TYPES.items() if of and not kind.spec.limits_ips}
IP_KEYS: Final = {kind.key: of for kind, of in _KAFKA_TYPES.items() if of and kind.spec.limits_ips}


def keys_of(entity: Entity) -> Mapping[str, KafkaType]:
    """Return the keys that a rule of this entity may have."""
    return CLIENT_KEYS if entity.ip is None else IP_KEYS


def names_in_order(parts: EntityParts) -> dict[str, str | None]:
    """Return the name of each type, the last where it comes twice, in the order that Kafka looks at them."""
    names = dict(parts)
    return {entity_type: names[entity_type] for entity_type in hash_order(names, len(parts))}


def entity_of(names: Mapping[str, str | None]) -> Entity:
    """Return the entity of these names; null is the default. Types are of ``ENTITY_TYPES``."""
    user, client_id, ip = (
        (DEFAULT if names[entity_type] is None else names[entity_type]) if entity_type in names else None
        for entity_type in ENTITY_TYPES
    )
    return Entity(user, client_id, ip)


def names_of(entity: Entity) -> dict[str, str | None]:
    """Return the name of each type that the entity has; null is the default."""
    return {
        entity_type: name if isinstance(name, str) else None
        for entity_type, name in zip(ENTITY_TYPES, entity, strict=True)
        if name is not None
    }
