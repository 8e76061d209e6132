"""Writes DescribeClientQuotas and AlterClientQuotas requests as clients do."""

from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    AlterRequest,
    DescribeRequest,
    _encoded,
    _write_entity,
)
from kafka_quota_proxy.protocol.field_writer import request_writer


def write_describe_request(request: DescribeRequest, *, client_id: str | None) -> bytes:
    writer = request_writer(DESCRIBE, request.api_version, request.correlation_id, _encoded(client_id))
    writer.count(len(request.components))
    for component in request.components:
        writer.string(_encoded(component.entity_type))
        writer.int8(component.match_type)
        writer.string(_encoded(component.match))
        writer.no_tags()
    writer.boolean(request.is_strict)
    writer.no_tags()
    return writer.frame()


def write_alter_request(request: AlterRequest, *, client_id: str | None) -> bytes:
    writer = request_writer(ALTER, request.api_version, request.correlation_id, _encoded(client_id))
    writer.count(len(request.alterations))
    for entity, ops in request.alterations:
        _write_entity(writer, entity)
        writer.count(len(ops))
        for key, value in ops:
            writer.string(_encoded(key))
            writer.float64(0.0 if value is None else value)  # for a removal Kafka's own clients write 0
            writer.boolean(value is None)
            writer.no_tags()
        writer.no_tags()
    writer.boolean(request.validate_only)
    writer.no_tags()
    return writer.frame()
