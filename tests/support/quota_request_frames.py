"""Writes DescribeClientQuotas and AlterClientQuotas requests as clients do, and reads answers to the second."""

from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    Altered,
    AlterRequest,
    AlterResponse,
    DescribeRequest,
    read_request,
)
from kafka_quota_proxy.protocol.codec import read_response, read_whole_head, write_request
from kafka_quota_proxy.proxy.rules.api import Origin, Ticket


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


def quota_ticket(frame: bytes, origin: Origin, owner: object) -> Ticket:
    return Ticket(origin, owner, frame=frame, head=read_whole_head(frame))


def read_alter_request(frame: bytes) -> AlterRequest:
    request = read_request(frame, read_whole_head(frame))
    assert isinstance(request, AlterRequest)
    return request


def read_describe_request(frame: bytes) -> DescribeRequest:
    request = read_request(frame, read_whole_head(frame))
    assert isinstance(request, DescribeRequest)
    return request


def read_alter_response(frame: bytes, api_version: int) -> AlterResponse:
    throttle_time_ms, entries = read_response(frame, ALTER, api_version)
    return AlterResponse(throttle_time_ms, tuple(map(Altered._make, entries)))


def _encoded(client_id: str | None) -> bytes | None:
    return None if client_id is None else client_id.encode("utf-8", "surrogateescape")
