"""Defines the types for entities, stored rules and their changes, and the names that Kafka's APIs use for entities."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.addresses import canonical, usual_ip
from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.config.quota_kinds import KafkaType, QuotaKind
from kafka_quota_proxy.config.terms import NO_TERMS, Terms
from kafka_quota_proxy.protocol.client_quotas import EntityParts

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)


class Entity(NamedTuple):
    """A user, a client-id, both of them, or an IP address. Fields that are not part of the entity are None.

    A field of ``DEFAULT`` stands for a default entity, such as the default user. ``ip`` is in its usual form
    (``config.addresses``).
    """

    user: EntityName = None
    client_id: EntityName = None
    ip: EntityName = None

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name}" for kind, name in zip(ENTITY_TYPES, self, strict=True) if name is not None)


class StoredRule(NamedTuple):
    """The limits of an entity, by Kafka's keys such as ``producer_byte_rate``, and the terms of these limits.

    Terms, such as an expiry, say when and how the limits apply. Kafka's own quotas do not have them.
    """

    limits: Mapping[str, float]
    terms: Terms = NO_TERMS


class Change(NamedTuple):
    """A change of an entity's stored rule. ``rule`` is the new rule, or None if the rule is removed."""

    entity: Entity
    rule: StoredRule | None


def apply(rules: dict[Entity, StoredRule], changes: Iterable[Change]) -> None:
    """Make ``changes`` to the dict ``rules`` itself: set or remove the rule of each changed entity."""
    for entity, rule in changes:
        if rule is None:
            rules.pop(entity, None)
        else:
            rules[entity] = rule


def differences(before: Mapping[Entity, StoredRule], after: Mapping[Entity, StoredRule]) -> tuple[Change, ...]:
    """Return the changes that turn the rules ``before`` into ``after``, one change for each entity that differs."""
    gone = (Change(entity, None) for entity in before.keys() - after.keys())
    come = (Change(entity, rule) for entity, rule in after.items() if before.get(entity) != rule)
    return (*gone, *come)


_KAFKA_TYPES: Final = {kind: kind.spec.kafka_type for kind in QuotaKind}
# The keys that Kafka has (QuotaConfig.userAndClientQuotaConfigs and ipConfigs).
CLIENT_KEYS: Final = {kind.key: of for kind, of in _KAFKA_TYPES.items() if of and not kind.spec.limits_ips}
IP_KEYS: Final = {kind.key: of for kind, of in _KAFKA_TYPES.items() if of and kind.spec.limits_ips}


def keys_of(entity: Entity) -> Mapping[str, KafkaType]:
    """Return the keys of limits that Kafka's API can set for this entity, and the type of each key's value."""
    return CLIENT_KEYS if entity.ip is None else IP_KEYS


def entity_of(names: Mapping[str, str | None]) -> Entity:
    """Return the entity with these names, which are by entity type. A name of None stands for the default entity.

    An IP address may have any form. If it is no address, such as a host name, the caller must refuse the entity.
    """
    found: dict[str, EntityName] = {}
    for entity_type, name in names.items():
        found[entity_type] = DEFAULT if name is None else name
    ip = found.get(IP)
    return Entity(found.get(USER), found.get(CLIENT_ID), canonical(ip) if isinstance(ip, str) else ip)


def usual_names(parts: EntityParts) -> dict[str, str | None]:
    """Return the names of an entity by type, an address in its usual form. If a type comes twice, the last counts."""
    names = dict(parts)
    ip = names.get(IP)
    return names if ip is None else names | {IP: canonical(ip)}


def is_known(names: Mapping[str, str | None]) -> bool:
    """Return whether names, which are by entity type, make an entity that may have a rule here.

    Host names, for example, do not.
    """
    ip = names.get(IP)
    return (
        bool(names)
        and names.keys() <= set(ENTITY_TYPES)
        and not (IP in names and len(names) > 1)
        and (ip is None or usual_ip(ip) is not None)
    )


def names_of(entity: Entity) -> dict[str, str | None]:
    """Return the names of an entity, by entity type. The name of a default entity is None."""
    return {
        entity_type: name if isinstance(name, str) else None
        for entity_type, name in zip(ENTITY_TYPES, entity, strict=True)
        if name is not None
    }
