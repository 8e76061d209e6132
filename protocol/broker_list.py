"""Finds lists of brokers in responses, and replaces the brokers' addresses with those of the proxy.

The address at which clients reach a broker through the proxy is called its advertised address.

    broker     int32 node_id, string host, int32 port, then fields of the message: rack, tags, ...

The fields after a broker's port stay as they are. A broker without an advertised address is removed from the list.
Clients then see its partitions without a leader, and ask again.

Source: MetadataResponse.json, DescribeClusterResponse.json and the node_endpoints of KIP-951 in Apache Kafka.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from kafka_quota_proxy.protocol.errors import HeadTooLong, MalformedLength, Truncated
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_int16,
    read_int32,
    read_string,
    read_uvarint,
    skip_compact_string,
    skip_string,
    skip_tags,
    write_string,
    written_count,
)

# By node id, the host (UTF-8) and port that clients see instead of those of the broker.
AdvertisedAddresses = Mapping[int, tuple[bytes, int]]

# The most bytes of a response that are kept until its list of brokers is complete. Some 10,000 brokers fit into them.
MAX_FRONT_BYTES: Final = 1024 * 1024
_MAX_BROKERS: Final = 100_000
# A cluster id is usually a UUID of 22 letters. Older brokers and other products use a few words.
MAX_CLUSTER_ID_BYTES: Final = 256

_INT32: Final = Struct(">i")
_Read = TypeVar("_Read")
SkipRest = Callable[[Buffer, int], int]


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


def read_from_front(data: bytes, start: int, read: Callable[[memoryview, int], _Read]) -> _Read | None:
    """Parse the front of a response with ``read``, and return its result, or None if more bytes are needed.

    The end of the response need not have arrived. ``read`` receives the bytes of the frame that have arrived, and the
    offset after the correlation_id. Raises HeadTooLong if ``read`` needs more than ``MAX_FRONT_BYTES``.
    """
    try:
        return read(frame_so_far(data, start), start + 8)
    except Truncated as error:
        arrived = len(data) - start
        if arrived >= 4 and arrived >= 4 + _INT32.unpack_from(data, start)[0]:
            raise
        if arrived > MAX_FRONT_BYTES:
            raise HeadTooLong(f"a response's list of brokers has not ended after {arrived} bytes") from error
        return None


def read_broker(data: Buffer, offset: int, *, is_compact: bool, skip_rest: SkipRest) -> Broker:
    """Read one broker at ``offset``. ``skip_rest`` steps over the fields after its port."""
    node_id, after = read_int32(data, offset)
    host, after = read_string(data, after, is_compact=is_compact)
    port, rest = read_int32(data, after)
    return Broker(node_id, host.decode("utf-8", "backslashreplace"), port, offset, rest, skip_rest(data, rest))


def read_broker_list(data: Buffer, offset: int, *, is_compact: bool, skip_rest: SkipRest) -> BrokerList:
    """Read an array of brokers that begins with its count at ``offset``."""
    # read_array_count would reject an incomplete frame in which fewer bytes have arrived than there are elements.
    count, position = read_uvarint(data, offset) if is_compact else read_int32(data, offset)
    count -= is_compact
    if not -1 <= count <= _MAX_BROKERS:
        raise MalformedLength(f"an array of brokers has {count} elements")
    brokers = []
    for _ in range(count):
        broker = read_broker(data, position, is_compact=is_compact, skip_rest=skip_rest)
        brokers.append(broker)
        position = broker.end
    return BrokerList(tuple(brokers), offset, position, is_compact)


def read_cluster_id(data: Buffer, offset: int, *, is_compact: bool) -> str | None:
    """Read a cluster id. Returns None if it is null, empty or longer than ``MAX_CLUSTER_ID_BYTES``."""
    end = skip_compact_string(data, offset) if is_compact else skip_string(data, offset)
    _, begin = read_uvarint(data, offset) if is_compact else read_int16(data, offset)
    value = bytes(data[begin:end])
    return value.decode("utf-8", "backslashreplace") if 0 < len(value) <= MAX_CLUSTER_ID_BYTES else None


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


def frame_so_far(data: bytes, start: int) -> memoryview:
    """Return the bytes that have arrived of the frame that begins at ``start``."""
    view = memoryview(data)
    return view[: start + 4 + _INT32.unpack_from(data, start)[0]] if len(data) - start >= 4 else view


def skip_nothing(data: Buffer, offset: int) -> int:
    """Step over no field, for versions in which the port is the last field of a broker."""
    return offset


def skip_rack_and_tags(data: Buffer, offset: int) -> int:
    """Step over a rack (a compact string) and tags, and return the offset after them."""
    return skip_tags(data, skip_compact_string(data, offset))
