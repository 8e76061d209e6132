"""Tests the table of messages against the frames of kio and kafka-python."""

from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from kafka_quota_proxy.protocol import codec
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.messages import MESSAGES, Field
from tests.protocol.support.codecs import Codec, KafkaPython, every_message
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import SEEDS, each_case

EVERY_MESSAGE = pytest.mark.parametrize("other", every_message(), ids=repr)


def values_of(other: Codec, entity: Untyped, fields: tuple[Field, ...], version: int) -> tuple[Any, ...]:
    """Return the values of a message of another codec, as this codec has them."""
    return tuple(
        value_of(other, entity, field, version) if field.first <= version <= field.last else None for field in fields
    )


def value_of(other: Codec, entity: Untyped, field: Field, version: int) -> object:
    if field.kind in ("offset", "tags"):
        return None
    if field.name in ("leader_id", "leader_epoch") and not hasattr(entity, field.name):
        entity = entity.current_leader
    # kio has times as timedelta and datetime, and their names have no unit.
    has_unit = isinstance(other, KafkaPython) or hasattr(entity, field.name)
    value: Any = other.get(entity, field.name if has_unit else field.name.removesuffix("_ms"))
    if field.kind == "(" and value is not None:
        return tuple((*[None] * (len(field.fields) - 1), value_in(one, field.fields[-1])) for one in value)
    if field.fields and value is not None:
        return tuple(values_of(other, one, field.fields, version) for one in value)
    return value_in(value, field)


def value_in(value: Any, field: Field) -> object:  # noqa: ANN401
    if field.kind == "[]" and value is not None:
        return tuple(value)
    if field.kind == "utf8" and value is not None:
        return value.encode()
    if field.kind == "uuid":
        return (value or UUID(int=0)).bytes
    if value is None and field.kind == "int64":
        return -1  # kio's for a time
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1_000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000)
    return value.value if isinstance(value, ErrorCode) else value


def without_offsets(values: tuple[Any, ...], fields: tuple[Field, ...]) -> tuple[Any, ...]:
    return tuple(
        None
        if field.kind == "offset"
        else tuple(without_offsets(one, field.fields) for one in value)
        if field.fields and value is not None
        else bytes(value)
        if isinstance(value, memoryview)
        else value
        for field, value in zip(fields, values, strict=True)
    )


@EVERY_MESSAGE
@each_case("seed", SEEDS)
def test_a_message_is_what_another_codec_writes(other: Codec, seed: int) -> None:
    message = other.generated(Random(seed))  # noqa: S311
    frame = other.frame(message, correlation_id=-3)
    api_key, version, is_response = other.api_key, other.version, other.kind == "response"
    fields = MESSAGES[api_key, other.kind]

    if is_response:
        read = codec.read_response(frame, api_key, version)
        written = codec.write_response(api_key, version, -3, read)
    else:
        head = codec.read_whole_head(frame)
        read = codec.read_request(frame, head)
        assert (head.api_key, head.api_version, head.correlation_id) == (api_key, version, -3)
        written = codec.write_request(api_key, version, -3, None, read)

    assert without_offsets(read, fields) == values_of(other, message, fields, version)
    if not is_response or api_key not in (ApiKey.PRODUCE, ApiKey.CREATE_TOPICS):  # which have tagged fields
        assert written == frame
