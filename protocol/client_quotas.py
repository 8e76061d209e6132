"""Reads DescribeClientQuotas (key 48, v0-1) and AlterClientQuotas (key 49, v0-1), and writes their responses.

    DescribeClientQuotas  array of { string entity_type, int8 match_type, string match }, bool strict
    response              int32 throttle_time_ms, int16 error_code, string error_message
                          array of { array of { string entity_type, string entity_name },
                                     array of { string key, float64 value } }
    AlterClientQuotas     array of { array of { string entity_type, string entity_name },
                                     array of { string key, float64 value, bool remove } }
                          bool validate_only
    response              int32 throttle_time_ms
                          array of { int16 error_code, string error_message,
                                     array of { string entity_type, string entity_name } }

In v1 strings and arrays are compact, and each structure ends with tags. ``match``, ``entity_name`` and error messages
may be null. In a DescribeClientQuotas response with an error, the array of entries may be null. All functions take
whole frames. Invalid UTF-8 is kept in a ``str`` by ``surrogateescape``, and is written as the same bytes again.

Source: DescribeClientQuotasRequest.json, AlterClientQuotasRequest.json and their responses in Apache Kafka; KIP-546.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.field_reader import (
    MAX_ELEMENTS,
    FieldReader,
    read_whole_head,
    request_reader,
    response_reader,
)
from kafka_quota_proxy.protocol.field_writer import NULL_ARRAY, FieldWriter, response_writer
from kafka_quota_proxy.protocol.primitives import MAX_STRING_BYTES

DESCRIBE: Final = int(ApiKey.DESCRIBE_CLIENT_QUOTAS)
ALTER: Final = int(ApiKey.ALTER_CLIENT_QUOTAS)

# The values of match_type. In Kafka they are DescribeClientQuotasRequest.MATCH_TYPE_EXACT and so on.
MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2

# The most array elements and tags in a broker's response. An entity has up to two names and some four limits.
MAX_DESCRIBED_ELEMENTS: Final = 2_000_000

# The types and names of an entity, as received. A name of None is the default entity. A type may be listed twice.
EntityParts = tuple[tuple[str, str | None], ...]


class Component(NamedTuple):
    """One condition of a DescribeClientQuotas query, about the entities of one type, such as ``user``.

    The ``match_type`` ``MATCH_SPECIFIED`` accepts every entity of the type, even the default one.
    """

    entity_type: str
    match_type: int
    match: str | None


class DescribeRequest(NamedTuple):
    """A DescribeClientQuotas request, which is a query for the entities that meet all ``components``.

    If ``is_strict``, entities that have further types, without a component in the query, are excluded.
    """

    api_version: int
    correlation_id: int
    components: tuple[Component, ...]
    is_strict: bool


class Described(NamedTuple):
    """One entity in a DescribeClientQuotas response, and its limits as pairs of key and value."""

    entity: EntityParts
    values: tuple[tuple[str, float], ...]


class DescribeResponse(NamedTuple):
    """A DescribeClientQuotas response. ``entries`` may be None if there is an error."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: tuple[Described, ...] | None


class Op(NamedTuple):
    """A change to one limit of an entity (such as a user or a client-id). A ``value`` of None removes the limit."""

    key: str
    value: float | None


class Alteration(NamedTuple):
    """The changes that an AlterClientQuotas request makes to the limits of one entity, such as a user."""

    entity: EntityParts
    ops: tuple[Op, ...]


class AlterRequest(NamedTuple):
    """An AlterClientQuotas request. If ``validate_only``, the changes are only checked and not made."""

    api_version: int
    correlation_id: int
    alterations: tuple[Alteration, ...]
    validate_only: bool


class Altered(NamedTuple):
    """The result for one entity in an AlterClientQuotas response. An error_code of 0 means success."""

    error_code: int
    error_message: str | None
    entity: EntityParts


class AlterResponse(NamedTuple):
    """An AlterClientQuotas response, with one result for each entity."""

    throttle_time_ms: int
    results: tuple[Altered, ...]


def is_client_quotas(api_key: int, api_version: int) -> bool:
    """Whether a request is DescribeClientQuotas or AlterClientQuotas, in a version that this module can read."""
    return api_key in (DESCRIBE, ALTER) and api_version <= HIGHEST_VERSION[api_key]


# -- reading requests


def read_describe_request(frame: bytes, *, most_elements: int = MAX_ELEMENTS) -> DescribeRequest:
    """Read a DescribeClientQuotas request, in a version that this module knows, from a whole frame."""
    head = read_whole_head(frame)
    reader = request_reader(frame, head, most_elements=most_elements)
    components = []
    for _ in range(reader.count()):
        entity_type, match_type = _decoded(reader.string()), reader.int8()
        components.append(Component(entity_type, match_type, _decoded_or_none(reader.nullable_string())))
        reader.skip_tags()
    is_strict = reader.boolean()
    reader.expect_end()
    return DescribeRequest(head.api_version, head.correlation_id, tuple(components), is_strict)


def read_alter_request(frame: bytes, *, most_elements: int = MAX_ELEMENTS) -> AlterRequest:
    """Read an AlterClientQuotas request, in a version that this module knows, from a whole frame."""
    head = read_whole_head(frame)
    reader = request_reader(frame, head, most_elements=most_elements)
    alterations = []
    for _ in range(reader.count()):
        entity = _read_entity(reader)
        ops = tuple(_read_op(reader) for _ in range(reader.count()))
        reader.skip_tags()
        alterations.append(Alteration(entity, ops))
    validate_only = reader.boolean()
    reader.expect_end()
    return AlterRequest(head.api_version, head.correlation_id, tuple(alterations), validate_only)


def _read_op(reader: FieldReader) -> Op:
    key, value = _decoded(reader.string()), reader.float64()
    remove = reader.boolean()
    reader.skip_tags()
    return Op(key, None if remove else value)


# -- reading responses


def read_describe_response(frame: bytes, api_version: int) -> DescribeResponse:
    """Read a DescribeClientQuotas response from a whole frame."""
    reader = response_reader(frame, DESCRIBE, api_version, most_elements=MAX_DESCRIBED_ELEMENTS)
    throttle_time_ms, error_code = reader.int32(), reader.int16()
    error_message = _decoded_or_none(reader.nullable_string())
    is_null = reader.is_null_array()
    entries = tuple(_read_described(reader) for _ in range(reader.count()))
    reader.expect_end()
    return DescribeResponse(throttle_time_ms, error_code, error_message, None if is_null else entries)


def read_alter_response(frame: bytes, api_version: int) -> AlterResponse:
    """Read an AlterClientQuotas response from a whole frame."""
    reader = response_reader(frame, ALTER, api_version)
    throttle_time_ms = reader.int32()
    results = []
    for _ in range(reader.count()):
        error_code, error_message = reader.int16(), _decoded_or_none(reader.nullable_string())
        results.append(Altered(error_code, error_message, _read_entity(reader)))
        reader.skip_tags()
    reader.expect_end()
    return AlterResponse(throttle_time_ms, tuple(results))


def _read_described(reader: FieldReader) -> Described:
    entity, values = _read_entity(reader), []
    for _ in range(reader.count()):
        values.append((_decoded(reader.string()), reader.float64()))
        reader.skip_tags()
    reader.skip_tags()
    return Described(entity, tuple(values))


# -- writing responses


def write_describe_response(response: DescribeResponse, *, correlation_id: int, api_version: int) -> bytes:
    """Encode a DescribeClientQuotas response as a whole frame."""
    writer = response_writer(correlation_id, DESCRIBE, api_version)
    writer.int32(response.throttle_time_ms)
    writer.int16(response.error_code)
    writer.string(_encoded_message(response.error_message))
    entries = response.entries
    writer.count(NULL_ARRAY if entries is None else len(entries))
    for entity, values in entries or ():
        _write_entity(writer, entity)
        writer.count(len(values))
        for key, value in values:
            writer.string(_encoded(key))
            writer.float64(value)
            writer.no_tags()
        writer.no_tags()
    writer.no_tags()
    return writer.frame()


def write_alter_response(response: AlterResponse, *, correlation_id: int, api_version: int) -> bytes:
    """Encode an AlterClientQuotas response as a whole frame."""
    writer = response_writer(correlation_id, ALTER, api_version)
    writer.int32(response.throttle_time_ms)
    writer.count(len(response.results))
    for error_code, error_message, entity in response.results:
        writer.int16(error_code)
        writer.string(_encoded_message(error_message))
        _write_entity(writer, entity)
        writer.no_tags()
    writer.no_tags()
    return writer.frame()


# -- entities and text


def _read_entity(reader: FieldReader) -> EntityParts:
    parts = []
    for _ in range(reader.count()):
        parts.append((_decoded(reader.string()), _decoded_or_none(reader.nullable_string())))
        reader.skip_tags()
    return tuple(parts)


def _write_entity(writer: FieldWriter, entity: EntityParts) -> None:
    writer.count(len(entity))
    for entity_type, entity_name in entity:
        writer.string(_encoded(entity_type))
        writer.string(_encoded(entity_name))
        writer.no_tags()


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _decoded_or_none(data: bytes | None) -> str | None:
    return None if data is None else _decoded(data)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _encoded_message(text: str | None) -> bytes | None:
    """Encode an error message, and cut it off at the maximum length of a Kafka string."""
    data = _encoded(text)
    if data is None or len(data) <= MAX_STRING_BYTES:
        return data
    # If the cut falls inside a character, "ignore" drops the rest of that character.
    return data[:MAX_STRING_BYTES].decode("utf-8", "ignore").encode()
