"""Kafka's two functions that find the quota of a client. Tests compare ``proxy.quota.entity`` with them.

They are literal translations of ``quotaMetricTags`` and ``quotaLimit`` in Kafka's
``ClientQuotaManager.DefaultQuotaCallback``. A table maps (user, client-id) to bytes per second. ``DEFAULT`` in an
entity is the default user or client-id, and None means that the entity has no such part.
"""

from collections.abc import Mapping

from kafka_quota_proxy.config.model import DEFAULT, EntityName

Entity = tuple[EntityName, EntityName]
Table = Mapping[Entity, float]

CLIENT_ID_QUOTA_ENABLED = 1
USER_QUOTA_ENABLED = 2
USER_CLIENT_ID_QUOTA_ENABLED = 4


def quota_types(table: Table) -> int:
    """Return a bitmask of the kinds of entities that have a quota in a table."""
    types = 0
    for user, client_id in table:
        if user is not None and client_id is not None:
            types |= USER_CLIENT_ID_QUOTA_ENABLED
        elif user is not None:
            types |= USER_QUOTA_ENABLED
        else:
            types |= CLIENT_ID_QUOTA_ENABLED
    return types


def metric_tags(table: Table, user: str, client_id: str) -> tuple[str, str]:
    """Return the user and client-id of the metric that the requests of a client are charged to."""
    types = quota_types(table)
    if types in (0, CLIENT_ID_QUOTA_ENABLED):
        return "", client_id
    if types == USER_QUOTA_ENABLED:
        return user, ""
    if types == USER_CLIENT_ID_QUOTA_ENABLED:
        return user, client_id
    if (user, client_id) in table:
        return user, client_id
    if (user, DEFAULT) in table:
        return user, client_id
    if (user, None) in table:
        return user, ""
    if (DEFAULT, client_id) in table:
        return user, client_id
    if (DEFAULT, DEFAULT) in table:
        return user, client_id
    if (DEFAULT, None) in table:
        return user, ""
    return "", client_id


def limit_and_entity(table: Table, tags: tuple[str, str]) -> tuple[float, Entity] | None:
    """Return the limit for metric tags, and the entity that has the limit. Returns None if there is no limit."""
    user, client_id = tags
    looked_up: tuple[Entity, ...] = ()
    if user != "" and client_id != "":
        looked_up = ((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))
    elif user != "":
        looked_up = ((user, None), (DEFAULT, None))
    elif client_id != "":
        looked_up = ((None, client_id), (None, DEFAULT))
    for entity in looked_up:
        if entity in table:
            return table[entity], entity
    return None


def level_number(entity: Entity) -> int:
    """Return the level of an entity in Kafka's order of precedence, from 1 to 8."""
    user, client_id = ("name" if isinstance(part, str) else "default" if part is DEFAULT else "none" for part in entity)
    return [
        ("name", "name"),
        ("name", "default"),
        ("name", "none"),
        ("default", "name"),
        ("default", "default"),
        ("default", "none"),
        ("none", "name"),
        ("none", "default"),
    ].index((user, client_id)) + 1
