"""Finds lists of brokers in responses, and replaces the brokers' addresses with those of the proxy.

The address at which clients reach a broker through the proxy is called its advertised address.

The fields after a broker's port stay as they are. A broker without an advertised address is removed from the list.
Clients then see its partitions without a leader, and ask again.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible
from kafka_quota_proxy.protocol.codec import Values, read_fields
from kafka_quota_proxy.protocol.errors import HeadTooLong, Truncated
from kafka_quota_proxy.protocol.primitives import Buffer, skip_tags, write_string, written_count

# By node id, the host (UTF-8) and port that clients see instead of those of the broker.
AdvertisedAddresses = Mapping[int, tuple[bytes, int]]

# The most bytes of a response that are kept until its list of brokers is complete. Some 10,000 brokers fit into them.
MAX_FRONT_BYTES: Final = 1024 * 1024
_MAX_BROKERS: Final = 100_000

_INT32: Final = Struct(">i")
# Broker(...) would call a Python function.
_new: Final = tuple.__new__
_ENDPOINTS: Final = int(ApiKey.SHARE_ACKNOWLEDGE)


class Broker(NamedTuple):
    """One broker in a response, which is the data from ``begin`` to ``end``. ``rest`` is the offset after its port."""

    node_id: int
    host: str
    port: int
    begin: int
    rest: int
    end: int


class BrokerList(NamedTuple):
    """An array of brokers in a response, which is the data from its count at ``begin`` to ``end``."""

    brokers: tuple[Broker, ...]
    begin: int
    end: int
    is_compact: bool


def read_front(data: bytes, start: int, api_key: int, api_version: int) -> Values | None:
    """Read the front of the response at ``start``, or return None if more bytes are needed.

    The end of the response need not have arrived. Raises HeadTooLong if more than ``MAX_FRONT_BYTES`` are needed.
    """
    arrived = len(data) - start
    size_bytes = 4 + _INT32.unpack_from(data, start)[0] if arrived >= 4 else MAX_FRONT_BYTES
    try:
        at = start + 8
        if is_flexible(api_key, api_version):
            at = skip_tags(data, at)
        values, end = read_fields(data, at, api_key, api_version, "front", _MAX_BROKERS)
    except Truncated as error:
        if arrived >= size_bytes:
            raise
        if arrived > MAX_FRONT_BYTES:
            raise HeadTooLong(f"a response's list of brokers has not ended after {arrived} bytes") from error
        return None
    if end > start + size_bytes:
        raise Truncated(f"a response of {size_bytes} bytes ends before the end of its brokers")
    return values


def broker_list(begin: int, brokers: Sequence[Sequence[Any]], end: int, *, is_compact: bool) -> BrokerList:
    """Return the array of brokers from ``begin`` to ``end``, whose fields are those of a front."""
    found = []
    for index, (at, node_id, host, port, rest, *_) in enumerate(brokers, 1):
        its_end = brokers[index][0] if index < len(brokers) else end
        name = host.decode("utf-8", "backslashreplace")
        found.append(_new(Broker, (node_id, name, port, at, rest, its_end)))
    return BrokerList(tuple(found), begin, end, is_compact)


def read_endpoints(data: bytes, offset: int) -> BrokerList:
    """Read an array of node_endpoints (KIP-951), which may not have arrived completely."""
    values, _ = read_fields(data, offset, _ENDPOINTS, HIGHEST_VERSION[_ENDPOINTS], "front", _MAX_BROKERS)
    return broker_list(*values, is_compact=True)


def advertised(data: Buffer, brokers: BrokerList, addresses: AdvertisedAddresses) -> bytes:
    """Encode an array of those brokers that have an advertised address, each with this address in place of its own."""
    known = [broker for broker in brokers.brokers if broker.node_id in addresses]
    parts = [written_count(len(known), is_flexible=brokers.is_compact)]
    for broker in known:
        host, port = addresses[broker.node_id]
        parts += (
            _INT32.pack(broker.node_id),
            write_string(host, is_compact=brokers.is_compact),
            _INT32.pack(port),
            bytes(data[broker.rest : broker.end]),
        )
    return b"".join(parts)


def replace_front(data: Buffer, start: int, brokers: BrokerList, addresses: AdvertisedAddresses) -> bytes:
    """Return the front of a frame, up to the end of its brokers, with the advertised addresses and a corrected size."""
    array = advertised(data, brokers, addresses)
    size_bytes = _INT32.unpack_from(data, start)[0] + len(array) - (brokers.end - brokers.begin)
    return _INT32.pack(size_bytes) + bytes(data[start + 4 : brokers.begin]) + array
