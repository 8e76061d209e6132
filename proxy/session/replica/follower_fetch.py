"""One follower's fetches over one connection: which of them passes with what, waits, or is answered at once.

The rules (KIP-73, but for a proxy):

* A replica is in sync when its ``fetch_offset`` is not below the partition's high watermark, which never passes a
  member of the ISR. What is in sync is never held back.
* A throttled partition that lags is asked for only while its quotas have room, and for no more than that. It is left
  out otherwise, so that the leader's own long poll works for the others, and its empty entry is put back into the
  answer: a full fetch must be answered with exactly what was asked for.
* Where nothing else is left, the fetch waits for room, for ``max_wait_ms`` at most, and is then answered without
  records.
* Records that lag end at a whole batch: a follower throws away the rest, which nobody should have to pay for.
* Incremental fetches (KIP-227) do not say what they fetch. When a throttle becomes active they are refused, and the
  full ones that follow are passed on without a session. Once nothing has lagged for a while, the follower may have a
  session again: with thousands of partitions in sync, full fetches cost all three of us too much to go on for ever.

Source: ``ReplicaManager.readFromLog`` and ``shouldLeaderThrottle``, ``FetchSessionHandler``,
``AbstractFetcherThread`` in Apache Kafka.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol import replica_fetch
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import UnexpectedResponse
from kafka_quota_proxy.protocol.fetch import FIRST_TOPIC_ID
from kafka_quota_proxy.protocol.replica_fetch import Entry, ReplicaFetch, ReplicaResponse, RequestPartition
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.throttle import Charge, Leader, Limits
from kafka_quota_proxy.proxy.session.replica.fetch_session import FetchSession
from kafka_quota_proxy.proxy.session.replica.response_trimming import (
    FIRST_LOOK_BYTES,
    Asked,
    Trimming,
    empty_entry,
    settle,
)
from kafka_quota_proxy.proxy.session.replica.seen import Key, Seen
from kafka_quota_proxy.proxy.session.whole_request import Answered, Decision, Forward, Hold

FETCH_SESSION_ID_NOT_FOUND: Final = 70
_NEWEST: Final = HIGHEST_VERSION[ApiKey.FETCH]
# How long a fetch is held here at the most, whatever its max_wait_ms: a limit that is lifted takes effect within it.
_MAX_HELD_MS: Final = 500
# And at the least, where there is no room: max_wait_ms of 0 must not make anybody spin.
_MIN_HELD_MS: Final = 50
# What the leader is to answer with at the most, for its answer is held whole. Followers ask for 10 MiB by default.
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
# Of one fetch: each is decided on by itself, 100,000 take about a second and 100 MB. No broker has as many of another.
_MAX_PARTITIONS: Final = 100_000
# How long nothing must have lagged for a follower to have a session again.
_QUIET_MS: Final = 3_000
_FAR_MS: Final = 1 << 62


class Follower:
    """What one connection's fetches have seen, and the one that is under way. Nothing is kept while no limit holds."""

    api_key = int(ApiKey.FETCH)
    __slots__ = (
        "_asked",
        "_held_since_ms",
        "_is_released",
        "_leader",
        "_left_session",
        "_limits",
        "_quiet_since_ms",
        "_session",
        "_ticket",
        "_turn",
        "has_ids",
        "seen",
    )

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._limits: Limits | None = None
        self._asked: Asked | None = None
        self._held_since_ms = 0  # of the fetch that waits here; 0: none does
        self._left_session = 0  # the leader still has it, its follower does not
        self._session: FetchSession | None = None  # both have it, for nothing lags
        self._quiet_since_ms: int | None = None  # None: something lagged just now, or nobody knows
        self._turn = 0
        self._ticket = leader.throttle.next_ticket()
        self._is_released = False
        self.has_ids = False  # its fetches name topics by id
        self.seen: dict[Key, Seen] = {}  # of throttled partitions only

    @property
    def limits(self) -> Limits | None:
        """What held for the last fetch."""
        return self._limits

    @property
    def is_asking(self) -> bool:
        """Whether a fetch that was passed on awaits its answer; until it is there no other may be decided on."""
        return self._asked is not None

    def is_throttled(self, replica_id: int, api_version: int, *, now_ms: int) -> bool:
        """Whether a fetch is to be handed to ``take``; else it passes as it came, and so does its answer."""
        limits = self._limits
        if limits is None or limits.follower != replica_id or limits.generation != self._leader.throttle.generation:
            if limits is not None and limits.follower != replica_id:
                self._forget()
            limits = self._limits = self._leader.limits(replica_id, now_ms=now_ms)
        if limits.is_active and not self._is_released and api_version <= _NEWEST:
            return True
        self._forget()
        self._held_since_ms = self._left_session = 0
        return False

    def take(
        self, data: bytes, position: int, body: int, api_version: int, correlation_id: int, *, now_ms: int
    ) -> Decision:
        """Decide on a fetch, which is whole, behind whose predecessors nothing is unanswered.

        Args:
            data: bytes of the connection.
            position: where the request's size prefix is.
            body: where its body begins.
            api_version: of the request.
            correlation_id: of the request.
            now_ms: when it is decided.

        Raises:
            ProtocolError: it is no Fetch request.
        """
        self.has_ids = api_version >= FIRST_TOPIC_ID
        fetch = replica_fetch.read_request(data, position, body, api_version)
        if len(fetch.partitions) > _MAX_PARTITIONS:
            self._forget()
            return Forward(b"", is_answer_read=False)
        if self._may_have_session(fetch, now_ms):
            return self._keep_session(fetch, correlation_id, api_version)
        if fetch.session_epoch > 0:
            self._left_session = fetch.session_id
            return Answered(
                replica_fetch.make_response(correlation_id, (), api_version, error_code=FETCH_SESSION_ID_NOT_FOUND)
            )
        # Of a partition that is named twice the last counts, in the place of the first, as to the leader.
        asked = Asked(correlation_id, api_version, {(one.topic, one.partition): one for one in fetch.partitions})
        chosen, most_bytes, room_at_ms = self._choose(asked, now_ms)
        if not chosen and asked.partitions:
            since_ms = self._held_since_ms or now_ms
            until_ms = since_ms + min(max(fetch.max_wait_ms, _MIN_HELD_MS), _MAX_HELD_MS)
            if now_ms < until_ms:
                self._held_since_ms = since_ms
                return Hold(min(until_ms, max(room_at_ms, now_ms + 1)))
            self._held_since_ms = 0
            return Answered(replica_fetch.make_response(correlation_id, self._put_back(asked), api_version))
        self._held_since_ms = 0
        is_trimmed = bool(asked.charges)
        if is_trimmed:
            self._asked = asked
        else:
            self._note(now_ms, has_lagging=False)
        wait_ms = min(fetch.max_wait_ms, max(room_at_ms - now_ms, _MIN_HELD_MS))
        session_id, self._left_session = fetch.session_id or self._left_session, 0
        max_bytes = min(fetch.max_bytes, most_bytes)
        frame = replica_fetch.write_request(
            data, fetch, chosen, max_wait_ms=wait_ms, max_bytes=max_bytes, session_id=session_id
        )
        return Forward(frame, is_answer_read=is_trimmed)

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return the answer to the fetch that was passed on: what may flow of the leader's, and what was left out.

        Args:
            data: bytes of the connection.
            position: where the response's size prefix is; it is whole.
            frame_bytes: its length, with the prefix.
            now_ms: when it was there.

        Raises:
            ProtocolError: it is no answer to that.
        """
        asked = self._asked
        if asked is None or self._limits is None:
            raise UnexpectedResponse("a Fetch response answers no fetch of a follower")
        version = asked.api_version
        response = replica_fetch.read_response(data, position, frame_bytes, version)
        self._asked = None  # not before: where this is no answer, ``close`` gives back what was set aside for it
        if response.error_code:
            settle(asked.granted, {})
            return data[position : position + frame_bytes]
        self._turn += 1
        trimming = Trimming(asked, self.seen, data, turn=self._turn, now_ms=now_ms)
        if asked.is_of_session:
            if self._session is not None:
                self._session.look_at(response.partitions, trimming)
            frame = data[position : position + frame_bytes]
        else:
            entries = self._entries(asked, response, trimming)
            frame = replica_fetch.write_response(data, position, response, entries, version)
        trimming.charge()
        self._note(now_ms, has_lagging=trimming.has_lagging)
        return frame

    def _entries(self, asked: Asked, response: ReplicaResponse, trimming: Trimming) -> list[Entry]:
        """Return what the follower gets: the entries that were asked for, in that order, and whatever else came."""
        found = {(one.topic, one.partition): one for one in response.partitions}
        entries: list[Entry] = []
        for key, request in asked.partitions.items():
            one = found.pop(key, None)
            if one is not None:
                entries.append(trimming.entry(key, request, one))
            elif key in self.seen:
                entries.append(trimming.left_out(key))
        entries += map(trimming.whole, found.values())
        return entries

    def _may_have_session(self, fetch: ReplicaFetch, now_ms: int) -> bool:
        """Whether a fetch passes as it is: it is of a session in which nothing lags, or may begin one."""
        session = self._session
        if session is not None and fetch.session_epoch > 0:
            if session.knows(fetch):
                return True
            self._quiet_since_ms = self._session = None
            return False
        return (
            fetch.session_epoch == 0 and self._quiet_since_ms is not None and now_ms - self._quiet_since_ms >= _QUIET_MS
        )

    def _keep_session(self, fetch: ReplicaFetch, correlation_id: int, api_version: int) -> Forward:
        session = self._session = self._session or FetchSession()
        self.seen.clear()
        if self._limits is not None:
            session.ask(fetch, self._limits, is_id=self.has_ids)
        if session.is_throttled:
            self._asked = Asked(correlation_id, api_version, {}, is_of_session=True)
        return Forward(b"", is_answer_read=session.is_throttled)

    def _note(self, now_ms: int, *, has_lagging: bool) -> None:
        """See whether the follower may have a session, still or again."""
        if has_lagging:
            self._quiet_since_ms = self._session = None
        elif self._quiet_since_ms is None:
            self._quiet_since_ms = now_ms

    def release(self) -> None:
        """Throttle nothing any more."""
        self._is_released = True

    def close(self) -> None:
        """Give back what was set aside for an answer that does not come; the last that is called."""
        if self._asked is not None:
            settle(self._asked.granted, {})
            self._asked = None
        self._leave()

    def _choose(self, asked: Asked, now_ms: int) -> "_Choice":
        """Return what to ask the leader for."""
        shares: dict[Key, int | None] = {}  # of what is not asked for as it came; None: not at all
        lagging: list[_Candidate] = []
        self._find_charges(asked)
        for key, charges in asked.charges.items():
            one = asked.partitions[key]
            seen = self.seen.get(key)
            if seen is None or seen.leader_epoch != one.leader_epoch:
                shares[key] = min(one.max_bytes, FIRST_LOOK_BYTES)
            else:
                if seen.brought_bytes or seen.fetch_offset != one.fetch_offset:
                    seen.arrive_at(one.fetch_offset)
                if one.fetch_offset < seen.high_watermark:
                    shares[key] = None
                    lagging.append(_Candidate(seen.turn, key, one, seen, charges))
        room_at_ms = self._grant(lagging, shares, asked.granted, now_ms) if lagging else _FAR_MS
        chosen = [
            (one, share)
            for key, one in asked.partitions.items()
            if (share := shares.get(key, one.max_bytes)) is not None
        ]
        is_all_narrowed = len(shares) == len(asked.partitions)
        most_bytes = max(sum(share for _, share in chosen), 1) if is_all_narrowed else _MAX_ANSWER_BYTES
        return _Choice(chosen, min(most_bytes, _MAX_ANSWER_BYTES), room_at_ms)

    def _grant(
        self,
        lagging: "list[_Candidate]",
        shares: dict[Key, int | None],
        granted: dict[ReplicationQuota, int],
        now_ms: int,
    ) -> int:
        """Divide the room among those that lag, who had none for longest first; return when the others have some."""
        lagging.sort(key=_turn_of)
        rooms = {charge.quota: 0.0 for each in lagging for charge in each.charges}
        turns_ms: dict[ReplicationQuota, int] = {}  # of those that have no room for us now
        for quota in rooms:
            if not quota.ahead(self, self._ticket, now_ms=now_ms):
                rooms[quota] = quota.room(now_ms=now_ms)
            if rooms[quota] > 0:
                quota.leave(self)
            else:
                turns_ms[quota] = quota.wait(self, self._ticket, now_ms=now_ms)
        left_out: set[tuple[Charge, ...]] = set()
        for each in lagging:
            room = min(rooms[charge.quota] for charge in each.charges)
            # A share in which no batch fits is wasted; but whoever has waited longest gets his batch, however large.
            if room <= 0 or (granted and room < each.seen.least_bytes):
                left_out.add(each.charges)
                continue
            # There is no end of room where quotas only measure. What is below 0 is the leader's to refuse.
            most = shares[each.key] = each.seen.asked_bytes = int(
                min(each.partition.max_bytes, max(room, each.seen.least_bytes, 1))
            )
            expected = max(each.seen.lag_bytes(most), 0)
            for charge in each.charges:
                rooms[charge.quota] -= expected
                granted[charge.quota] = granted.get(charge.quota, 0) + expected
        for quota, size_bytes in granted.items():
            quota.reserve(size_bytes)
        if granted:
            self._ticket = self._leader.throttle.next_ticket()
        return min((self._turn_ms(charges, turns_ms, now_ms) for charges in left_out), default=_FAR_MS)

    def _turn_ms(self, charges: tuple[Charge, ...], turns_ms: dict[ReplicationQuota, int], now_ms: int) -> int:
        quotas = [charge.quota for charge in charges]
        return max(turns_ms[one] if one in turns_ms else one.room_at_ms(now_ms=now_ms) for one in quotas)

    def _leave(self) -> None:
        """Wait in no line any more."""
        for quota in self._limits.quotas if self._limits else ():
            quota.leave(self)

    def _forget(self) -> None:
        """Forget what was seen, and wait for nothing."""
        self._leave()
        self.seen.clear()
        self._quiet_since_ms = self._session = None

    def _put_back(self, asked: Asked) -> list[Entry]:
        return [empty_entry(key, self.seen[key], asked.api_version) for key in asked.partitions]

    def _find_charges(self, asked: Asked) -> None:
        """Find out what is throttled; of what is not, or no longer fetched, forget what was seen: it may be wrong."""
        if self._limits is not None:
            self._limits.find(asked.partitions, asked.charges, is_id=self.has_ids)
        for key in self.seen.keys() - asked.charges.keys():
            del self.seen[key]


class _Choice(NamedTuple):
    partitions: list[tuple[RequestPartition, int]]  # each with its most bytes
    most_bytes: int  # of all together
    room_at_ms: int  # when there is room for what is left out


class _Candidate(NamedTuple):
    turn: int
    key: Key
    partition: RequestPartition
    seen: Seen
    charges: tuple[Charge, ...]


def _turn_of(candidate: _Candidate) -> int:
    return candidate.turn
