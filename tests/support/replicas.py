"""Simulates a leader and its followers, which behave as in Kafka. The clock is simulated.

The leader answers like ``ReplicaManager.readFromLog`` (KIP-74), with fetch sessions (KIP-227). A follower behaves like
``AbstractFetcherThread`` and ``FetchSessionHandler``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from tests.support.replica_frames import (
    FIRST_SESSION,
    Entry,
    Part,
    Place,
    Request,
    Response,
    read_request,
    read_response,
    write_request,
    write_response,
)

SESSION_NOT_FOUND: Final = 70
_BATCH: Final = Struct(">qi")


def batch_of(base_offset: int, size_bytes: int) -> bytes:
    """Return the batch at an offset. Batches are made when they are read, because whole logs would fill the memory."""
    # The partition leader epoch, the magic byte, the CRC, the attributes, and the offset delta of the last record.
    data = _BATCH.pack(base_offset, size_bytes - _BATCH.size) + bytes(4) + b"\2" + bytes(4 + 2 + 4)
    return data.ljust(size_bytes, bytes([base_offset & 0xFF]))


class Log:
    """The log of one partition. Each batch has one offset.

    If ``is_in_sync``, the high watermark is the offset that the follower fetches. Otherwise it is the end of the log.
    """

    def __init__(self) -> None:
        self.batches: list[int] = []  # the size of each batch
        self.start_offset = 0
        self.is_in_sync = False

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.batches)

    def append(self, size_bytes: int, count: int = 1) -> None:
        """Append ``count`` batches of this size."""
        self.batches += [size_bytes] * count

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> bytes:
        """Return the bytes that ``LogSegment.read`` returns. The last batch may be incomplete."""
        at = offset - self.start_offset
        if at >= len(self.batches):
            return b""
        first = self.batches[at]
        most = max(max_bytes, first) if min_one else max_bytes
        if most < first:
            return b""
        found = bytearray()
        while at < len(self.batches) and len(found) < most:
            found += batch_of(self.start_offset + at, self.batches[at])[: most - len(found)]
            at += 1
        return bytes(found)


@dataclass
class Leader:
    """A broker that followers fetch from."""

    version: int
    logs: dict[Place, Log] = field(default_factory=dict)
    sessions: dict[int, dict[Place, Part]] = field(default_factory=dict)
    # The high watermarks that followers were sent, by session.
    told: dict[int, dict[Place, int]] = field(default_factory=dict)
    built: int = 0  # the number of sessions so far
    requests: int = 0
    read_bytes: int = 0

    def answer(self, frame: bytes, *, has_waited: bool) -> bytes | None:
        """Return the response, or None if there is no data yet and the request may still wait."""
        request = read_request(frame, self.version)
        asked = self._asked(request)
        if asked is None:
            return write_response(self.version, Response(request.correlation_id, SESSION_NOT_FOUND, 0, {}))
        found = self._read(request, asked)
        if not has_waited and not any(found.values()):
            return None
        session_id = self._session_for(request)
        self.requests += 1
        self.read_bytes += sum(map(len, found.values()))
        entries = {place: self._entry(place, asked[place], records) for place, records in found.items()}
        if request.session_epoch > 0:
            entries = {place: entry for place, entry in entries.items() if self._is_news(session_id, place, entry)}
        return write_response(self.version, Response(request.correlation_id, 0, session_id, entries))

    def wait_ms(self, frame: bytes) -> int:
        return read_request(frame, self.version).max_wait_ms

    def _entry(self, place: Place, part: Part, records: bytes) -> Entry:
        log = self.logs[place]
        high_watermark = part.fetch_offset if log.is_in_sync else log.end_offset
        return Entry(0, high_watermark, high_watermark, log.start_offset, records)

    def _is_news(self, session_id: int, place: Place, entry: Entry) -> bool:
        told = self.told.setdefault(session_id, {})
        is_news = bool(entry.records) or told.get(place) != entry.high_watermark
        told[place] = entry.high_watermark
        return is_news

    def _asked(self, request: Request) -> dict[Place, Part] | None:
        """Return the partitions that a request fetches, or None if its session is unknown."""
        if request.session_epoch <= 0:
            return request.parts
        session = self.sessions.get(request.session_id)
        return None if session is None else {**session, **request.parts}

    def _session_for(self, request: Request) -> int:
        """Create, keep or close the session as the epoch of the request says, and return its id for the response."""
        if request.session_epoch == -1:
            self.sessions.pop(request.session_id, None)
            return 0
        if request.session_epoch == 0:
            self.built += 1
            self.sessions[self.built] = dict(request.parts)
            return self.built
        self.sessions[request.session_id].update(request.parts)
        return request.session_id

    def _read(self, request: Request, asked: dict[Place, Part]) -> dict[Place, bytes]:
        limit, min_one = request.max_bytes, True
        found = {}
        for place, part in asked.items():
            records = self.logs[place].read(part.fetch_offset, min(part.max_bytes, limit), min_one=min_one)
            min_one = min_one and not records
            limit = max(0, limit - len(records))
            found[place] = records
        return found


class Delivery(NamedTuple):
    """The records of one response that a follower appended."""

    at_ms: int
    place: Place
    size_bytes: int
    was_lagging: bool


class Follower:
    """The fetcher thread of a broker, and the state of its partitions."""

    def __init__(
        self,
        node_id: int,
        version: int,
        places: Iterable[Place],
        *,
        max_bytes: int = 10_485_760,
        partition_max_bytes: int = 1_048_576,
        max_wait_ms: int = 500,
        rotates: bool = True,
    ) -> None:
        self.node_id = node_id
        self.version = version
        self.offsets: dict[Place, int] = dict.fromkeys(places, 0)
        self.high_watermarks: dict[Place, int] = {}
        self.deliveries: list[Delivery] = []
        self.errors: list[int] = []
        self.requests = 0
        self.max_bytes, self.partition_max_bytes, self.max_wait_ms = max_bytes, partition_max_bytes, max_wait_ms
        self._rotates = rotates
        self._session_id, self._epoch = 0, 0
        self._told: dict[Place, int] = {}  # the fetch offsets that the session has
        self._forgotten: list[Place] = []
        self._correlation_id = 0
        self.partitions_in_last_request = self.partitions_in_last_response = 0

    def forget(self, place: Place) -> None:
        """Fetch a partition no more."""
        del self.offsets[place]
        if self._told.pop(place, None) is not None:
            self._forgotten.append(place)

    def next_request(self) -> bytes:
        """Return the next Fetch request. It has all partitions, or those with a change since the last request."""
        self.requests += 1
        self._correlation_id += 1
        places = dict(self.offsets)
        if self._epoch > 0:
            places = {place: offset for place, offset in places.items() if self._told.get(place) != offset}
        self._told.update(places)
        epoch = self._epoch if self.version >= FIRST_SESSION else -1
        forgotten = tuple(self._forgotten) if epoch > 0 else ()
        self._forgotten.clear()
        self.partitions_in_last_request = len(places)
        parts = {place: Part(offset, self.partition_max_bytes, 3) for place, offset in places.items()}
        return write_request(
            self.version,
            Request(
                self._correlation_id,
                self.node_id,
                self.max_wait_ms,
                self.max_bytes,
                self._session_id,
                epoch,
                parts,
                forgotten,
            ),
        )

    def lose_connection(self) -> None:
        """Forget the request that has no response yet, and the session."""
        self._session_id = self._epoch = 0

    def take(self, frame: bytes, *, now_ms: int) -> None:
        """Append the records of a response as a broker does.

        The response to a request for all partitions must have exactly these partitions.
        """
        response = read_response(frame, self.version)
        assert response.correlation_id == self._correlation_id
        if response.error_code:
            self.errors.append(response.error_code)
            self._session_id = self._epoch = 0
            return
        if self._epoch == 0:
            assert list(response.entries) == list(self.offsets), "a full fetch is answered in full, in its order"
        if self.version >= FIRST_SESSION:
            self._session_id = response.session_id
            self._epoch = self._epoch + 1 if self._session_id else 0
        self.partitions_in_last_response = len(response.entries)
        for place, entry in response.entries.items():
            assert place in self.offsets, "only what is fetched is answered"
            self._append(place, entry, now_ms)

    def _append(self, place: Place, entry: Entry, now_ms: int) -> None:
        assert entry.high_watermark >= self.high_watermarks.get(place, 0), "a high watermark never goes down"
        self.high_watermarks[place] = entry.high_watermark
        offset = self.offsets[place]
        whole = list(whole_batches(entry.records))
        for base_offset, batch in whole:
            assert base_offset == offset, "no record is lost or doubled"
            assert batch == batch_of(offset, len(batch)), "nor is it another"
            offset += 1
        if whole:
            size_bytes = sum(len(batch) for _, batch in whole)
            was_lagging = self.offsets[place] < entry.high_watermark
            self.deliveries.append(Delivery(now_ms, place, size_bytes, was_lagging))
            self.offsets[place] = offset
            if self._rotates:
                self.offsets[place] = self.offsets.pop(place)


def whole_batches(records: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the base offset and the bytes of each complete batch."""
    at = 0
    while at + _BATCH.size <= len(records):
        base_offset, length = _BATCH.unpack_from(records, at)
        end = at + _BATCH.size + length
        if end > len(records):
            return
        yield base_offset, records[at:end]
        at = end
