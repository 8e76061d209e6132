"""DescribeClientQuotas (key 48, v0-1) and AlterClientQuotas (key 49, v0-1): who may use how much, asked and changed.

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

In v1 strings and arrays are compact, and each of the structures ends with tags. ``match``, ``entity_name`` and messages
may be null, and so may the entries of a DescribeClientQuotas response, where it has an error. Frames are whole. Bytes
that are no UTF-8 are lone surrogates in what was read (``surrogateescape``), and the same bytes again where written.

Source: DescribeClientQuotasRequest.json, AlterClientQuotasRequest.json and their responses in Apache Kafka; KIP-546.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible
from kafka_quota_proxy.protocol.field_reader import (
    MAX_ELEMENTS,
    NO_TAGS,
    FieldReader,
    framed,
    read_whole_head,
    response_header,
    response_reader,
    written_count,
    written_nullable,
)
from kafka_quota_proxy.protocol.primitives import MAX_STRING_BYTES, write_string

DESCRIBE: Final = int(ApiKey.DESCRIBE_CLIENT_QUOTAS)
ALTER: Final = int(ApiKey.ALTER_CLIENT_QUOTAS)

# What a component's match_type may be; DescribeClientQuotasRequest.MATCH_TYPE_ of Kafka.
MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2

# Of a broker's answer: more entities than anyone has, each of two names and four limits.
MAX_DESCRIBED_ELEMENTS: Final = 2_000_000

# Types and names as they came; a null name is the default entity. A type may come twice.
EntityParts = tuple[tuple[str, str | None], ...]

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_FLOAT64: Final = Struct(">d")
_REQUEST_HEAD: Final = Struct(">hhi")
_NULL_ARRAY: Final = -1


class Component(NamedTuple):
    """What an entity has to have, or with ``MATCH_SPECIFIED`` any name of its type."""

    entity_type: str
    match_type: int
    match: str | None


class DescribeRequest(NamedTuple):
    """Which entities are asked for. ``is_strict``: those that have no types but the components'."""

    api_version: int
    correlation_id: int
    components: tuple[Component, ...]
    is_strict: bool


class Described(NamedTuple):
    """An entity and its limits."""

    entity: EntityParts
    values: tuple[tuple[str, float], ...]


class DescribeResponse(NamedTuple):
    """The entities that match; ``entries`` is None where there is an error."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: tuple[Described, ...] | None


class Op(NamedTuple):
    """One limit to be set; None: to be removed."""

    key: str
    value: float | None


class Alteration(NamedTuple):
    """What is to become of one entity."""

    entity: EntityParts
    ops: tuple[Op, ...]


class AlterRequest(NamedTuple):
    """What is to be changed, or with ``validate_only`` might be."""

    api_version: int
    correlation_id: int
    alterations: tuple[Alteration, ...]
    validate_only: bool


class Altered(NamedTuple):
    """What became of one entity; an error_code of 0 is none."""

    error_code: int
    error_message: str | None
    entity: EntityParts


class AlterResponse(NamedTuple):
    """What became of each."""

    throttle_time_ms: int
    results: tuple[Altered, ...]


def is_client_quotas(api_key: int, api_version: int) -> bool:
    """Whether it is a request of one of the two, of a version known here."""
    return api_key in (DESCRIBE, ALTER) and api_version <= HIGHEST_VERSION[api_key]


# -- requests, read


def read_describe_request(frame: bytes, *, most_elements: int = MAX_ELEMENTS) -> DescribeRequest:
    """Read a whole DescribeClientQuotas request of a version known here, of so many elements at the most.

    Raises:
        ProtocolError: The frame is not such a request, or has too many elements.
    """
    head = read_whole_head(frame)
    walk = FieldReader(
        frame, head.body, is_flexible=is_flexible(DESCRIBE, head.api_version), most_elements=most_elements
    )
    components = tuple(_read_component(walk) for _ in range(walk.count()))
    is_strict = walk.boolean()
    walk.end()
    return DescribeRequest(head.api_version, head.correlation_id, components, is_strict)


def read_alter_request(frame: bytes, *, most_elements: int = MAX_ELEMENTS) -> AlterRequest:
    """Read a whole AlterClientQuotas request of a version known here, of so many elements at the most.

    Raises:
        ProtocolError: The frame is not such a request, or has too many elements.
    """
    head = read_whole_head(frame)
    walk = FieldReader(frame, head.body, is_flexible=is_flexible(ALTER, head.api_version), most_elements=most_elements)
    alterations = []
    for _ in range(walk.count()):
        entity = _read_entity(walk)
        ops = tuple(_read_op(walk) for _ in range(walk.count()))
        walk.tags()
        alterations.append(Alteration(entity, ops))
    validate_only = walk.boolean()
    walk.end()
    return AlterRequest(head.api_version, head.correlation_id, tuple(alterations), validate_only)


# -- requests, written


def write_describe_request(request: DescribeRequest, *, client_id: str | None) -> bytes:
    """Return the whole frame of a request."""
    flexible = is_flexible(DESCRIBE, request.api_version)
    parts = _request_header(DESCRIBE, request.api_version, request.correlation_id, client_id)
    parts.append(written_count(len(request.components), is_flexible=flexible))
    for component in request.components:
        parts += (
            _string(component.entity_type, flexible),
            _INT8.pack(component.match_type),
            _nullable(component.match, flexible),
            _tags(flexible),
        )
    return framed([*parts, _boolean(request.is_strict), _tags(flexible)])


def write_alter_request(request: AlterRequest, *, client_id: str | None) -> bytes:
    """Return the whole frame of a request."""
    flexible = is_flexible(ALTER, request.api_version)
    parts = _request_header(ALTER, request.api_version, request.correlation_id, client_id)
    parts.append(written_count(len(request.alterations), is_flexible=flexible))
    for entity, ops in request.alterations:
        parts += _written_entity(entity, flexible)
        parts.append(written_count(len(ops), is_flexible=flexible))
        for key, value in ops:
            # The value that Kafka's own clients write beside a removal.
            number = _FLOAT64.pack(0.0 if value is None else value)
            parts += (_string(key, flexible), number, _boolean(value is None), _tags(flexible))
        parts.append(_tags(flexible))
    return framed([*parts, _boolean(request.validate_only), _tags(flexible)])


# -- responses, read


def read_describe_response(frame: bytes, api_version: int) -> DescribeResponse:
    """Read a whole response to a request of ``write_describe_request``.

    Raises:
        ProtocolError: The frame is not such a response, or has too many elements.
    """
    walk = response_reader(frame, DESCRIBE, api_version, most_elements=MAX_DESCRIBED_ELEMENTS)
    throttle_time_ms, error_code = walk.int32(), walk.int16()
    error_message = _nullable_text(walk.nullable_string())
    entries = None
    if walk.is_null_array():
        walk.count()
    else:
        entries = tuple(_read_described(walk) for _ in range(walk.count()))
    walk.end()
    return DescribeResponse(throttle_time_ms, error_code, error_message, entries)


def read_alter_response(frame: bytes, api_version: int) -> AlterResponse:
    """Read a whole response to a request of ``write_alter_request``.

    Raises:
        ProtocolError: The frame is not such a response, or has too many elements.
    """
    walk = response_reader(frame, ALTER, api_version)
    throttle_time_ms = walk.int32()
    results = []
    for _ in range(walk.count()):
        error_code, error_message = walk.int16(), _nullable_text(walk.nullable_string())
        results.append(Altered(error_code, error_message, _read_entity(walk)))
        walk.tags()
    walk.end()
    return AlterResponse(throttle_time_ms, tuple(results))


# -- responses, written


def write_describe_response(response: DescribeResponse, *, correlation_id: int, api_version: int) -> bytes:
    """Return the whole frame of a response; the request's correlation_id and version."""
    flexible = is_flexible(DESCRIBE, api_version)
    parts = [
        response_header(correlation_id, DESCRIBE, api_version),
        _INT32.pack(response.throttle_time_ms),
        _INT16.pack(response.error_code),
        _message(response.error_message, flexible),
    ]
    entries = response.entries
    parts.append(written_count(_NULL_ARRAY if entries is None else len(entries), is_flexible=flexible))
    for entity, values in entries or ():
        parts += _written_entity(entity, flexible)
        parts.append(written_count(len(values), is_flexible=flexible))
        for key, value in values:
            parts += (_string(key, flexible), _FLOAT64.pack(value), _tags(flexible))
        parts.append(_tags(flexible))
    return framed([*parts, _tags(flexible)])


def write_alter_response(response: AlterResponse, *, correlation_id: int, api_version: int) -> bytes:
    """Return the whole frame of a response; the request's correlation_id and version."""
    flexible = is_flexible(ALTER, api_version)
    parts = [
        response_header(correlation_id, ALTER, api_version),
        _INT32.pack(response.throttle_time_ms),
        written_count(len(response.results), is_flexible=flexible),
    ]
    for error_code, error_message, entity in response.results:
        parts += (_INT16.pack(error_code), _message(error_message, flexible))
        parts += _written_entity(entity, flexible)
        parts.append(_tags(flexible))
    return framed([*parts, _tags(flexible)])


# -- parts


def _read_component(walk: FieldReader) -> Component:
    entity_type = _text(walk.string())
    match_type = _INT8.unpack(walk.take(1))[0]
    match = _nullable_text(walk.nullable_string())
    walk.tags()
    return Component(entity_type, match_type, match)


def _read_entity(walk: FieldReader) -> EntityParts:
    parts = []
    for _ in range(walk.count()):
        parts.append((_text(walk.string()), _nullable_text(walk.nullable_string())))
        walk.tags()
    return tuple(parts)


def _read_op(walk: FieldReader) -> Op:
    key, value = _text(walk.string()), _FLOAT64.unpack(walk.take(8))[0]
    remove = walk.boolean()
    walk.tags()
    return Op(key, None if remove else value)


def _read_described(walk: FieldReader) -> Described:
    entity, values = _read_entity(walk), []
    for _ in range(walk.count()):
        values.append((_text(walk.string()), _FLOAT64.unpack(walk.take(8))[0]))
        walk.tags()
    walk.tags()
    return Described(entity, tuple(values))


def _written_entity(entity: Sequence[tuple[str, str | None]], flexible: bool) -> Iterable[bytes]:
    yield written_count(len(entity), is_flexible=flexible)
    for entity_type, entity_name in entity:
        yield _string(entity_type, flexible)
        yield _nullable(entity_name, flexible)
        yield _tags(flexible)


def _request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> list[bytes]:
    # The header's own string is never compact.
    name = _nullable(client_id, flexible=False)
    return [_REQUEST_HEAD.pack(api_key, api_version, correlation_id), name, _tags(is_flexible(api_key, api_version))]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _nullable_text(data: bytes | None) -> str | None:
    return None if data is None else _text(data)


def _string(text: str, flexible: bool) -> bytes:
    return write_string(text.encode("utf-8", "surrogateescape"), is_compact=flexible)


def _nullable(text: str | None, flexible: bool) -> bytes:
    data = None if text is None else text.encode("utf-8", "surrogateescape")
    return written_nullable(data, is_flexible=flexible)


def _message(text: str | None, flexible: bool) -> bytes:
    """Encode a message; one that quotes a name of 32 KB is cut, where Kafka cannot answer at all."""
    if text is not None and len(text) > MAX_STRING_BYTES // 4:
        # Between two characters, each of which has four bytes at most.
        text = text.encode("utf-8", "surrogateescape")[:MAX_STRING_BYTES].decode("utf-8", "ignore")
    return _nullable(text, flexible)


def _boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def _tags(flexible: bool) -> bytes:
    return NO_TAGS if flexible else b""
