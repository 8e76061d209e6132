"""Replaces or hides the addresses of new leaders in Produce, Fetch and share group responses (KIP-951).

If a broker is no longer the leader of a partition, its response may contain the address of the new leader. These
addresses are the ``node_endpoints`` of the response::

    endpoints      array of { int32 node_id, string host, int32 port, string rack, tags }

They are at the very end, after records of any size. In Produce (v10+) and Fetch (v16+) they are tag 0 of the response.
In ShareFetch and ShareAcknowledge they are the last field. All fields are compact.

* If the whole response has arrived, each endpoint gets the address at which clients reach the broker through the proxy.
* If the response is forwarded in pieces, its size is already sent, so its length must not change. The endpoints are
  hidden under an unknown tag. Clients skip that tag and ask for Metadata instead.

Source: ProduceResponse.json (10 to 13), FetchResponse.json (16 to 18), ShareFetchResponse.json (0 to 2),
ShareAcknowledgeResponse.json (0 to 2) in Apache Kafka.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.broker_list import (
    AdvertisedAddresses,
    BrokerList,
    advertised,
    read_endpoints,
)
from kafka_quota_proxy.protocol.errors import FrameTooSmall, HeadTooLong, MalformedLength, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.partial_frame import PartialFrame
from kafka_quota_proxy.protocol.primitives import (
    read_uvarint,
    skip,
    skip_compact_string,
    skip_tags,
    write_uvarint,
)

# The first version in which each response has endpoints.
FIRST_VERSION: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 16,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
}

# The most bytes of an incomplete field that are kept in memory. An endpoint takes some dozen bytes.
MAX_HELD_BYTES: Final = 256 * 1024

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_INT32: Final = Struct(">i")
_FIRST_FETCH: Final = FIRST_VERSION[_FETCH]
_NEWEST_FETCH: Final = HIGHEST_VERSION[_FETCH]
_FIRST_PRODUCE: Final = FIRST_VERSION[_PRODUCE]
_NEWEST_PRODUCE: Final = HIGHEST_VERSION[_PRODUCE]
# The front of a Fetch response up to its first records. The struct picks out four counts (header tags, topics,
# partitions of the first topic, aborted transactions of the first partition), and then the first three of up to five
# bytes that hold the length of the records.
_FETCH_FRONT: Final = Struct(">8x B 10x B 16x B 30x B 4x 3B").unpack_from
# The length of this front. From so many bytes on, ``has_no_endpoints`` can judge an incomplete response.
FRONT_BYTES: Final = 77
_ENDPOINTS_TAG: Final = 0
_UNKNOWN_TAG: Final = 0x7F  # unknown in these responses; takes one byte, as tag 0 does
_FIRST_PRODUCE_TOPIC_ID: Final = 13
# The first version with acquisition_lock_timeout_ms.
_FIRST_LOCK_TIMEOUT: Final[dict[int, int]] = {ApiKey.SHARE_FETCH: 1, ApiKey.SHARE_ACKNOWLEDGE: 2}


def has_no_endpoints(data: bytes, position: int, frame_bytes: int, api_key: int, api_version: int) -> bool:
    """Return True if the response at ``position`` certainly has no node_endpoints (addresses of new leaders, KIP-951).

    If the result is False, the response may have some and must be parsed. This check examines only the last bytes of
    the frame, so most responses need no parsing:

    * The last endpoint ends in a port (four bytes, not all of them 0), a rack (0 for null) and empty tags (0).
    * So a Produce response that ends in five zero bytes has no endpoints. In such a response, throttle_time_ms is 0 and
      the tags are empty.
    * A Fetch response without endpoints ends in three empty tag sections: of a partition, its topic, and the response.

    If the end of a Fetch response has not arrived, the front of the response is examined instead.
    """
    end = position + frame_bytes
    if api_key == _FETCH:
        if not _FIRST_FETCH <= api_version <= _NEWEST_FETCH:
            return api_version < _FIRST_FETCH
        if end > len(data):
            return _leaves_no_room(data, position, end)
        return data[end - 3 : end] == b"\0\0\0" and not (data[end - 4] and data[end - 6 : end - 4] == b"\0\0")
    if api_key == _PRODUCE and _FIRST_PRODUCE <= api_version <= _NEWEST_PRODUCE:
        return end <= len(data) and data[end - 5 : end] == b"\0\0\0\0\0"
    return api_version < FIRST_VERSION.get(api_key, 0)


def _leaves_no_room(data: bytes, position: int, end: int) -> bool:
    """Whether an incomplete Fetch response has one partition only, and records up to the end, so no node_endpoints."""
    if len(data) < position + FRONT_BYTES:
        return False
    header_tags, topics, partitions, aborted, low, middle, high = _FETCH_FRONT(data, position)
    # A compact count of 2 says one element. 0 and 1 say none.
    if header_tags or topics != 2 or partitions != 2 or aborted > 1:
        return False
    if low > 0x7F and middle > 0x7F >= high:  # a length of 16 KiB to 2 MiB, which is usual for streamed records
        length: int = low & 0x7F | (middle & 0x7F) << 7 | high << 14
        return position + 77 + length == end
    length, at = read_uvarint(data, position + 72)
    return at + 2 + length == end


class Endpoints(NamedTuple):
    """The endpoints in a frame. ``size_at`` is the offset of the size of their tag, or -1 if they are not in a tag."""

    array: BrokerList
    size_at: int


def replace_endpoints(frame: bytes, found: Endpoints, addresses: AdvertisedAddresses) -> bytes:
    """Return a whole frame with the advertised hosts and ports. Brokers without an advertised address are left out."""
    array = advertised(frame, found.array, addresses)
    begin, middle = found.array.begin, array
    if found.size_at >= 0:
        begin, middle = found.size_at, write_uvarint(len(array)) + array
    size_bytes = len(frame) - 4 + len(middle) - (found.array.end - begin)
    return _INT32.pack(size_bytes) + frame[4:begin] + middle + frame[found.array.end :]


def find_endpoints(frame: bytes, api_key: int, api_version: int) -> Endpoints | None:
    """Return the node_endpoints (KIP-951) of ``frame``, a whole response, or None if it has none."""
    parser = _ResponseParser(api_key, api_version)
    parser.parse(frame)
    if not parser.is_done or parser.at != len(frame):
        raise TrailingBytes(
            f"a response of api_key {api_key} v{api_version} ends at byte {parser.at} of a frame of {len(frame)}"
        )
    return parser.endpoints


class EndpointHider:
    """Hides the endpoints of a response that is forwarded in pieces, without changing the length of the response."""

    __slots__ = ("_held", "_parser", "_partial", "_skip_bytes")

    def __init__(self, api_key: int, api_version: int) -> None:
        self._parser = _ResponseParser(api_key, api_version)
        self._held = b""  # the bytes of an incomplete field
        self._partial: PartialFrame | None = None  # the held bytes, and the bytes that followed
        self._skip_bytes = 0  # the bytes of records that are still to be forwarded without being parsed

    def feed(self, chunk: bytes) -> bytes:
        """Add the next bytes of the frame, beginning with its size field, and return the bytes to forward now."""
        if self._skip_bytes >= len(chunk):
            self._skip_bytes -= len(chunk)
            return chunk
        if self._partial is not None:
            chunk = self._partial.add(chunk)
            return self._pass_on(chunk) if chunk else b""
        return self._pass_on(chunk)

    def end(self) -> bytes:
        """Return the bytes that were held back until now. Raises FrameTooSmall if the frame is not complete."""
        rest = b""
        if self._partial is not None:
            rest = self._pass_on(self._partial.join())
        if self._held or self._skip_bytes or not self._parser.is_done:
            raise FrameTooSmall("a response with node_endpoints ends before its last field")
        return rest

    def _pass_on(self, data: bytes) -> bytes:
        parser = self._parser
        parser.at = self._skip_bytes
        parser.parse(data)
        end = min(parser.at, len(data))
        self._skip_bytes = parser.at - end
        self._held = data[end:]
        self._partial = PartialFrame(self._held, len(self._held)) if self._held else None
        if len(self._held) > MAX_HELD_BYTES:
            raise HeadTooLong(f"a field of a response has not ended after {len(self._held)} bytes")
        for at, replacement in parser.hidings:
            data = data[:at] + replacement + data[at + len(replacement) :]
        parser.hidings.clear()
        return data if end == len(data) else data[:end]


# The part of a response that is parsed next. These are plain numbers, because members of an enum are slower.
_FRONT: Final = 0
_TOPIC: Final = 1
_PARTITION: Final = 2
_PARTITION_END: Final = 3  # the fields after the records
_TOPIC_END: Final = 4
_END: Final = 5
_DONE: Final = 6


class _ResponseParser:
    """Parses a response part by part as its bytes arrive, and finds its endpoints. Records are skipped."""

    __slots__ = (
        "_api_key",
        "_api_version",
        "_has_topic_ids",
        "_partitions",
        "_read_partition",
        "_read_partition_end",
        "_stage",
        "_topics",
        "at",
        "endpoints",
        "hidings",
    )

    def __init__(self, api_key: int, api_version: int) -> None:
        self.at = 0  # the end of the last complete part; beyond the data if records have yet to arrive
        self.endpoints: Endpoints | None = None
        self.hidings: list[tuple[int, bytes]] = []  # the replacements (offset, new bytes) that hide the endpoints
        self._api_key = api_key
        self._api_version = api_version
        self._has_topic_ids = api_key != _PRODUCE or api_version >= _FIRST_PRODUCE_TOPIC_ID
        self._read_partition = _PARTITIONS[api_key]
        self._read_partition_end = _skip_share_fetch_partition_end if api_key == ApiKey.SHARE_FETCH else skip_tags
        self._stage = _FRONT
        self._topics = 0  # topics that are left
        self._partitions = 0  # partitions of the current topic that are left

    @property
    def is_done(self) -> bool:
        return self._stage == _DONE

    def parse(self, data: bytes) -> None:
        """Parse ``data`` from the offset ``at`` on, and move ``at`` to the end of the last complete part."""
        end = len(data)
        with suppress(Truncated):
            while self.at < end and self._stage != _DONE:
                if self._stage == _PARTITION:
                    self.at = self._read_partition(data, self.at)
                    self._stage = _PARTITION_END
                elif self._stage == _PARTITION_END:
                    self.at = self._read_partition_end(data, self.at)
                    self._partitions -= 1
                    self._stage = _PARTITION if self._partitions > 0 else _TOPIC_END
                else:
                    self._parse_other(data, self.at)

    def _parse_other(self, data: bytes, at: int) -> None:
        """Parse the front of the response, the beginning or the end of a topic, or the end of the response."""
        if self._stage == _TOPIC:
            at = skip(data, at, 16) if self._has_topic_ids else skip_compact_string(data, at)
            count, at = read_uvarint(data, at)
            self._partitions = count - 1
            self._stage = _PARTITION if count > 1 else _TOPIC_END
        elif self._stage == _TOPIC_END:
            at = skip_tags(data, at)
            self._topics -= 1
            self._stage = _TOPIC if self._topics > 0 else _END
        elif self._stage == _FRONT:
            count, at = read_uvarint(data, self._skip_front(data, skip_tags(data, skip(data, at, 8))))
            self._topics = count - 1
            self._stage = _TOPIC if count > 1 else _END
        else:
            at = self._read_end(data, at)
            self._stage = _DONE
        self.at = at

    def _skip_front(self, data: bytes, at: int) -> int:
        """Step over the fields between the header of the response and its topics. Return the offset after them."""
        if self._api_key == _PRODUCE:
            return at
        if self._api_key == _FETCH:
            return skip(data, at, 4 + 2 + 4)
        at = skip_compact_string(data, skip(data, at, 4 + 2))
        return skip(data, at, 4) if self._api_version >= _FIRST_LOCK_TIMEOUT[self._api_key] else at

    def _read_end(self, data: bytes, at: int) -> int:
        """Parse the fields after the topics of the response, and return the offset after them."""
        if self._api_key in (_PRODUCE, _FETCH):
            return self._read_tags(data, skip(data, at, 4) if self._api_key == _PRODUCE else at)
        return self._read_endpoints_and_tags(data, at)

    def _read_tags(self, data: bytes, at: int) -> int:
        """Parse the tags that end a Produce or Fetch response.

        Tag 0 contains the endpoints. To hide it, ``hidings`` receives a change that gives the tag an unknown number.
        """
        found, hiding = None, None
        count, at = read_uvarint(data, at)
        for _ in range(count):
            tag, size_at = read_uvarint(data, at)
            size_bytes, value_at = read_uvarint(data, size_at)
            if tag == _ENDPOINTS_TAG:
                array = read_endpoints(data, value_at)
                if found is not None or array.end != value_at + size_bytes:
                    raise MalformedLength(f"the node_endpoints of a response do not fill one tag of {size_bytes} bytes")
                found = Endpoints(array, size_at)
                # The new number takes as many bytes as the 0 did. That is one byte, unless the varint is padded.
                hiding = (at, _uvarint_of(_UNKNOWN_TAG, size_at - at))
            at = skip(data, value_at, size_bytes)
        if hiding is not None:
            self.endpoints = found
            self.hidings.append(hiding)
        return at

    def _read_endpoints_and_tags(self, data: bytes, at: int) -> int:
        """Parse the end of a ShareFetch or ShareAcknowledge response.

        To hide the endpoints, ``hidings`` receives a change that puts an empty array and an unknown tag in their place.
        """
        array = read_endpoints(data, at)
        tags, after = read_uvarint(data, array.end)
        end = skip_tags(data, array.end)
        if array.brokers:
            self.endpoints = Endpoints(array, -1)
            front = write_uvarint(1) + write_uvarint(tags + 1) + bytes([_UNKNOWN_TAG])
            self.hidings.append((at, front + _padding(after - at - len(front))))
        return end


# These functions return the offset at which ``_PARTITION_END`` begins. Records before it may not have arrived yet.


def _skip_produce_partition(data: bytes, at: int) -> int:
    count, at = read_uvarint(data, at + 4 + 2 + 8 + 8 + 8)
    for _ in range(count - 1):
        at = skip_tags(data, skip_compact_string(data, at + 4))
    return skip_compact_string(data, at)


def _skip_fetch_partition(data: bytes, at: int) -> int:
    count, at = read_uvarint(data, at + 4 + 2 + 8 + 8 + 8)
    for _ in range(count - 1):  # aborted transactions
        at = skip_tags(data, at + 8 + 8)
    length, at = read_uvarint(data, at + 4)
    return at + length - 1 if length else at


def _skip_share_fetch_partition(data: bytes, at: int) -> int:
    at = skip_compact_string(data, skip_compact_string(data, at + 4 + 2) + 2)
    length, at = read_uvarint(data, skip_tags(data, at + 4 + 4))
    return at + length - 1 if length else at


def _skip_share_acknowledge_partition(data: bytes, at: int) -> int:
    return skip_tags(data, skip_compact_string(data, at + 4 + 2) + 4 + 4)


def _skip_share_fetch_partition_end(data: bytes, at: int) -> int:
    count, at = read_uvarint(data, at)
    for _ in range(count - 1):  # acquired records
        at = skip_tags(data, at + 8 + 8 + 2)
    return skip_tags(data, at)


_PARTITIONS: Final[dict[int, Callable[[bytes, int], int]]] = {
    ApiKey.PRODUCE: _skip_produce_partition,
    ApiKey.FETCH: _skip_fetch_partition,
    ApiKey.SHARE_FETCH: _skip_share_fetch_partition,
    ApiKey.SHARE_ACKNOWLEDGE: _skip_share_acknowledge_partition,
}


def _uvarint_of(value: int, size_bytes: int) -> bytes:
    """Encode a value as a varint of exactly ``size_bytes`` bytes. The varint is padded if fewer bytes would do."""
    encoded = write_uvarint(value)
    padding = size_bytes - len(encoded)
    return encoded[:-1] + bytes([encoded[-1] | 0x80]) + b"\x80" * (padding - 1) + b"\0" if padding else encoded


def _padding(size_bytes: int) -> bytes:
    """Encode the size field and the value (all zeroes) of a tag, in ``size_bytes`` bytes together, at least two."""
    size_of_size = next(size for size in (1, 2, 3, 4, 5) if len(write_uvarint(size_bytes - size)) <= size)
    size = size_bytes - size_of_size
    return _uvarint_of(size, size_of_size) + bytes(size)  # the size needs padding for e.g. 127 zeroes in 129 bytes
