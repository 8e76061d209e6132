"""Reads DescribeClientQuotas (key 48, v0-1) and AlterClientQuotas (key 49, v0-1), and writes their responses.

Both take whole frames. Invalid UTF-8 is kept in a ``str`` by ``surrogateescape``, and is written as the same bytes
again. In a DescribeClientQuotas response with an error, the array of entries may be null.

Source: KIP-546.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol import codec
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.codec import MAX_ELEMENTS
from kafka_quota_proxy.protocol.header import RequestHead

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


def read_request(
    frame: bytes, head: RequestHead, *, most_elements: int = MAX_ELEMENTS
) -> DescribeRequest | AlterRequest:
    """Read a request of either API, in a version that this module knows. Its header was already read.

    Raises:
        ProtocolError: If the request is malformed.
    """
    parts, flag = codec.read_request(frame, head, most_elements=most_elements)
    if head.api_key == DESCRIBE:
        return DescribeRequest(head.api_version, head.correlation_id, tuple(map(Component._make, parts)), flag)
    alterations = []
    for entity, changes in parts:
        ops = [Op(key, None if remove else value) for key, value, remove in changes]
        alterations.append(Alteration(entity, tuple(ops)))
    return AlterRequest(head.api_version, head.correlation_id, tuple(alterations), flag)


def read_describe_response(frame: bytes, api_version: int) -> DescribeResponse:
    """Read a DescribeClientQuotas response from a whole frame."""
    response = DescribeResponse._make(
        codec.read_response(frame, DESCRIBE, api_version, most_elements=MAX_DESCRIBED_ELEMENTS)
    )
    entries = response.entries
    return response._replace(entries=None if entries is None else tuple(map(Described._make, entries)))


def write_response(response: DescribeResponse | AlterResponse, *, correlation_id: int, api_version: int) -> bytes:
    """Encode a response as a whole frame."""
    api_key = DESCRIBE if isinstance(response, DescribeResponse) else ALTER
    return codec.write_response(api_key, api_version, correlation_id, response)
