"""Lists of brokers in responses: where they lie, what they say, and the same bytes with other hosts and ports.

    broker     int32 node_id, string host, int32 port, and what only some messages have: rack, tags, ...

What stands behind a broker's port is kept as it is. A broker of which nobody is to be told is left out: clients then
take its partitions for ones without a leader, and ask again.

Source: MetadataResponse.json, DescribeClusterResponse.json and the node_endpoints of KIP-951 in Apache Kafka.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.errors import HeadTooLong, MalformedLength, Truncated
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_int16,
    read_int32,
    read_string,
    read_uvarint,
    skip_compact_string,
    skip_string,
    write_string,
    write_uvarint,
)

# What clients are told instead: host (UTF-8) and port, by node id.
AdvertisedAddresses = Mapping[int, tuple[bytes, int]]

# The front of a response is kept until its brokers have come. 1 MiB has room for some 10,000.
MAX_FRONT_BYTES: Final = 1024 * 1024
MAX_BROKERS: Final = 100_000
# A cluster's id is a UUID in 22 letters; older ones, and those of other brokers, are some words.
MAX_CLUSTER_ID_BYTES: Final = 256

_INT32: Final = Struct(">i")
SkipRest = Callable[[Buffer, int], int]


class Broker(NamedTuple):
    """A broker as a response names it, and where: ``begin`` is at node_id, ``rest`` behind port, ``end`` behind all."""

    node_id: int
    host: str
    port: int
    begin: int
    rest: int
    end: int


class BrokerList(NamedTuple):
    """An array of brokers; its count is at ``begin``, ``end`` is behind it."""

    brokers: tuple[Broker, ...]
    begin: int
    end: int
    is_compact: bool


def read_broker(data: Buffer, offset: int, *, is_compact: bool, skip_rest: SkipRest) -> Broker:
    """Read one broker.

    Args:
        data: Bytes of a response.
        offset: Where its node_id is.
        is_compact: Whether strings are.
        skip_rest: Steps over what lies behind the port.

    Raises:
        ProtocolError: There is none.
    """
    node_id, after = read_int32(data, offset)
    host, after = read_string(data, after, is_compact=is_compact)
    port, rest = read_int32(data, after)
    return Broker(node_id, host.decode("utf-8", "backslashreplace"), port, offset, rest, skip_rest(data, rest))


def read_broker_list(data: Buffer, offset: int, *, is_compact: bool, skip_rest: SkipRest) -> BrokerList:
    """Read an array of brokers whose count is at ``offset``; else as ``read_broker``."""
    # Not read_array_count: of a frame that is still coming, fewer bytes may be there than it has elements.
    count, position = read_uvarint(data, offset) if is_compact else read_int32(data, offset)
    count -= is_compact
    if not -1 <= count <= MAX_BROKERS:
        raise MalformedLength(f"an array of brokers has {count} elements")
    brokers = []
    for _ in range(count):
        broker = read_broker(data, position, is_compact=is_compact, skip_rest=skip_rest)
        brokers.append(broker)
        position = broker.end
    return BrokerList(tuple(brokers), offset, position, is_compact)


def read_cluster_id(data: Buffer, offset: int, *, is_compact: bool) -> str | None:
    """Read a cluster's id; None where it is null, empty, or too long for one.

    Raises:
        ProtocolError: There is no string.
    """
    end = skip_compact_string(data, offset) if is_compact else skip_string(data, offset)
    _, begin = read_uvarint(data, offset) if is_compact else read_int16(data, offset)
    value = bytes(data[begin:end])
    return value.decode("utf-8", "backslashreplace") if 0 < len(value) <= MAX_CLUSTER_ID_BYTES else None


def written(data: Buffer, brokers: BrokerList, told: AdvertisedAddresses) -> bytes:
    """Return the array anew, with the hosts and ports of ``told`` and without the brokers that it does not have."""
    known = [broker for broker in brokers.brokers if broker.node_id in told]
    parts = [write_uvarint(len(known) + 1) if brokers.is_compact else _INT32.pack(len(known))]
    for broker in known:
        host, port = told[broker.node_id]
        parts += (
            _INT32.pack(broker.node_id),
            write_string(host, is_compact=brokers.is_compact),
            _INT32.pack(port),
            bytes(data[broker.rest : broker.end]),
        )
    return b"".join(parts)


def replaced_front(data: Buffer, start: int, begin: int, end: int, middle: bytes) -> bytes:
    """Return a frame's bytes from ``start`` to ``end`` with ``middle`` in place of those from ``begin`` on.

    The size in front of the frame is corrected, so that the rest of the frame may follow as it comes.
    """
    size_bytes = _INT32.unpack_from(data, start)[0] + len(middle) - (end - begin)
    return _INT32.pack(size_bytes) + bytes(data[start + 4 : begin]) + middle


def frame_so_far(data: bytes, start: int) -> memoryview:
    """Return ``data`` without what lies behind the frame that begins at ``start``."""
    view = memoryview(data)
    return view[: start + 4 + _INT32.unpack_from(data, start)[0]] if len(data) - start >= 4 else view


def need_more(data: bytes, start: int, error: Truncated) -> None:
    """Take it that reading a frame's front came to the end of the data.

    Raises:
        Truncated: The frame is whole, so no more will come.
        HeadTooLong: It is not worth waiting for: too much would be kept.
    """
    come = len(data) - start
    if come >= 4 and come >= 4 + _INT32.unpack_from(data, start)[0]:
        raise error
    if come > MAX_FRONT_BYTES:
        raise HeadTooLong(f"the brokers of a response have not ended after {come} bytes") from error
