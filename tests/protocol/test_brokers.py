"""Brokers in Metadata, DescribeCluster and FindCoordinator responses, as kio writes and reads them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from protocol import describe_cluster, find_coordinator, metadata
from protocol.brokers import MAX_FRONT_BYTES, Told
from protocol.errors import HeadTooLong, ProtocolError
from tests.protocol.support import kio_messages
from tests.protocol.support.kio_messages import Untyped

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
TOLD: Final[Told] = {0: (b"proxy", 9193), 3: (b"2001:db8::1", 9196), 7: ("prüf.example".encode(), 65_535)}
COORDINATOR_NOT_AVAILABLE = 15


def _versions(api_key: int) -> list[int]:
    return [version for key, version in kio_messages.api_versions() if key == api_key]


def _decoded(frame: bytes, kind: Untyped) -> Untyped:
    """Read a whole frame with kio; nothing may be left of it."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, header_bytes = entity_reader(kind.__header_schema__)(frame, 4)
    message, body_bytes = entity_reader(kind)(frame, 4 + header_bytes)
    assert 4 + header_bytes + body_bytes == len(frame)
    return message


def _rewritten(frame: bytes, api_key: int, version: int, told: Told = TOLD) -> bytes:
    """Rewrite a whole frame, with bytes of others before and behind."""
    data, start = b"before" + frame + b"behind", 6
    if api_key == METADATA:
        brokers = metadata.find_brokers(data, start, version)
        assert brokers
        return metadata.replace_brokers(data, start, brokers, told) + data[brokers.end : -6]
    if api_key == DESCRIBE_CLUSTER:
        endpoints = describe_cluster.find_endpoints(data, start, version)
        assert endpoints
        return describe_cluster.replace_endpoints(data, start, endpoints, told) + data[endpoints.brokers.end : -6]
    coordinators = find_coordinator.find_coordinators(data, start, version)
    assert coordinators is not None
    return find_coordinator.replace_coordinators(data, start, version, coordinators, told)


def _broker(kind: Untyped, node_id: int, host: str, port: int) -> Untyped:
    names = kind.__annotations__
    values = {"broker_id" if "broker_id" in names else "node_id": node_id, "host": host, "port": port}
    return kio_messages.example(kind, values)


_NODES = st.lists(
    st.tuples(st.sampled_from([-1, 0, 3, 4, 7, 2**31 - 1]), st.text(max_size=300), st.integers(-1, 2**31 - 1)),
    max_size=6,
)


def _told(broker: Untyped, name: str) -> Untyped:
    host, port = TOLD[getattr(broker, name)]
    return replace(broker, host=host.decode(), port=port)


@pytest.mark.parametrize("version", _versions(METADATA))
@given(nodes=_NODES, topics=st.integers(0, 3))
def test_metadata_names_other_brokers_and_is_else_the_same(
    version: int, nodes: list[tuple[int, str, int]], topics: int
) -> None:
    kind = kio_messages.response_class(METADATA, version)
    broker_kind = kind.__annotations__["brokers"].__args__[0]
    brokers = tuple(_broker(broker_kind, *node) for node in nodes)
    message = kio_messages.example(kind, {"brokers": brokers}, array_length=topics)

    after = _decoded(_rewritten(kio_messages.response_frame(message), METADATA, version), kind)

    expected = tuple(_told(broker, "node_id") for broker in brokers if broker.node_id in TOLD)
    assert after == replace(message, brokers=expected)


@pytest.mark.parametrize("version", _versions(DESCRIBE_CLUSTER))
@pytest.mark.parametrize("endpoint_type", [1, 2])
@given(nodes=_NODES)
def test_describe_cluster_names_other_brokers_and_no_controller(
    version: int, endpoint_type: int, nodes: list[tuple[int, str, int]]
) -> None:
    kind = kio_messages.response_class(DESCRIBE_CLUSTER, version)
    broker_kind = kind.__annotations__["brokers"].__args__[0]
    brokers = tuple(_broker(broker_kind, *node) for node in nodes)
    values = {"brokers": brokers} | ({"endpoint_type": endpoint_type} if version >= 1 else {})
    message = kio_messages.example(kind, values)

    after = _decoded(_rewritten(kio_messages.response_frame(message), DESCRIBE_CLUSTER, version), kind)

    listed = brokers if endpoint_type == 1 or version == 0 else ()
    expected = tuple(_told(broker, "broker_id") for broker in listed if broker.broker_id in TOLD)
    assert after == replace(message, brokers=expected)


@pytest.mark.parametrize("version", [version for version in _versions(FIND_COORDINATOR) if version < 4])
@pytest.mark.parametrize(("node_id", "host"), [(3, "broker3"), (4, "broker4"), (-1, "")])
def test_a_coordinator_is_another_or_not_available(version: int, node_id: int, host: str) -> None:
    kind = kio_messages.response_class(FIND_COORDINATOR, version)
    message = kio_messages.example(kind, {"node_id": node_id, "host": host, "port": 9092 if host else -1})

    after = _decoded(_rewritten(kio_messages.response_frame(message), FIND_COORDINATOR, version), kind)

    if node_id in TOLD:
        assert after == _told(message, "node_id")
    else:
        error_code = ErrorCode(COORDINATOR_NOT_AVAILABLE) if host else message.error_code
        nobody = {"node_id": -1, "host": "", "port": -1, "error_code": error_code}
        assert after == replace(message, **nobody)


@pytest.mark.parametrize("version", [version for version in _versions(FIND_COORDINATOR) if version >= 4])
@given(nodes=_NODES)
def test_each_of_many_coordinators_is_another_or_not_available(version: int, nodes: list[tuple[int, str, int]]) -> None:
    kind = kio_messages.response_class(FIND_COORDINATOR, version)
    coordinator_kind = kind.__annotations__["coordinators"].__args__[0]
    coordinators = tuple(_broker(coordinator_kind, *node) for node in nodes)
    message = kio_messages.example(kind, {"coordinators": coordinators})

    after = _decoded(_rewritten(kio_messages.response_frame(message), FIND_COORDINATOR, version), kind)

    for before, now in zip(coordinators, after.coordinators, strict=True):
        if before.node_id in TOLD:
            assert now == _told(before, "node_id")
        else:
            error_code = before.error_code if before.node_id == -1 else ErrorCode(COORDINATOR_NOT_AVAILABLE)
            nobody = {"node_id": -1, "host": "", "port": -1, "error_code": error_code}
            assert now == replace(before, **nobody)


@pytest.mark.parametrize(
    ("api_key", "version"), [(key, v) for key in (METADATA, DESCRIBE_CLUSTER, FIND_COORDINATOR) for v in _versions(key)]
)
def test_unknown_tags_stay(api_key: int, version: int) -> None:
    """Each struct's empty tag section gets a tag, and the front of the response has as many of them afterwards."""
    message = kio_messages.example(kio_messages.response_class(api_key, version), array_length=1)
    frame = kio_messages.response_frame(message)
    tagged = frame[:-1] + b"\x01\x63\x03new"
    if type(message).__flexible__:
        tagged = (len(tagged) - 4).to_bytes(4, "big") + tagged[4:]
        assert _rewritten(tagged, api_key, version).endswith(b"\x01\x63\x03new")


_FIND: dict[int, Callable[[bytes, int, int], object]] = {
    METADATA: metadata.find_brokers,
    DESCRIBE_CLUSTER: describe_cluster.find_endpoints,
    FIND_COORDINATOR: find_coordinator.find_coordinators,
}


@pytest.mark.parametrize(("api_key", "version"), [(3, 0), (3, 8), (3, 13), (60, 0), (60, 2), (10, 0), (10, 3), (10, 6)])
def test_more_is_asked_for_until_the_brokers_have_come(api_key: int, version: int) -> None:
    versions = _versions(api_key)
    message = kio_messages.example(kio_messages.response_class(api_key, max(version, min(versions))), array_length=5)
    frame = kio_messages.response_frame(message)
    version = max(version, min(versions))

    answers = [_FIND[api_key](frame[:size], 0, version) for size in range(len(frame) + 1)]

    first = next(size for size, answer in enumerate(answers) if answer is not None)
    assert None not in answers[first:]
    assert answers[-1] == answers[first]
    assert first == len(frame) if api_key == FIND_COORDINATOR else first < len(frame)


@given(st.sampled_from(sorted(_FIND)), st.integers(0, 14), st.binary(max_size=200), st.booleans())
def test_any_bytes_give_an_answer_or_a_protocol_error(api_key: int, version: int, body: bytes, is_whole: bool) -> None:
    size_bytes = len(body) if is_whole else len(body) + 9
    frame = size_bytes.to_bytes(4, "big") + body
    try:
        found = _FIND[api_key](frame, 0, version)
    except ProtocolError:
        return
    if is_whole:
        assert found is not None
        assert int.from_bytes(_rewritten(frame, api_key, version)[:4], "big") >= 0


_PLAIN_BROKER = bytes(4) + b"\x00\x10sixteen bytes..." + bytes(4)
_COMPACT_BROKER = bytes(4) + b"\x11sixteen bytes..." + bytes(4) + b"\x00\x00"


@pytest.mark.parametrize(
    ("api_key", "front"),
    [
        (METADATA, (50_000).to_bytes(4, "big") + 50_000 * _PLAIN_BROKER),
        (DESCRIBE_CLUSTER, bytes(8) + b"\x01" + bytes(4) + b"\xd1\x86\x03" + 50_000 * _COMPACT_BROKER),
        (FIND_COORDINATOR, bytes(100)),
    ],
)
def test_brokers_without_end_are_not_waited_for(api_key: int, front: bytes) -> None:
    endless = (2**31 - 1).to_bytes(4, "big") + bytes(4) + front

    with pytest.raises(HeadTooLong):
        _FIND[api_key](endless[: MAX_FRONT_BYTES + 1_000], 0, 0)


def test_topics_are_not_looked_at() -> None:
    kind = kio_messages.response_class(METADATA, 13)
    frame = kio_messages.response_frame(kio_messages.example(kind, array_length=2))
    brokers = metadata.find_brokers(frame, 0, 13)
    assert brokers
    cut = frame[: brokers.end]

    assert metadata.find_brokers(cut, 0, 13) == brokers
