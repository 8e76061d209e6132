"""The brokers' own client quotas: kept and told, and not enforced."""

from typing import TYPE_CHECKING, Final

from tests.simulation.wire import administration
from tests.simulation.wire.common import RequestHeader

if TYPE_CHECKING:
    from tests.simulation.brokers.connection import Connection

QuotaEntity = tuple[tuple[str, str | None], ...]
_INVALID_REQUEST: Final = 42
_KEYS: Final = frozenset(
    ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
     "connection_creation_rate")
)  # fmt: skip


def answer_alter(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Change quotas, each entity all or nothing."""
    request = administration.alter_client_quotas.parse_request(frame)
    quotas = connection.broker.cluster.quotas
    results = []
    for entry in request.entries:
        entity: QuotaEntity = tuple(sorted((part.entity_type, part.name) for part in entry.entity))
        is_valid = bool(entity) and all(operation.key in _KEYS for operation in entry.operations)
        if is_valid and not request.validate_only:
            values = quotas.setdefault(entity, {})
            for operation in entry.operations:
                if operation.remove:
                    values.pop(operation.key, None)
                else:
                    values[operation.key] = operation.value
            if not values:
                del quotas[entity]
        results.append(administration.AlteredEntity(entry.entity, 0 if is_valid else _INVALID_REQUEST))
    connection.answer(administration.alter_client_quotas, header, results)


def answer_describe(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Tell the quotas of all entities that match."""
    request = administration.describe_client_quotas.parse_request(frame)
    entries = []
    for entity, values in connection.broker.cluster.quotas.items():
        parts = dict(entity)
        if request.strict and len(parts) != len(request.components):
            continue
        if all(_matches(component, parts) for component in request.components):
            entries.append(
                administration.QuotaEntry(
                    [administration.EntityPart(*part) for part in entity],
                    [administration.QuotaValue(*value) for value in values.items()],
                )
            )
    connection.answer(administration.describe_client_quotas, header, entries)


def _matches(component: administration.Component, parts: dict[str, str | None]) -> bool:
    if component.entity_type not in parts:
        return False
    name = parts[component.entity_type]
    if component.match_type == administration.ANY:
        return True
    return name == (None if component.match_type == administration.DEFAULT else component.match)
