"""The brokers that Produce, Fetch, ShareFetch and ShareAcknowledge responses name where a leader has moved (KIP-951).

    endpoints      array of { int32 node_id, string host, int32 port, string rack, tags }

In Produce (v10+) and Fetch (v16+) they are tag 0 of the response, in ShareFetch and ShareAcknowledge its last field;
all of it is compact. They come at the very end of a response, behind records of any size:

* of a response that is there as a whole they are replaced;
* of one that streams, whose size has been passed on, they are hidden in place: clients skip a tag that they do not
  know, and ask for Metadata.

Nearly always there are none, and nearly always that is seen at a glance: see ``has_no_endpoints``.

Source: ProduceResponse.json (10 to 13), FetchResponse.json (16 to 18), ShareFetchResponse.json (0 to 2),
ShareAcknowledgeResponse.json (0 to 2) in Apache Kafka.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.broker_list import AdvertisedAddresses, BrokerList, read_broker_list, written
from kafka_quota_proxy.protocol.errors import FrameTooSmall, HeadTooLong, MalformedLength, TrailingBytes, Truncated
from kafka_quota_proxy.protocol.partial_frame import PartialFrame
from kafka_quota_proxy.protocol.primitives import (
    Buffer,
    read_uvarint,
    skip,
    skip_compact_string,
    skip_tags,
    write_uvarint,
)

# The first version of each response that has them.
FIRST_VERSION: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 16,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
}

# Fields between records are kept until they are whole. An array of endpoints has some dozen bytes per broker.
MAX_HELD_BYTES: Final = 256 * 1024

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_INT32: Final = Struct(">i")
_FIRST_FETCH: Final = FIRST_VERSION[_FETCH]
_NEWEST_FETCH: Final = HIGHEST_VERSION[_FETCH]
_FIRST_PRODUCE: Final = FIRST_VERSION[_PRODUCE]
_NEWEST_PRODUCE: Final = HIGHEST_VERSION[_PRODUCE]
# Of a Fetch response, to behind the length of its first records: how many tags the header has, topics, partitions of
# the first, aborted transactions of the first; and the first three of the up to five bytes of that length.
_FETCH_FRONT: Final = Struct(">8x B 10x B 16x B 30x B 4x 3B").unpack_from
_FETCH_FRONT_BYTES: Final = 77
_ENDPOINTS_TAG: Final = 0
_UNKNOWN_TAG: Final = 0x7F  # of a response of these; one byte, as 0 is
_FIRST_PRODUCE_TOPIC_ID: Final = 13
_FIRST_LOCK_TIMEOUT: Final[dict[int, int]] = {
    ApiKey.SHARE_FETCH: 1,
    ApiKey.SHARE_ACKNOWLEDGE: 2,
}  # acquisition_lock_timeout_ms


def has_no_endpoints(data: bytes, position: int, frame_bytes: int, api_key: int, api_version: int) -> bool:
    """Whether a response of Kafka, at ``position``, certainly names no leader: nearly always. Else it is looked at.

    With endpoints a frame ends in a port (1 to 65535 in four bytes), a rack (null is 0) and no tags (0). Without them,
    and where nothing has tags, a Produce response ends in throttle_time_ms (0) and no tags, a Fetch response in no tags
    of a partition, its topic and the response. A Fetch response that has not come as a whole is told by its front.
    Kafka has no tag behind the endpoints', and no rack that ends in NULs: such a response may pass as it is.

    Raises:
        ProtocolError: It is no such response.
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
    """Whether a Fetch response, of which the front has come, certainly ends with the records of one partition.

    Behind them only three sections of tags have room, empty ones. Without this look each response that streams would be
    walked through: of 1 MiB that takes 7 us, 3 % of what else is done for it.
    """
    if len(data) < position + _FETCH_FRONT_BYTES:
        return False
    header_tags, topics, partitions, aborted, low, middle, high = _FETCH_FRONT(data, position)
    if header_tags or topics != 2 or partitions != 2 or aborted > 1:  # counts of one, and none, in compact arrays
        return False
    if low > 0x7F and middle > 0x7F >= high:  # most that stream: of 16 KiB to 2 MiB
        length: int = low & 0x7F | (middle & 0x7F) << 7 | high << 14
        return position + 77 + length == end
    length, at = read_uvarint(data, position + 72)
    return at + 2 + length == end


def replace_endpoints(frame: bytes, found: "Endpoints", told: AdvertisedAddresses) -> bytes:
    """Return a whole frame with the hosts and ports of ``told``, and without the brokers that it does not have."""
    array = written(frame, found.array, told)
    begin, middle = found.array.begin, array
    if found.size_at >= 0:
        begin, middle = found.size_at, write_uvarint(len(array)) + array
    size_bytes = len(frame) - 4 + len(middle) - (found.array.end - begin)
    return _INT32.pack(size_bytes) + frame[4:begin] + middle + frame[found.array.end :]


class Endpoints:
    """Where a frame has its endpoints: the array, and where the size of its tag is (-1: it is in none)."""

    __slots__ = ("array", "size_at")

    def __init__(self, array: BrokerList, size_at: int) -> None:
        self.array = array
        self.size_at = size_at


def find_endpoints(frame: bytes, api_key: int, api_version: int) -> Endpoints | None:
    """Find the endpoints of a whole frame; None: it names none.

    Raises:
        ProtocolError: The frame is not such a response.
    """
    walk = _ResponseWalk(api_key, api_version)
    walk.take(frame)
    if not walk.is_done or walk.at != len(frame):
        raise TrailingBytes(f"a response of api_key {api_key} v{api_version} is not its frame: byte {walk.at}")
    return walk.endpoints


class EndpointHider:
    """A response that streams, and comes out with as many bytes and no endpoints."""

    __slots__ = ("_held", "_pieces", "_skip_bytes", "_walk")

    def __init__(self, api_key: int, api_version: int) -> None:
        self._walk = _ResponseWalk(api_key, api_version)
        self._held = b""  # of a thing that has not come as a whole
        self._pieces: PartialFrame | None = None  # that, and what has come of it since
        self._skip_bytes = 0  # of records that are still to pass

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of the frame, its size first; return what may pass now.

        Raises:
            ProtocolError: The frame is not such a response, or a field of it is unreasonably long.
        """
        if self._skip_bytes >= len(chunk):
            self._skip_bytes -= len(chunk)
            return chunk
        if self._pieces is not None:
            chunk = self._pieces.add(chunk)
            return self._pass_on(chunk) if chunk else b""
        return self._pass_on(chunk)

    def end(self) -> bytes:
        """Take it that the frame has ended; return what of it may pass now.

        Raises:
            FrameTooSmall: The response has not.
            ProtocolError: See ``feed``.
        """
        rest = b""
        if self._pieces is not None:
            rest = self._pass_on(self._pieces.join())
        if self._held or self._skip_bytes or not self._walk.is_done:
            raise FrameTooSmall("a response that names moved leaders ends before its fields do")
        return rest

    def _pass_on(self, data: bytes) -> bytes:
        walk = self._walk
        walk.at = self._skip_bytes
        walk.take(data)
        end = min(walk.at, len(data))
        self._skip_bytes = walk.at - end
        self._held = data[end:]
        self._pieces = PartialFrame(self._held, len(self._held)) if self._held else None
        if len(self._held) > MAX_HELD_BYTES:
            raise HeadTooLong(f"a field of a response has not ended after {len(self._held)} bytes")
        for at, replacement in walk.hidings:
            data = data[:at] + replacement + data[at + len(replacement) :]
        walk.hidings.clear()
        return data if end == len(data) else data[:end]


# What comes next in a response that is read. Plain numbers: an enum's members take longer to look up than to compare.
_FRONT: Final = 0
_TOPIC: Final = 1
_PARTITION: Final = 2
_PARTITION_END: Final = 3  # behind its records
_TOPIC_END: Final = 4
_END: Final = 5
_DONE: Final = 6


class _ResponseWalk:
    """Reads a response that may come in pieces. What lies before ``at`` is done with.

    It is read thing by thing, in the order of the numbers above. One that has not come as a whole is read anew with
    more data; records are stepped over, so that it is short.
    """

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
        self.at = 0  # beyond the data: so many bytes more are to be stepped over
        self.endpoints: Endpoints | None = None
        self.hidings: list[tuple[int, bytes]] = []
        self._api_key = api_key
        self._api_version = api_version
        self._has_topic_ids = api_key != _PRODUCE or api_version >= _FIRST_PRODUCE_TOPIC_ID
        self._read_partition = _PARTITIONS[api_key]
        self._read_partition_end = _skip_share_fetch_partition_end if api_key == ApiKey.SHARE_FETCH else skip_tags
        self._stage = _FRONT
        self._topics = 0  # that are still to come; of partitions, of this topic
        self._partitions = 0

    @property
    def is_done(self) -> bool:
        """Whether the response has ended."""
        return self._stage == _DONE

    def take(self, data: bytes) -> None:
        """Read on from ``at`` in ``data`` as far as it goes."""
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
                    self._take_frame(data, self.at)

    def _take_frame(self, data: bytes, at: int) -> None:
        """Read one thing that is no partition."""
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
        """Step over what lies between the header and the topics."""
        if self._api_key == _PRODUCE:
            return at
        if self._api_key == _FETCH:
            return skip(data, at, 4 + 2 + 4)
        at = skip_compact_string(data, skip(data, at, 4 + 2))
        return skip(data, at, 4) if self._api_version >= _FIRST_LOCK_TIMEOUT[self._api_key] else at

    def _read_end(self, data: bytes, at: int) -> int:
        """Read what lies behind the topics, to the end of the frame."""
        if self._api_key in (_PRODUCE, _FETCH):
            return self._read_tags(data, skip(data, at, 4) if self._api_key == _PRODUCE else at)
        return self._read_endpoints_and_tags(data, at)

    def _read_tags(self, data: bytes, at: int) -> int:
        """The closing tags of a Produce or Fetch response: tag 0 becomes one that nobody knows."""
        found, hiding = None, None
        count, at = read_uvarint(data, at)
        for _ in range(count):
            tag, size_at = read_uvarint(data, at)
            size_bytes, value_at = read_uvarint(data, size_at)
            if tag == _ENDPOINTS_TAG:
                array = read_broker_list(data, value_at, is_compact=True, skip_rest=_skip_rack_and_tags)
                if found is not None or array.end != value_at + size_bytes:
                    raise MalformedLength(f"the endpoints of a response are not all of one tag of {size_bytes} bytes")
                found = Endpoints(array, size_at)
                # In as many bytes as the 0 took, which is one unless somebody wanted to be clever.
                hiding = (at, _uvarint_of(_UNKNOWN_TAG, size_at - at))
            at = skip(data, value_at, size_bytes)
        if hiding is not None:
            self.endpoints = found
            self.hidings.append(hiding)
        return at

    def _read_endpoints_and_tags(self, data: bytes, at: int) -> int:
        """The last field of a share group's response: an empty array, and its bytes one more unknown tag."""
        array = read_broker_list(data, at, is_compact=True, skip_rest=_skip_rack_and_tags)
        tags, after = read_uvarint(data, array.end)
        end = skip_tags(data, array.end)
        if array.brokers:
            self.endpoints = Endpoints(array, -1)
            front = write_uvarint(1) + write_uvarint(tags + 1) + bytes([_UNKNOWN_TAG])
            self.hidings.append((at, front + _padding(after - at - len(front))))
        return end


# Each of these steps over a partition up to its end, or to behind its records, which need not have come.


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


def _skip_rack_and_tags(data: Buffer, offset: int) -> int:
    return skip_tags(data, skip_compact_string(data, offset))


def _uvarint_of(value: int, size_bytes: int) -> bytes:
    """Encode a value below 128 in so many bytes, more than it needs."""
    return bytes([value]) if size_bytes == 1 else bytes([value | 0x80, *[0x80] * (size_bytes - 2), 0])


def _padding(size_bytes: int) -> bytes:
    """Return the size of a tag and its value, zeroes, in so many bytes together; two or more."""
    size_of_size = next(size for size in (1, 2, 3, 4, 5) if len(write_uvarint(size_bytes - size)) <= size)
    size = size_bytes - size_of_size
    encoded = write_uvarint(size)
    if len(encoded) < size_of_size:  # 128 of 130 bytes: no shortest form fits
        encoded = encoded[:-1] + bytes([encoded[-1] | 0x80, 0])
    return encoded + bytes(size)
