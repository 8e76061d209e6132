"""Writes DescribeClientQuotas and AlterClientQuotas requests as clients do, and reads answers to the second."""

from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    Altered,
    AlterRequest,
    AlterResponse,
    DescribeRequest,
)
from kafka_quota_proxy.protocol.codec import read_response, write_request


def write_describe_request(request: DescribeRequest, *, client_id: str | None) -> bytes:
    values = (request.components, request.is_strict)
    return write_request(DESCRIBE, request.api_version, request.correlation_id, _encoded(client_id), values)


def write_alter_request(request: AlterRequest, *, client_id: str | None) -> bytes:
    entries = [
        # For a removal Kafka's own clients write 0.
        (entity, [(key, 0.0 if value is None else value, value is None) for key, value in ops])
        for entity, ops in request.alterations
    ]
    values = (entries, request.validate_only)
    return write_request(ALTER, request.api_version, request.correlation_id, _encoded(client_id), values)


def read_alter_response(frame: bytes, api_version: int) -> AlterResponse:
    throttle_time_ms, entries = read_response(frame, ALTER, api_version)
    return AlterResponse(throttle_time_ms, tuple(map(Altered._make, entries)))


def _encoded(client_id: str | None) -> bytes | None:
    return None if client_id is None else client_id.encode("utf-8", "surrogateescape")
