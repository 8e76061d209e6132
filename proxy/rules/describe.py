"""Finds the rules that match the filter of a DescribeClientQuotas request, as Kafka does, or the error in the filter.

Source: ``ClientQuotasImage.describe`` and ``KafkaApis.handleDescribeClientQuotasRequest`` in Apache Kafka.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from typing import Final

from kafka_quota_proxy.config.addresses import canonical
from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.protocol.client_quotas import (
    MATCH_DEFAULT,
    MATCH_EXACT,
    MATCH_SPECIFIED,
    Component,
    Described,
    DescribeRequest,
    DescribeResponse,
)
from kafka_quota_proxy.proxy.rules.errors import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from kafka_quota_proxy.proxy.rules.model import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    USER,
    Entity,
    StoredRule,
    names_of,
)

_ANY: Final = object()
_NOT_NAMED: Final = object()
# The number of entities to sort in one call. It takes some milliseconds, in which no other thread runs.
_AT_ONCE: Final = 2_000


class _FilterError(Exception):
    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


def describe(rules: Mapping[Entity, StoredRule], request: DescribeRequest) -> DescribeResponse:
    """Return the response to a DescribeClientQuotas request that Kafka would send if it had these rules.

    Each component of the filter is about one entity type, such as user. A strict filter does not match entities that
    have other types as well. Without components, a strict filter matches nothing, and any other filter matches all
    entities. The entities are sorted by user, client-id and address, and the limits of each by key. Kafka defines no
    order.
    """
    try:
        wanted = _wanted(request.components)
    except _FilterError as error:
        return DescribeResponse(0, error.error_code, str(error), None)
    found = _found(rules, wanted, request.is_strict)
    # Kafka's error message is "" if there is no error.
    return DescribeResponse(0, NONE, "", tuple(_described(entity, rules[entity]) for entity in _sorted(found)))


def refuse_describe(error_code: int, message: str) -> DescribeResponse:
    """Return the response to a DescribeClientQuotas request that is refused with this error."""
    return DescribeResponse(0, error_code, message, None)


def _wanted(components: Sequence[Component]) -> dict[str, object]:
    """Return what a filter requires of each entity type: a name, DEFAULT, or ``_ANY`` for any name.

    Raises ``_FilterError`` for the first error that Kafka would find.
    """
    wanted: dict[str, object] = {}
    for entity_type, match_type, match in components:
        if not entity_type:
            raise _FilterError(INVALID_REQUEST, "Invalid empty entity type.")
        if entity_type in wanted:
            message = f"Entity type {entity_type} cannot appear more than once in the filter."
            raise _FilterError(INVALID_REQUEST, message)
        if entity_type not in ENTITY_TYPES:
            raise _FilterError(UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
        wanted[entity_type] = _match(match_type, match)
    if IP in wanted and not wanted.keys().isdisjoint((USER, CLIENT_ID)):
        raise _FilterError(
            INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )
    ip = wanted.get(IP)
    if isinstance(ip, str):
        wanted[IP] = canonical(ip)
    return wanted


def _match(match_type: int, match: str | None) -> object:
    if match_type == MATCH_EXACT:
        if match is None:
            message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise _FilterError(INVALID_REQUEST, message)
        return match
    named = {MATCH_DEFAULT: ("DEFAULT", DEFAULT), MATCH_SPECIFIED: ("SPECIFIED", _ANY)}
    if match_type not in named:
        raise _FilterError(INVALID_REQUEST, f"Unknown match type {match_type}")
    name, what = named[match_type]
    if match is not None:
        message = f"Request specified MATCH_TYPE_{name}, but also specified a match string."
        raise _FilterError(INVALID_REQUEST, message)
    return what


def _found(rules: Mapping[Entity, StoredRule], wanted: Mapping[str, object], is_strict: bool) -> Sequence[Entity]:
    """Return the entities that match the filter. A filter that can match only one entity takes a single lookup."""
    parts = tuple(wanted.get(entity_type, None if is_strict else _NOT_NAMED) for entity_type in ENTITY_TYPES)
    if _ANY not in parts and _NOT_NAMED not in parts:
        entity = Entity(*(part if isinstance(part, str) or part is DEFAULT else None for part in parts))
        return (entity,) if entity in rules else ()
    (has_user, user), (has_client_id, client_id), (has_ip, ip) = ((part is not _NOT_NAMED, part) for part in parts)
    # This is one expression without calls, because there may be a hundred thousand entities.
    return [
        entity
        for entity in rules
        if (not has_user or (entity[0] is not None if user is _ANY else entity[0] == user))
        and (not has_client_id or (entity[1] is not None if client_id is _ANY else entity[1] == client_id))
        and (not has_ip or (entity[2] is not None if ip is _ANY else entity[2] == ip))
    ]


def _sorted(entities: Sequence[Entity]) -> Iterable[Entity]:
    parts = (sorted(entities[at : at + _AT_ONCE], key=_rank) for at in range(0, len(entities), _AT_ONCE))
    return merge(*parts, key=_rank)


def _rank(entity: Entity) -> tuple[tuple[bool, str], ...]:
    """Return what an entity is sorted by. Where it has no name it comes first, and then that of the default entity."""
    return tuple([(name is not None, name if isinstance(name, str) else "") for name in entity])


def _described(entity: Entity, rule: StoredRule) -> Described:
    return Described(tuple(names_of(entity).items()), tuple(sorted(rule.limits.items())))
