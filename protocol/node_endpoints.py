"""The brokers that Produce, Fetch, ShareFetch and ShareAcknowledge responses name where a leader has moved (KIP-951).

    endpoints      array of { int32 node_id, string host, int32 port, string rack, tags }

In Produce (v10+) and Fetch (v16+) they are tag 0 of the response, in ShareFetch and ShareAcknowledge its last field;
all of it is compact. They come at the very end of a response, behind records of any size:

* of a response that is there as a whole they are replaced;
* of one that streams, whose size has been passed on, they are hidden in place: clients skip a tag that they do not
  know, and ask for Metadata.

Source: ProduceResponse.json (10 to 13), FetchResponse.json (16 to 18), ShareFetchResponse.json (0 to 2),
ShareAcknowledgeResponse.json (0 to 2) in Apache Kafka.
"""

from collections.abc import Callable, Generator, Mapping
from struct import Struct
from typing import Final

from protocol.api import HIGHEST_VERSION, ApiKey
from protocol.brokers import BrokerList, Told, read_broker_list, written
from protocol.errors import FrameTooSmall, HeadTooLong, TrailingBytes, Truncated
from protocol.primitives import Buffer, read_uvarint, skip_compact_string, skip_tags, write_uvarint

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
_ENDPOINTS_TAG: Final = 0
_UNKNOWN_TAG: Final = 0x7F  # of a response of these; one byte, as 0 is
_FIRST_PRODUCE_TOPIC_ID: Final = 13
_FIRST_LOCK_TIMEOUT: Final[dict[int, int]] = {
    ApiKey.SHARE_FETCH: 1,
    ApiKey.SHARE_ACKNOWLEDGE: 2,
}  # acquisition_lock_timeout_ms
_Walk = Generator[None, None, None]


def may_have_endpoints(ending: bytes, api_key: int, api_version: int) -> bool:
    """Whether a whole frame must be looked at. Told from its last eight bytes or more, and nearly always False.

    With endpoints a frame ends in a port (1 to 65535 in four bytes), a rack (null is 0) and no tags (0). Without them,
    and where nothing has tags, a Produce response ends in throttle_time_ms (0) and no tags, a Fetch response in no tags
    of a partition, its topic and the response.
    """
    if api_version < FIRST_VERSION[api_key]:
        return False
    if api_version <= HIGHEST_VERSION[api_key]:
        if api_key == _PRODUCE:
            return not ending.endswith(b"\x00\x00\x00\x00\x00")
        if api_key == _FETCH:
            return not ending.endswith(b"\x00\x00\x00") or (ending[-6:-4] == b"\x00\x00" and ending[-4] != 0)
    return True


def replace_endpoints(frame: bytes, found: "Endpoints", told: Told) -> bytes:
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


class HiddenEndpoints:
    """A response that streams, and comes out with as many bytes and no endpoints."""

    __slots__ = ("_held", "_skip_bytes", "_walk")

    def __init__(self, api_key: int, api_version: int) -> None:
        self._walk = _ResponseWalk(api_key, api_version)
        self._held = b""
        self._skip_bytes = 0  # of records that are still to pass

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of the frame, its size first; return what may pass now.

        Raises:
            ProtocolError: The frame is not such a response, or a field of it is unreasonably long.
        """
        if self._skip_bytes >= len(chunk):
            self._skip_bytes -= len(chunk)
            return chunk
        data = self._held + chunk if self._held else chunk
        walk = self._walk
        walk.at = self._skip_bytes
        walk.take(data)
        end = min(walk.at, len(data))
        self._skip_bytes = walk.at - end
        self._held = data[end:]
        if len(self._held) > MAX_HELD_BYTES:
            raise HeadTooLong(f"a field of a response has not ended after {len(self._held)} bytes")
        for at, replacement in walk.hidings:
            data = data[:at] + replacement + data[at + len(replacement) :]
        walk.hidings.clear()
        return data if end == len(data) else data[:end]

    def end(self) -> None:
        """Take it that the frame has ended.

        Raises:
            FrameTooSmall: The response has not.
        """
        if self._held or self._skip_bytes or not self._walk.is_done:
            raise FrameTooSmall("a response that names moved leaders ends before its fields do")


class _ResponseWalk:
    """Reads a response that may come in pieces. What lies before ``at`` is done with."""

    __slots__ = ("_api_key", "_api_version", "_data", "_steps", "at", "endpoints", "hidings", "is_done")

    def __init__(self, api_key: int, api_version: int) -> None:
        self.at = 0  # beyond the data: so many bytes more are to be stepped over
        self.is_done = False
        self.endpoints: Endpoints | None = None
        self.hidings: list[tuple[int, bytes]] = []
        self._api_key = api_key
        self._api_version = api_version
        self._data: bytes = b""
        self._steps = self._response()

    def take(self, data: bytes) -> None:
        """Read on from ``at`` in ``data`` as far as it goes."""
        self._data = data
        if not self.is_done:
            next(self._steps, None)

    # Each of these reads one thing. Where it needs more data it yields, with ``at`` where the thing began.

    def _response(self) -> _Walk:
        self.at += 8
        yield from self._tags()
        match self._api_key:
            case ApiKey.PRODUCE:
                yield from self._array(self._produce_topic)
                self.at += 4
            case ApiKey.FETCH:
                self.at += 4 + 2 + 4
                yield from self._array(self._fetch_topic)
            case _:
                self.at += 4 + 2
                yield from self._string()
                if self._api_version >= _FIRST_LOCK_TIMEOUT[self._api_key]:
                    self.at += 4
                yield from self._array(self._share_topic)
        if self._api_key in (ApiKey.PRODUCE, ApiKey.FETCH):
            yield from self._tags_with_endpoints()
        else:
            yield from self._endpoints_before_tags()
        self.is_done = True
        yield

    def _produce_topic(self) -> _Walk:
        if self._api_version >= _FIRST_PRODUCE_TOPIC_ID:
            self.at += 16
        else:
            yield from self._string()
        yield from self._array(self._produce_partition)
        yield from self._tags()

    def _produce_partition(self) -> _Walk:
        self.at += 4 + 2 + 8 + 8 + 8
        yield from self._array(self._record_error)
        yield from self._string()
        yield from self._tags()

    def _record_error(self) -> _Walk:
        self.at += 4
        yield from self._string()
        yield from self._tags()

    def _fetch_topic(self) -> _Walk:
        self.at += 16
        yield from self._array(self._fetch_partition)
        yield from self._tags()

    def _fetch_partition(self) -> _Walk:
        self.at += 4 + 2 + 8 + 8 + 8
        yield from self._array(self._aborted_transaction)
        self.at += 4
        yield from self._bytes()
        yield from self._tags()

    def _aborted_transaction(self) -> _Walk:
        self.at += 8 + 8
        yield from self._tags()

    def _share_topic(self) -> _Walk:
        self.at += 16
        yield from self._array(self._share_partition)
        yield from self._tags()

    def _share_partition(self) -> _Walk:
        self.at += 4 + 2
        yield from self._string()
        if self._api_key == ApiKey.SHARE_FETCH:
            self.at += 2
            yield from self._string()
        self.at += 4 + 4
        yield from self._tags()
        if self._api_key == ApiKey.SHARE_FETCH:
            yield from self._bytes()
            yield from self._array(self._acquired_records)
        yield from self._tags()

    def _acquired_records(self) -> _Walk:
        self.at += 8 + 8 + 2
        yield from self._tags()

    def _array(self, element: Callable[[], _Walk]) -> _Walk:
        count = yield from self._uvarint()
        for _ in range(count - 1):
            yield from element()

    def _bytes(self) -> _Walk:
        length = yield from self._uvarint()
        self.at += max(length - 1, 0)

    def _uvarint(self) -> Generator[None, None, int]:
        while True:
            try:
                value, self.at = read_uvarint(self._data, self.at)
            except Truncated:
                yield
            else:
                return value

    def _string(self) -> _Walk:
        yield from self._step(skip_compact_string)

    def _tags(self) -> _Walk:
        yield from self._step(skip_tags)

    def _step(self, skip_one: Callable[[Buffer, int], int]) -> _Walk:
        while True:
            try:
                self.at = skip_one(self._data, self.at)
            except Truncated:
                yield
            else:
                return

    def _tags_with_endpoints(self) -> _Walk:
        """The closing tags of a Produce or Fetch response: tag 0 becomes one that nobody knows."""
        for _ in range((yield from self._uvarint())):
            yield from self._tag()

    def _tag(self) -> _Walk:
        while True:
            begin = self.at
            try:
                tag, size_at = read_uvarint(self._data, begin)
                size_bytes, value_at = read_uvarint(self._data, size_at)
                if tag != _ENDPOINTS_TAG:
                    self.at = value_at + size_bytes
                    return
                array = read_broker_list(self._data, value_at, is_compact=True, skip_rest=_skip_rack_and_tags)
            except Truncated:
                self.at = begin
                yield
            else:
                self.endpoints = Endpoints(array, size_at)
                # In as many bytes as the 0 took, which is one unless somebody wanted to be clever.
                self.hidings.append((begin, _uvarint_of(_UNKNOWN_TAG, size_at - begin)))
                self.at = value_at + size_bytes
                return

    def _endpoints_before_tags(self) -> _Walk:
        """The last field of a share group's response: an empty array, and its bytes one more unknown tag."""
        while True:
            begin = self.at
            try:
                array = read_broker_list(self._data, begin, is_compact=True, skip_rest=_skip_rack_and_tags)
                tags, after = read_uvarint(self._data, array.end)
            except Truncated:
                yield
            else:
                break
        if array.brokers:
            self.endpoints = Endpoints(array, -1)
            front = write_uvarint(1) + write_uvarint(tags + 1) + bytes([_UNKNOWN_TAG])
            self.hidings.append((begin, front + _padding(after - begin - len(front))))
        self.at = array.end
        yield from self._tags()


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
