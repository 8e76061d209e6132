"""Fuzzes two followers of one leader behind a replication throttle. Each follower has one connection.

The fuzzer's bytes decide the fetches and the responses, and which frames are cut or damaged. They also decide when time
passes, when limits and lists of replicas change, when a connection ends, and when the proxy stops. The sessions must
have these properties:

* they raise nothing but a ``ProtocolError``;
* a response has exactly the partitions of its fetch, in order, even if some were left out of the request to the leader;
* a response in a session has only partitions of the session;
* a blocked follower is released by a response, or within half a second;
* reserved bytes are returned exactly once, and a closed connection is in no queue;
* the memory for buffered bytes is bounded.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.model import KafkaSettings, Replication
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas, parse
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.throttle import Leader, Throttle
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import MAX_REPLICA_FETCH_BYTES
from tests.fuzz.source import Source, cut, damaged
from tests.support.frames import other_request, other_response
from tests.support.move import view
from tests.support.replica_frames import (
    FIRST_SESSION,
    Entry,
    Part,
    Place,
    Request,
    Response,
    batches,
    read_request,
    read_response,
    write_request,
    write_response,
)
from tests.support.wire import START_MS, UPSTREAM, Wire

MAX_STEPS: Final = 150
_LATEST_VERSION: Final = 18
_TOPICS: Final = ("moving", "busy")
_RATES: Final = (None, 0.0, 1e-9, 700.0, 50_000.0, 1e12)
_LISTS: Final[tuple[Mapping[str, ThrottledReplicas] | None, ...]] = (
    None,
    {"moving": parse("*")},
    {"moving": parse("0:1,1:3"), "busy": parse("1:3")},
    {},
)
_OFFSETS: Final = (0, 1, 5, 90, 100, 101, -1, 2**63 - 1, -(2**63))
_HIGH_WATERMARKS: Final = (100, 0, -1, 2**63 - 1, -(2**63))
_SIZES: Final = (2**20, 0, 1, 70, 5_000, -1, 2**31 - 1, -(2**31))
_WAITS_MS: Final = (500, 0, 1, 30_000, -1, 2**31 - 1, -(2**31))
_SESSIONS: Final = ((0, -1), (0, 0), (7, 1), (7, 2**31 - 1), (7, 0), (7, -1), (0, 1), (-1, -(2**31)))
_REPLICAS: Final = (3, 3, 3, 4, 0, 2**31 - 1, -1, -2)
_PAUSES_MS: Final = (1, 2, 49, 100, 500, 3_000, 60_000)
_ERRORS: Final = (6, 1, 74, -1)
_MAX_WAKES: Final = 100


def play(source: Source) -> int:
    """Act on all decisions of the source, and return the number of frames that passed or were refused."""
    return _Play(source).run()


class _Way:
    """The connection of one follower, and its open requests."""

    def __init__(self, leader: Leader, version: int) -> None:
        self.wire = Wire(is_inter_broker=True, leader=leader)
        self.version = version
        self.is_sound = True  # no frame is damaged yet
        self.has_failed = False
        self.waits: deque[bytes] = deque()  # requests that the leader has not answered
        # By correlation id: the partitions of a fetch, its session epoch, and the partitions of its session.
        self.asked: dict[int, tuple[list[Place], int, set[Place]]] = {}
        self.session = (0, 0)  # the id and the next epoch of the last session that the follower was given
        self.session_places: set[Place] = set()
        self.number = 0
        self.frames = 0

    @property
    def reads_client(self) -> bool:
        return not self.has_failed and self.wire.session.state.blocked_by is None

    def give(self, pieces: list[bytes], *, is_client: bool) -> None:
        """Send pieces of bytes from the follower or the leader, as long as the session has not failed."""
        session, now_ms = self.wire.session, self.wire.now_ms
        try:
            for piece in pieces:
                if self.has_failed:
                    break
                (session.receive_from_client if is_client else session.receive_from_broker)(piece, now_ms=now_ms)
        except ProtocolError:
            self.fail()
        self.take()

    def wake(self) -> None:
        """Call the timer if it is due."""
        try:
            self.wire.session.handle_timer(now_ms=self.wire.now_ms)
        except ProtocolError:
            self.fail()
        self.take()

    def fail(self) -> None:
        """Close the connection after an error."""
        self.has_failed = True
        self.frames += 1
        self.wire.session.close(now_ms=self.wire.now_ms, has_passed=False)

    def take(self) -> None:
        """Collect the output of the session and check it."""
        asked, told = self.wire.to_broker(), self.wire.to_client()
        if self.is_sound:
            self.waits.extend(frames := split(asked))
            self.frames += len(frames)
            for frame in split(told):
                self.frames += 1
                self._check(frame)
        elif not self.has_failed:
            self.frames += bool(asked) + bool(told)
            self.waits.extend([asked] if asked else [])
        self._check_rest()

    def _check(self, frame: bytes) -> None:
        number = int.from_bytes(frame[4:8])
        asked = self.asked.pop(number, None)
        if asked is None:
            return
        places, epoch, session_places = asked
        response = read_response(frame, self.version)
        self.session = (response.session_id, max(epoch, 0) % (2**31 - 1) + 1)
        if epoch > 0:
            assert response.entries.keys() <= session_places, "what belongs to the session"
        else:
            assert response.error_code or list(response.entries) == places, "what was asked for, in its order"

    def _check_rest(self) -> None:
        if self.has_failed:
            return
        session, now_ms = self.wire.session, self.wire.now_ms
        assert len(session._requests._data) <= 2 * MAX_REPLICA_FETCH_BYTES
        if session.state.blocked_by is not None and not session.state.is_ending and not session.state.in_flight:
            incomplete = session._responses.data or session._responses.left
            assert incomplete or now_ms < session.needs.wake_at_ms <= now_ms + 500, (
                "it is woken, and within half a second"
            )
        follower = session.follower
        if follower is not None:
            assert follower._passed is None or session.state.in_flight or session._responses.data


class _Play:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._version = source.below(_LATEST_VERSION + 1)
        self._throttle = Throttle(self._rules(), KafkaSettings())
        self._throttle.see(view(_TOPICS), now_ms=START_MS)
        self._leader = self._throttle.leader(UPSTREAM, 1)
        self._ways = [_Way(self._leader, self._version) for _ in range(2)]
        self._gone: list[_Way] = []
        self._now_ms = START_MS
        self._quotas: set[ReplicationQuota] = set()

    def run(self) -> int:
        source = self._source
        for _ in range(MAX_STEPS):
            if not source.has_more:
                break
            self._step(source.byte())
            self._check_quotas()
        for way in self._ways:
            if not way.has_failed:
                way.wire.session.close(now_ms=self._now_ms, has_passed=True)
        self._check_quotas()
        for quota in self._quotas:
            assert quota._reserved == 0, "all that was set aside is given back"
            assert not quota._line, "and nobody waits"
        return sum(way.frames for way in (*self._ways, *self._gone)) or 1

    def _step(self, action: int) -> None:
        way = self._ways[action & 1]
        what = action >> 1 & 0x1F
        is_damaged = action >= 0xF0
        if way.has_failed or what == 31:
            self._connect_anew(action & 1)
        elif what < 13:
            self._fetch(way, is_damaged=is_damaged)
        elif what < 23:
            self._answer(way, is_damaged=is_damaged)
        elif what < 27:
            self._pause(_PAUSES_MS[self._source.below(len(_PAUSES_MS))])
        elif what == 27:
            self._throttle.update(self._rules(), now_ms=self._now_ms)
        elif what == 28:
            way.number += 1
            self._send(way, other_request(way.number), is_damaged=is_damaged)
        elif what == 29:
            self._stop(way)
        else:
            self._send(way, self._source.take(self._source.below(64)), is_damaged=True)

    def _rules(self) -> Replication | None:
        source = self._source
        choice = source.byte()
        if choice >= 240:
            return None
        return Replication(
            leader_rate=_RATES[choice % 6],
            follower_rate=_RATES[choice // 6 % 6],
            leader_replicas=_LISTS[choice // 36 % 4],
            follower_replicas=_LISTS[source.below(4)],
        )

    def _fetch(self, way: _Way, *, is_damaged: bool) -> None:
        source = self._source
        choice = source.byte()
        version = self._version if choice < 250 else source.below(_LATEST_VERSION + 1)
        way.is_sound &= version == self._version
        session = _SESSIONS[max(choice % 16 - 8, 0)] if version >= FIRST_SESSION else (0, -1)
        if choice & 16 and way.session[0] and version >= FIRST_SESSION:
            session = way.session
        places = dict.fromkeys((_TOPICS[source.below(2)], source.below(5)) for _ in range(1 + source.below(6)))
        parts = {
            place: Part(
                _OFFSETS[max(source.below(24) - 15, 0)], _SIZES[max(source.below(24) - 16, 0)], 4 + source.byte() // 230
            )
            for place in places
        }
        replica_id = _REPLICAS[max(source.below(32) - 24, 0)]
        wait_ms = _WAITS_MS[max(source.below(24) - 17, 0)]
        way.number += 1
        forgotten = tuple(
            place for place in sorted(way.session_places - places.keys()) if session[1] > 0 and choice & 32
        )
        session_places = (way.session_places if session[1] > 0 else set()) - {*forgotten} | places.keys()
        max_bytes = _SIZES[max(choice // 16 - 8, 0)]
        request = Request(way.number, replica_id, wait_ms, max_bytes, *session, parts, forgotten)
        if replica_id >= 0 and version == self._version and way.reads_client:
            way.asked[way.number] = (list(parts), session[1], session_places)
            way.session_places = session_places
        self._send(way, write_request(version, request), is_damaged=is_damaged)

    def _send(self, way: _Way, frame: bytes, *, is_damaged: bool) -> None:
        if not way.reads_client:
            return
        if is_damaged:
            frame = damaged(frame, self._source)
            way.is_sound = False
        way.give(cut(frame, self._source), is_client=True)

    def _answer(self, way: _Way, *, is_damaged: bool) -> None:
        if not way.waits:
            return
        asked = way.waits.popleft()
        response = self._response(asked) if way.is_sound else self._any_response(way)
        if is_damaged:
            response = damaged(response, self._source)
            way.is_sound = False
        way.give(cut(response, self._source), is_client=False)

    def _response(self, asked: bytes) -> bytes:
        source, version = self._source, self._version
        if int.from_bytes(asked[4:6]) != 1:
            return other_response(int.from_bytes(asked[8:12]))
        request = read_request(asked, version)
        error_code = source.byte() // 250 if version >= FIRST_SESSION else 0
        if error_code:
            return write_response(version, Response(request.correlation_id, 70, 0, {}))
        entries = {place: self._entry() for place in request.parts}
        return write_response(version, Response(request.correlation_id, 0, source.below(3), entries))

    def _entry(self) -> Entry:
        source = self._source
        choice = source.byte()
        if choice >= 240:
            return Entry(_ERRORS[choice & 3], -1, -1, -1, b"")
        high_watermark = _HIGH_WATERMARKS[max(choice % 8 - 3, 0)]
        records = batches(*(30 + (source.byte() << 5) for _ in range(choice >> 5))) if choice >= 64 else b""
        if choice & 8:
            records = records[: source.below(len(records) + 1)]
        elif choice & 16:
            records = source.take(source.below(40))
        return Entry(0, high_watermark, high_watermark, 0, records)

    def _any_response(self, way: _Way) -> bytes:
        flights = way.wire.session.state.in_flight
        number = flights[0].correlation_id if flights else way.number
        places = {(_TOPICS[self._source.below(2)], self._source.below(5)): self._entry() for _ in range(3)}
        return write_response(self._version, Response(number, 0, 0, places))

    def _pause(self, pause_ms: int) -> None:
        end_ms = self._now_ms + pause_ms
        for _ in range(_MAX_WAKES):
            ways = [way for way in self._ways if not way.has_failed]
            due = [way for way in ways if self._now_ms < way.wire.session.needs.wake_at_ms <= end_ms]
            if not due:
                break
            self._now_ms = min(way.wire.session.needs.wake_at_ms for way in due)
            for way in self._ways:
                way.wire.now_ms = self._now_ms
            for way in due:
                if way.wire.session.needs.wake_at_ms == self._now_ms:
                    way.wake()
        self._now_ms = max(self._now_ms, end_ms)
        for way in self._ways:
            way.wire.now_ms = self._now_ms

    def _stop(self, way: _Way) -> None:
        choice = self._source.byte()
        if choice < 128:
            way.wire.session.take_no_more()
        else:
            try:
                way.wire.session.release(now_ms=self._now_ms)
            except ProtocolError:
                way.fail()
        way.take()

    def _connect_anew(self, index: int) -> None:
        way = self._ways[index]
        if not way.has_failed:
            way.wire.session.close(now_ms=self._now_ms, has_passed=True)
        self._gone.append(way)
        self._ways[index] = _Way(self._leader, self._version)
        self._ways[index].wire.now_ms = self._now_ms

    def _check_quotas(self) -> None:
        throttle = self._throttle
        quotas = [*throttle.followers.values()]
        if self._leader.known_quota is not None:
            quotas.append(self._leader.known_quota)
        self._quotas.update(quotas)
        for quota in quotas:
            assert quota._reserved >= 0
            assert len(quota._line) <= len(self._ways)
            if quota.limit is not None:
                assert quota.room(now_ms=self._now_ms) <= 0.35 * quota.limit + 1e-9, "no more is saved up"


def split(stream: bytes) -> list[bytes]:
    """Split a stream into its frames, and assert that each frame is whole."""
    frames, at = [], 0
    while at < len(stream):
        end = at + 4 + int.from_bytes(stream[at : at + 4])
        assert end <= len(stream), "a frame is passed on in one piece"
        frames.append(stream[at:end])
        at = end
    return frames
