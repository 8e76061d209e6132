"""Valid requests and responses of every API and version.

kio writes the messages, and kafka-python writes those of versions that Kafka 4.0 removed. For a version that neither
knows, the newest known message is used with the other version number.
"""

from functools import cache
from struct import pack
from typing import Final

from kio.schema.errors import ErrorCode

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.node_endpoints import FIRST_VERSION
from tests.protocol.support import kafka_python_messages, kio_messages
from tests.protocol.support.kio_messages import Untyped
from tests.support.frames import (
    fetch_request,
    other_request,
    other_response,
    produce_request,
    produce_response,
)

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 0, 1, 3, 10, 60
# The node id and port of each broker in responses. Some node ids have an advertised address. Clients must not see the
# own host of a broker.
BROKERS_OWN_HOST: Final = "brokers-own-host"
NODES: Final = ((0, 9092), (3, 65_535), (4, 9093), (2**31 - 1, 1))
CLIENT_IDS: Final = ("etl", "web", "", "ü" * 40)
VARIANTS: Final = 4
UNKNOWN_API: Final = 1_000

_KIO: Final = frozenset(kio_messages.api_versions())
_KAFKA_PYTHON: Final = {
    kind: {(cls.API_KEY, version): cls for cls, version in kafka_python_messages.messages(kind)}
    for kind in ("request", "response")
}
# APIs that the proxy reads, rewrites or charges are the most frequent.
API_KEYS: Final = (
    *(int(key) for key in ApiKey),
    *(PRODUCE, FETCH) * 16,
    *(METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, int(ApiKey.API_VERSIONS)) * 5,
    *(int(ApiKey.SHARE_FETCH), int(ApiKey.SHARE_ACKNOWLEDGE)) * 5,
    UNKNOWN_API,
)


def versions(api_key: int) -> int:
    """Return the number of versions to try, which is two more than the known versions."""
    return HIGHEST_VERSION.get(api_key, 0) + 3


@cache
def request(api_key: int, version: int, variant: int, client_id: int) -> bytes:
    """Return a request with correlation_id 0.

    Args:
        api_key: The API, which may be unknown.
        version: The version, which may be unknown.
        variant: A number from 0 to ``VARIANTS`` - 1 that chooses the lengths of arrays and the optional fields.
        client_id: An index in ``CLIENT_IDS``.
    """
    name = CLIENT_IDS[client_id]
    known = _nearest(api_key, version, "request")
    if known is None:
        if api_key == PRODUCE:
            return produce_request(0, version=version, client_id=name, acks=variant % 2, size_bytes=160)
        if api_key == FETCH:
            return fetch_request(0, version=version, client_id=name, replica_id=variant - 2)
        return other_request(0, api_key=api_key, version=version, client_id=name)
    if (api_key, known) in _KIO:
        cls = kio_messages.request_class(api_key, known)
        message = kio_messages.example(
            cls, _request_values(cls, api_key, known, variant), array_length=variant, tagged=variant > 1
        )
        frame = kio_messages.request_frame(message, correlation_id=0, client_id=name)
    else:
        cls = _KAFKA_PYTHON["request"][api_key, known]
        old = kafka_python_messages.example(cls, known, array_length=variant)
        frame = kafka_python_messages.request_frame(old, correlation_id=0, client_id=name)
    return frame[:6] + pack(">h", version) + frame[8:]


@cache
def response(api_key: int, version: int, variant: int) -> bytes:
    """Return a response with correlation_id 0. The arguments are those of ``request``."""
    if api_key == ApiKey.API_VERSIONS and variant == VARIANTS - 1 and version:
        version = 0  # a broker's response to an unknown version
    known = _nearest(api_key, version, "response")
    if known is None:
        return produce_response(0, version=version) if api_key == PRODUCE else other_response(0)
    if (api_key, known) in _KIO:
        cls = kio_messages.response_class(api_key, known)
        values = _response_values(cls, api_key, known, variant)
        message = kio_messages.example(cls, values, array_length=variant, tagged=variant > 1)
        return kio_messages.response_frame(message, correlation_id=0)
    cls = _KAFKA_PYTHON["response"][api_key, known]
    old = kafka_python_messages.example(cls, known, array_length=variant)
    return kafka_python_messages.response_frame(old, correlation_id=0)


def _nearest(api_key: int, version: int, kind: str) -> int | None:
    """Return the highest version up to ``version`` that a codec writes, or None if no codec writes any."""
    for known in range(version, -1, -1):
        if (api_key, known) in _KIO or (api_key, known) in _KAFKA_PYTHON[kind]:
            return known
    return None


def _request_values(cls: Untyped, api_key: int, version: int, variant: int) -> dict[str, object]:
    if api_key == PRODUCE:
        return {"acks": (0, 1, -1, 1)[variant], "transactional_id": "tx" if variant == 3 else None}
    if api_key == FETCH:
        values: dict[str, object] = {"min_bytes": 1, "max_bytes": 50 * 1024 * 1024}
        if version < 15:
            values["replica_id"] = 1 if variant == 2 else -1
        else:
            state = cls.__dataclass_fields__["replica_state"].type
            values["replica_state"] = state(replica_id=1, replica_epoch=1) if variant == 2 else state()
        return values
    return {}


def _response_values(cls: Untyped, api_key: int, version: int, variant: int) -> dict[str, object]:
    """Return field values of a response: brokers if the response lists brokers, and an error code for ApiVersions."""
    if api_key == ApiKey.API_VERSIONS:
        return {"error_code": ErrorCode.unsupported_version if variant == VARIANTS - 1 else ErrorCode.none}
    nodes = NODES * 3 if variant == VARIANTS - 1 else NODES[: variant + 1]
    if api_key == FIND_COORDINATOR and version < 4:
        return {"node_id": nodes[-1][0], "host": BROKERS_OWN_HOST, "port": nodes[-1][1]}
    fields = {METADATA: "brokers", DESCRIBE_CLUSTER: "brokers", FIND_COORDINATOR: "coordinators"}
    # Node_endpoints of this API belong to requests between controllers, not from clients.
    fields |= dict.fromkeys(FIRST_VERSION, "node_endpoints")
    name = fields.get(api_key)
    if name is None or name not in cls.__annotations__:
        return {}
    kind = cls.__annotations__[name].__args__[0]
    node_id = "broker_id" if "broker_id" in kind.__annotations__ else "node_id"
    if name == "node_endpoints" and variant < 2:
        return {name: ()}
    values = [{node_id: number, "host": BROKERS_OWN_HOST, "port": port} for number, port in nodes]
    found: dict[str, object] = {name: tuple(kio_messages.example(kind, value) for value in values)}
    if "endpoint_type" in cls.__annotations__:
        found["endpoint_type"] = 1 + variant % 2
    return found
