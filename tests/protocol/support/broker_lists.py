"""Reads, writes and rewrites responses that list brokers. kio is the codec."""

from collections.abc import Callable
from typing import Final

from kio.serial import entity_reader

from kafka_quota_proxy.protocol import find_coordinator, metadata
from kafka_quota_proxy.protocol.broker_list import AdvertisedAddresses, replace_front
from tests.protocol.support import kio_messages
from tests.protocol.support.kio_messages import Untyped

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
ADVERTISED: Final[AdvertisedAddresses] = {
    0: (b"proxy", 9193),
    3: (b"2001:db8::1", 9196),
    7: ("prüf.example".encode(), 65_535),
}
FIND: Final[dict[int, Callable[[bytes, int, int], object]]] = {
    METADATA: metadata.find_brokers,
    DESCRIBE_CLUSTER: metadata.find_endpoints,
    FIND_COORDINATOR: find_coordinator.find_coordinators,
}


def versions(api_key: int) -> list[int]:
    return [version for key, version in kio_messages.api_versions() if key == api_key]


def decoded(frame: bytes, kind: Untyped) -> Untyped:
    """Read a whole frame with kio, and check that no byte is left."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, header_bytes = entity_reader(kind.__header_schema__)(frame, 4)
    message, body_bytes = entity_reader(kind)(frame, 4 + header_bytes)
    assert 4 + header_bytes + body_bytes == len(frame)
    return message


def rewritten(frame: bytes, api_key: int, version: int, addresses: AdvertisedAddresses = ADVERTISED) -> bytes:
    """Return the frame with advertised addresses. Other bytes surround the frame while it is rewritten."""
    data, start = b"before" + frame + b"behind", 6
    if api_key == METADATA:
        brokers = metadata.find_brokers(data, start, version)
        assert brokers
        return replace_front(data, start, brokers, addresses) + data[brokers.end : -6]
    if api_key == DESCRIBE_CLUSTER:
        endpoints = metadata.find_endpoints(data, start, version)
        assert endpoints
        return metadata.replace_endpoints(data, start, endpoints, addresses) + data[endpoints.brokers.end : -6]
    coordinators = find_coordinator.find_coordinators(data, start, version)
    assert coordinators is not None
    return find_coordinator.replace_coordinators(data, start, version, coordinators, addresses)
