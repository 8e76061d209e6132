"""Reads and writes the Fetch requests and responses of a follower, v0 to v18, field by field.

Nothing is shared with the code of the proxy that reads these frames.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from struct import calcsize, pack, unpack_from
from typing import Final, NamedTuple

FETCH: Final = 1
CLIENT_ID: Final = b"broker-9-fetcher-0"
_FIRST_THROTTLE: Final = 1
_FIRST_MAX_BYTES: Final = 3
_FIRST_ISOLATION: Final = 4
_FIRST_START: Final = 5
FIRST_SESSION: Final = 7
_FIRST_EPOCH: Final = 9
_FIRST_RACK: Final = 11
_FIRST_FLEXIBLE: Final = 12
_FIRST_LAST_EPOCH: Final = 12
_FIRST_ID: Final = 13
_FIRST_REPLICA_STATE: Final = 15

Place = tuple[str, int]  # topic and partition


class Part(NamedTuple):
    """A partition of a Fetch request."""

    fetch_offset: int
    max_bytes: int
    leader_epoch: int = -1


class Request(NamedTuple):
    correlation_id: int
    replica_id: int
    max_wait_ms: int
    max_bytes: int
    session_id: int
    session_epoch: int
    parts: dict[Place, Part]
    forgotten: tuple[Place, ...] = ()


class Entry(NamedTuple):
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes


class Response(NamedTuple):
    correlation_id: int
    error_code: int
    session_id: int
    entries: dict[Place, Entry]


class Writer:
    """Writes fields of Kafka's types. In a flexible version it uses the compact types."""

    def __init__(self, version: int) -> None:
        self.out = bytearray()
        self.version = version
        self.is_flexible = version >= _FIRST_FLEXIBLE

    def ints(self, layout: str, *values: int) -> None:
        self.out += pack(f">{layout}", *values)

    def count(self, count: int) -> None:
        self.out += uvarint(count + 1) if self.is_flexible else pack(">i", count)

    def topic(self, topic: str) -> None:
        if self.version >= _FIRST_ID:
            self.out += topic_id(topic)
        else:
            self.string(topic)

    def string(self, text: str) -> None:
        data = text.encode()
        self.out += (uvarint(len(data) + 1) if self.is_flexible else pack(">h", len(data))) + data

    def tags(self, tags: bytes = b"\0") -> None:
        if self.is_flexible:
            self.out += tags

    def frame(self) -> bytes:
        return pack(">i", len(self.out)) + bytes(self.out)


class Reader:
    """Reads fields of Kafka's types. In a flexible version it uses the compact types."""

    def __init__(self, data: bytes, version: int) -> None:
        self.data, self.at = data, 0
        self.version = version
        self.is_flexible = version >= _FIRST_FLEXIBLE

    def ints(self, layout: str) -> tuple[int, ...]:
        values = unpack_from(f">{layout}", self.data, self.at)
        self.at += calcsize(f">{layout}")
        return values

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def count(self) -> int:
        return self.uvarint() - 1 if self.is_flexible else self.ints("i")[0]

    def bytes_of(self, size_bytes: int) -> bytes:
        found = self.data[self.at : self.at + size_bytes]
        assert len(found) == size_bytes
        self.at += size_bytes
        return found

    def topic(self) -> str:
        if self.version >= _FIRST_ID:
            return self.bytes_of(16).rstrip(b".").decode()
        return self.bytes_of(self.uvarint() - 1 if self.is_flexible else self.ints("h")[0]).decode()

    def tags(self) -> dict[int, bytes]:
        if not self.is_flexible:
            return {}
        return {self.uvarint(): self.bytes_of(self.uvarint()) for _ in range(self.uvarint())}


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def topic_id(topic: str) -> bytes:
    """Return the topic id of a topic. In these tests it is made of the topic's name."""
    return topic.encode().ljust(16, b".")


def batches(*sizes_bytes: int) -> bytes:
    """Return record batches of these sizes, one offset each. Only the fields up to ``lastOffsetDelta`` are valid."""
    return b"".join(
        (pack(">qi", offset, size) + bytes(4) + b"\2" + bytes(4 + 2 + 4)).ljust(12 + size, bytes([offset & 0xFF]))
        for offset, size in enumerate(whole - 12 for whole in sizes_bytes)
    )


def by_topic(places: Iterable[Place]) -> list[tuple[str, list[Place]]]:
    """Group neighbouring partitions that belong to one topic, as Kafka does."""
    return [(topic, list(group)) for topic, group in groupby(places, key=lambda place: place[0])]


def write_request(version: int, request: Request) -> bytes:
    out = Writer(version)
    out.ints("hhi", FETCH, version, request.correlation_id)
    out.out += pack(">h", len(CLIENT_ID)) + CLIENT_ID
    out.tags()
    if version < _FIRST_REPLICA_STATE:
        out.ints("i", request.replica_id)
    out.ints("ii", request.max_wait_ms, 1)
    if version >= _FIRST_MAX_BYTES:
        out.ints("i", request.max_bytes)
    if version >= _FIRST_ISOLATION:
        out.ints("b", 0)
    if version >= FIRST_SESSION:
        out.ints("ii", request.session_id, request.session_epoch)
    groups = by_topic(request.parts)
    out.count(len(groups))
    for topic, places in groups:
        out.topic(topic)
        out.count(len(places))
        for place in places:
            part = request.parts[place]
            out.ints("i", place[1])
            if version >= _FIRST_EPOCH:
                out.ints("i", part.leader_epoch)
            out.ints("q", part.fetch_offset)
            if version >= _FIRST_LAST_EPOCH:
                out.ints("i", part.leader_epoch)
            if version >= _FIRST_START:
                out.ints("q", 0)
            out.ints("i", part.max_bytes)
            out.tags()
        out.tags()
    if version >= FIRST_SESSION:
        _write_forgotten(out, request.forgotten)
    if version >= _FIRST_RACK:
        out.string("")
    out.tags(b"\1\1\x0d" + pack(">iq", request.replica_id, 9) + b"\0" if version >= _FIRST_REPLICA_STATE else b"\0")
    return out.frame()


def _write_forgotten(out: Writer, forgotten: Iterable[Place]) -> None:
    groups = by_topic(forgotten)
    out.count(len(groups))
    for topic, places in groups:
        out.topic(topic)
        out.count(len(places))
        out.ints(f"{len(places)}i", *(number for _, number in places))
        out.tags()


def read_request(frame: bytes, version: int) -> Request:
    data = Reader(frame, version)
    size_bytes, api_key, found, correlation_id, name_bytes = data.ints("ihhih")
    assert (size_bytes, api_key, found) == (len(frame) - 4, FETCH, version)
    assert data.bytes_of(name_bytes) == CLIENT_ID
    data.tags()
    replica_id = data.ints("i")[0] if version < _FIRST_REPLICA_STATE else -1
    max_wait_ms, _ = data.ints("ii")
    max_bytes = data.ints("i")[0] if version >= _FIRST_MAX_BYTES else 2**31 - 1
    data.ints("b" if version >= _FIRST_ISOLATION else "")
    session_id, session_epoch = data.ints("ii") if version >= FIRST_SESSION else (0, -1)
    parts = {}
    for _ in range(data.count()):
        topic = data.topic()
        for _ in range(data.count()):
            number, epoch = data.ints("ii") if version >= _FIRST_EPOCH else (*data.ints("i"), -1)
            fetch_offset = data.ints("q")[0]
            data.ints(("i" if version >= _FIRST_LAST_EPOCH else "") + ("q" if version >= _FIRST_START else ""))
            parts[topic, number] = Part(fetch_offset, data.ints("i")[0], epoch)
            data.tags()
        data.tags()
    forgotten = tuple(_read_forgotten(data)) if version >= FIRST_SESSION else ()
    if version >= _FIRST_RACK:
        data.bytes_of(data.uvarint() - 1 if data.is_flexible else data.ints("h")[0])
    tags = data.tags()
    if version >= _FIRST_REPLICA_STATE:
        replica_id = unpack_from(">i", tags[1])[0]
    assert data.at == len(frame)
    return Request(correlation_id, replica_id, max_wait_ms, max_bytes, session_id, session_epoch, parts, forgotten)


def _read_forgotten(data: Reader) -> Iterator[Place]:
    for _ in range(data.count()):
        topic = data.topic()
        yield from [(topic, data.ints("i")[0]) for _ in range(data.count())]
        data.tags()


def write_response(version: int, response: Response) -> bytes:
    out = Writer(version)
    out.ints("i", response.correlation_id)
    out.tags()
    if version >= _FIRST_THROTTLE:
        out.ints("i", 0)
    if version >= FIRST_SESSION:
        out.ints("hi", response.error_code, response.session_id)
    groups = by_topic(response.entries)
    out.count(len(groups))
    for topic, places in groups:
        out.topic(topic)
        out.count(len(places))
        for place in places:
            entry = response.entries[place]
            out.ints("ihq", place[1], entry.error_code, entry.high_watermark)
            if version >= _FIRST_ISOLATION:
                out.ints("q", entry.last_stable_offset)
            if version >= _FIRST_START:
                out.ints("q", entry.log_start_offset)
            if version >= _FIRST_ISOLATION:
                out.count(-1)  # the array of aborted transactions is null
            if version >= _FIRST_RACK:
                out.ints("i", -1)
            out.count(len(entry.records))
            out.out += entry.records
            out.tags()
        out.tags()
    out.tags()
    return out.frame()


def read_response(frame: bytes, version: int) -> Response:
    data = Reader(frame, version)
    size_bytes, correlation_id = data.ints("ii")
    assert size_bytes == len(frame) - 4
    data.tags()
    if version >= _FIRST_THROTTLE:
        assert data.ints("i") == (0,), "a follower is not throttled by a wait"
    error_code, session_id = data.ints("hi") if version >= FIRST_SESSION else (0, 0)
    entries: dict[Place, Entry] = {}
    for _ in range(data.count()):
        topic = data.topic()
        for _ in range(data.count()):
            number, error, high_watermark = data.ints("ihq")
            stable = data.ints("q")[0] if version >= _FIRST_ISOLATION else -1
            start = data.ints("q")[0] if version >= _FIRST_START else -1
            if version >= _FIRST_ISOLATION:
                assert data.count() <= 0, "followers hear of no aborted transactions"
            data.ints("i" if version >= _FIRST_RACK else "")
            assert (topic, number) not in entries
            entries[topic, number] = Entry(error, high_watermark, stable, start, data.bytes_of(max(data.count(), 0)))
            data.tags()
        data.tags()
    data.tags()
    assert data.at == len(frame)
    return Response(correlation_id, error_code, session_id, entries)
