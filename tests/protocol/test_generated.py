"""Tests every reader on random messages of kio and kafka-python, in each API and version."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from struct import unpack_from
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_quota_proxy.protocol import fetch, node_endpoints, produce, sasl, share_fetch
from kafka_quota_proxy.protocol.api import ApiKey, is_flexible
from kafka_quota_proxy.protocol.header import RequestHead, read_request_head
from kafka_quota_proxy.protocol.primitives import write_uvarint
from kafka_quota_proxy.protocol.throttle_time import front_throttle_time_offset, is_in_front, throttle_time_offset
from tests.protocol.support import kafka_python_messages, kio_messages
from tests.protocol.support.broker_lists import (
    ADVERTISED,
    DESCRIBE_CLUSTER,
    FIND,
    FIND_COORDINATOR,
    METADATA,
    decoded,
    rewritten,
)
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import SEEDS, each_case

LIMIT = 100 * 1024 * 1024
NODE_IDS = (-1, 0, 3, 4, 7, 2**31 - 1)
LISTING = {METADATA: "brokers", DESCRIBE_CLUSTER: "brokers", FIND_COORDINATOR: "coordinators"}
NOT_AVAILABLE = 15


def randoms(*names: object) -> Iterator[Random]:
    """Yield random generators that are the same in each run."""
    for seed in SEEDS:
        yield Random(f"{names} {seed}")  # noqa: S311


def milliseconds(message: Untyped) -> int | None:
    """Return the throttle time of a kio response, or None if it has no such field."""
    duration = getattr(message, "throttle_time", None)
    return None if duration is None else round(duration.total_seconds() * 1_000)


# -- requests


@each_case("api_key, version", kio_messages.api_versions())
def test_requests_of_kio_are_read(api_key: int, version: int) -> None:
    for random in randoms(api_key, version):
        message = kio_messages.generated(kio_messages.request_class(api_key, version), random)
        client_id = random.choice([None, kio_messages.generated_scalar("string", random)])
        tags = _tags(random) if is_flexible(api_key, version) else None
        frame = kio_messages.request_frame(message, correlation_id=-7, client_id=client_id, header_tags=tags)

        head = _read_head(frame, api_key, version, len(kio_messages.encode(message)), client_id, random)

        fields = {name: getattr(message, name, None) for name in ("acks", "min_bytes", "max_bytes", "replica_id")}
        state = getattr(message, "replica_state", None)
        fields["replica_id"] = fields["replica_id"] if state is None else state.replica_id
        fields |= {name: getattr(message, name, None) for name in ("mechanism", "auth_bytes")}
        _check_body(frame, head, fields)


def _tags(random: Random) -> bytes:
    out = write_uvarint(count := random.randrange(4))
    for _ in range(count):
        value = random.randbytes(random.choice([0, 3, 200]))
        out += write_uvarint(random.randrange(2**31)) + write_uvarint(len(value)) + value
    return out


def _read_head(
    frame: bytes, api_key: int, version: int, body_bytes: int, client_id: str | None, random: Random
) -> RequestHead:
    """Check that the head of a frame is read alone, among other frames, and not from a prefix. Return the head."""
    body = len(frame) - body_bytes
    head = RequestHead(len(frame) - 4, api_key, version, -7, (client_id or "").encode(), body)
    assert read_request_head(frame, 0, LIMIT) == head
    assert read_request_head(b"before" + frame + frame, 6, LIMIT) == head._replace(body=body + 6)
    for size in (random.randrange(body), body - 1, body):
        assert read_request_head(frame[:size], 0, LIMIT) == (head if size >= body else None)
    return head


def _check_body(frame: bytes, head: RequestHead, fields: dict[str, Any]) -> None:
    """Compare the fields that are read from a body with ``fields``."""
    end = len(frame)
    match head.api_key:
        case ApiKey.PRODUCE:
            assert produce.read_acks(frame, head.body, head.api_version, end=end) == fields["acks"]
        case ApiKey.FETCH:
            limits = fetch.read_limits(frame, head.body, head.api_version, end=end)
            assert limits is not None
            maximum = fields["max_bytes"] if head.api_version >= 3 else fetch.UNLIMITED_BYTES
            assert (limits.min_bytes, limits.max_bytes) == (fields["min_bytes"], maximum)
            assert fetch.read_replica_id(frame, head.body, end, head.api_version) == fields["replica_id"]
        case ApiKey.SHARE_FETCH:
            limits = share_fetch.read_limits(frame, head.body, head.api_version, end=end)
            assert limits is not None
            assert (limits.min_bytes, limits.max_bytes) == (fields["min_bytes"], fields["max_bytes"])
        case ApiKey.SASL_HANDSHAKE:
            assert sasl.read_handshake(memoryview(frame)[head.body :]) == fields["mechanism"]
        case ApiKey.SASL_AUTHENTICATE:
            token = sasl.read_authenticate(memoryview(frame)[head.body :], head.api_version)
            assert token == fields["auth_bytes"]


# -- responses


@each_case("api_key, version", kio_messages.api_versions())
def test_responses_of_kio_are_read(api_key: int, version: int) -> None:
    for random in randoms(api_key, version):
        message = kio_messages.generated(kio_messages.response_class(api_key, version), random, _no_error(api_key))
        frame = kio_messages.response_frame(message, correlation_id=-7)

        _check_response(frame, api_key, version, milliseconds(message))
        if api_key == ApiKey.SASL_HANDSHAKE:
            assert sasl.read_handshake_error(frame[8:]) == message.error_code
        if api_key == ApiKey.SASL_AUTHENTICATE:
            read = sasl.read_authenticate_response(frame[8:], version)
            assert read[:2] == (message.error_code, message.auth_bytes)
        if version >= node_endpoints.FIRST_VERSION.get(api_key, 0x8000):
            _check_endpoints(frame, api_key, version, message.node_endpoints)


@each_case("cls, version", kafka_python_messages.messages("response"))
def test_responses_of_kafka_python_are_read(cls: Untyped, version: int) -> None:
    for random in randoms(cls.API_KEY, version):
        values = {"error_code": 0} if cls.API_KEY == ApiKey.API_VERSIONS else {}
        message = kafka_python_messages.generated(cls, version, random, values)
        frame = kafka_python_messages.response_frame(message, correlation_id=-7)

        field = cls.fields.get("throttle_time_ms")
        has_field = field is not None and field.for_version_q(version)
        _check_response(frame, cls.API_KEY, version, message.throttle_time_ms if has_field else None)
        if cls.API_KEY == ApiKey.SASL_AUTHENTICATE:
            read = sasl.read_authenticate_response(frame[8:], version)
            assert read[:2] == (message.error_code, message.auth_bytes)


def _no_error(api_key: int) -> dict[str, Any]:
    """Return values that avoid error 35 in ApiVersions, which brokers write in v0 and codecs do not."""
    return {"error_code": ErrorCode.none} if api_key == ApiKey.API_VERSIONS else {}


def _check_response(frame: bytes, api_key: int, version: int, throttle_time_ms: int | None) -> None:
    offset = throttle_time_offset(frame, api_key, version)
    assert (None if offset is None else unpack_from(">i", frame, offset)[0]) == throttle_time_ms
    if is_in_front(api_key):
        expected = -1 if offset is None else offset
        assert front_throttle_time_offset(frame, 0, api_key, version) == expected
        for size in range(len(frame) if expected >= 0 else 0):
            early = front_throttle_time_offset(b"before" + frame[:size], 6, api_key, version)
            assert early == (6 + expected if size >= expected + 4 else None)


def _check_endpoints(frame: bytes, api_key: int, version: int, expected: tuple[Untyped, ...]) -> None:
    found = node_endpoints.find_endpoints(frame, api_key, version)
    read = found.array.brokers if found else ()
    assert [one[:3] for one in read] == [(one.node_id, one.host, one.port) for one in expected]
    hidden = node_endpoints.EndpointHider(api_key, version)
    half = len(frame) // 2
    out = hidden.feed(frame[:half]) + hidden.feed(frame[half:]) + hidden.end()
    assert len(out) == len(frame)
    assert expected or out == frame


# -- lists of brokers


@each_case("api_key, version", [pair for pair in kio_messages.api_versions() if pair[0] in LISTING])
def test_only_the_brokers_of_kio_are_replaced(api_key: int, version: int) -> None:
    for random in randoms(api_key, version):
        kind = kio_messages.response_class(api_key, version)
        message = _with_known_brokers(kio_messages.generated(kind, random), api_key, version, random)
        frame = kio_messages.response_frame(message)
        id_name = "broker_id" if api_key == DESCRIBE_CLUSTER else "node_id"
        is_one = api_key == FIND_COORDINATOR and version < 4
        listed = (message,) if is_one else getattr(message, LISTING[api_key])

        found: Any = FIND[api_key](frame, 0, version)
        brokers = found if api_key == FIND_COORDINATOR else getattr(found, "brokers", found)
        brokers = getattr(brokers, "brokers", brokers)
        assert [one[:3] for one in brokers] == [(getattr(one, id_name), one.host, one.port) for one in listed]

        after = decoded(rewritten(frame, api_key, version), kind)
        if is_one:
            assert after == _as_coordinator(message)
        elif api_key == FIND_COORDINATOR:
            assert after == replace(message, coordinators=tuple(map(_as_coordinator, listed)))
        else:
            is_advertised = getattr(message, "endpoint_type", 1) == 1
            advertised = [one for one in listed if is_advertised and getattr(one, id_name) in ADVERTISED]
            assert after == replace(
                message, brokers=tuple(_as_advertised(one, getattr(one, id_name)) for one in advertised)
            )


def _with_known_brokers(message: Untyped, api_key: int, version: int, random: Random) -> Untyped:
    """Give the listed brokers random node ids, of which some have an advertised address."""
    if api_key == FIND_COORDINATOR and version < 4:
        return replace(message, node_id=random.choice(NODE_IDS))
    name = LISTING[api_key]
    id_name = "broker_id" if api_key == DESCRIBE_CLUSTER else "node_id"
    listed = tuple(replace(one, **{id_name: random.choice(NODE_IDS)}) for one in getattr(message, name))
    values: dict[str, Any] = {name: listed}
    if hasattr(message, "endpoint_type"):
        values["endpoint_type"] = random.choice([1, 2])
    return replace(message, **values)


def _as_advertised(one: Untyped, node_id: int) -> Untyped:
    host, port = ADVERTISED[node_id]
    return replace(one, host=host.decode(), port=port)


def _as_coordinator(one: Untyped) -> Untyped:
    if one.node_id in ADVERTISED:
        return _as_advertised(one, one.node_id)
    error_code = one.error_code if one.node_id == -1 else ErrorCode(NOT_AVAILABLE)
    return replace(one, node_id=-1, host="", port=-1, error_code=error_code)


@each_case(
    "cls, version", [(cls, v) for cls, v in kafka_python_messages.messages("response") if cls.API_KEY in LISTING]
)
def test_only_the_brokers_of_kafka_python_are_replaced(cls: Untyped, version: int) -> None:
    api_key = cls.API_KEY
    for random in randoms(api_key, version):
        is_one = api_key == FIND_COORDINATOR and version < 4
        name = LISTING[api_key]
        id_name = "broker_id" if api_key == DESCRIBE_CLUSTER else "node_id"
        if is_one:
            values: dict[str, Any] = {id_name: random.choice(NODE_IDS)}
        else:
            element = cls.fields[name]
            values = {
                name: [
                    kafka_python_messages.generated_element(
                        element, version, random, {id_name: random.choice(NODE_IDS)}
                    )
                    for _ in range(random.randrange(5))
                ]
            }
        if api_key == DESCRIBE_CLUSTER and version >= 1:
            values["endpoint_type"] = 1
        message = kafka_python_messages.generated(cls, version, random, values)

        after = kafka_python_messages.decoded(
            rewritten(kafka_python_messages.response_frame(message), api_key, version), cls, version
        )

        advertised = [_advertised_address(one, id_name, api_key) for one in ([message] if is_one else values[name])]
        listed = [after] if is_one else getattr(after, name)
        assert [(getattr(one, id_name), one.host, one.port) for one in listed] == [one for one in advertised if one]
        for field in cls.fields:
            if not is_one and field != name and cls.fields[field].for_version_q(version):
                assert getattr(after, field) == getattr(message, field), field


def _advertised_address(one: Untyped, id_name: str, api_key: int) -> tuple[int, str, int] | None:
    node_id = getattr(one, id_name)
    if node_id in ADVERTISED:
        host, port = ADVERTISED[node_id]
        return node_id, host.decode(), port
    return (-1, "", -1) if api_key == FIND_COORDINATOR else None


# -- logins
