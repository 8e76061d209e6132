"""Decides whether a follower's fetch is forwarded in full or in part, waits, or is answered by the proxy.

These are the rules of KIP-73, adapted to a proxy:

* A partition is in sync if its ``fetch_offset`` is not below the high watermark. Otherwise the partition lags.
  Partitions in sync are never held back.
* A throttled partition that lags is fetched only while its quotas have room, and only as many bytes as they have room
  for. If there is no room, the partition is left out of the forwarded fetch. An empty entry for it is then added to the
  response, because the response to a full fetch must contain exactly the partitions of the fetch.
* If no partition is left in a fetch, the fetch waits for room, at most for ``max_wait_ms``, and is then answered
  without records.
* The records of a lagging partition are cut after a whole batch, because a follower throws an incomplete batch away.
* An incremental fetch (KIP-227) does not contain all partitions that it fetches. So when a throttle becomes active,
  incremental fetches are refused, and full fetches are forwarded without a session. While a partition lags, the
  follower has a session with the proxy instead, because full fetches of thousands of partitions are expensive. When no
  partition has lagged for a while, the follower may have a session with the leader again.

Source: ``ReplicaManager.readFromLog`` and ``shouldLeaderThrottle``, ``FetchSessionHandler``, ``AbstractFetcherThread``
in Apache Kafka.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import UnexpectedResponse
from kafka_quota_proxy.protocol.fetch import FIRST_MAX_BYTES, FIRST_TOPIC_ID
from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch, RequestPartition, read_request, write_request
from kafka_quota_proxy.protocol.replica_fetch.response import (
    ReplicaResponse,
    make_response,
    read_response,
    write_response,
)
from kafka_quota_proxy.protocol.replica_fetch.topics import Entry
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.throttle import Charge, Leader, Limits
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.handlers.whole_request import Answered, Decision, Forward, Hold
from kafka_quota_proxy.proxy.session.replica.fetch_session import FetchSession
from kafka_quota_proxy.proxy.session.replica.fetched_partitions import FetchedPartitions
from kafka_quota_proxy.proxy.session.replica.partition_state import Key, PartitionState
from kafka_quota_proxy.proxy.session.replica.response_trimming import (
    FIRST_LOOK_BYTES,
    PassedFetch,
    Trimming,
    empty_entry,
)

FETCH_SESSION_ID_NOT_FOUND: Final = 70
_NEWEST: Final = HIGHEST_VERSION[ApiKey.FETCH]
# The longest time that a fetch is held, whatever its max_wait_ms. A limit that is lifted takes effect within this time.
_MAX_HELD_MS: Final = 500
# The shortest time that a fetch without room is held. A follower with a max_wait_ms of 0 would otherwise fetch again at
# once.
_MIN_HELD_MS: Final = 50
# The largest response that a throttled fetch may request, because the response is held whole. Followers request 10 MiB
# by default.
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
# The most partitions of a fetch that is throttled, because 100,000 partitions take about a second and 100 MB. No broker
# has as many.
_MAX_PARTITIONS: Final = 100_000
# A follower may have a session again after no partition has lagged for this long.
_QUIET_MS: Final = 3_000
_FAR_MS: Final = 1 << 62
_MAX_INT32: Final = 2**31 - 1


@dataclass(slots=True, eq=False, repr=False)
class Follower:
    """Decides on the fetches of one follower on one connection.

    ``has_ids`` says whether the last fetch identified topics by their ids. ``seen`` holds the state of each throttled
    partition, as the follower's last fetch and its response showed it.
    """

    _leader: Leader
    _limits: Limits | None = None
    _passed: PassedFetch | None = None
    _held_since_ms: int = 0  # the time from which on a fetch is held; 0 if no fetch is held
    _left_session: int = 0  # the id of a session that the leader still has and the follower has given up
    _session: FetchSession | None = None  # the session of leader and follower, in which no partition lags
    _fetched: FetchedPartitions | None = None  # the partitions of the last fetch, or of the follower's session
    _quiet_since_ms: int | None = None  # the time from which on no partition has lagged; None if it is unknown
    _turn: int = 0
    _is_released: bool = False
    has_ids: bool = False
    seen: dict[Key, PartitionState] = field(default_factory=dict)
    api_key: int = int(ApiKey.FETCH)
    _ticket: int = field(init=False)
    _session_id: int = field(init=False)  # the id of each session of the follower with the proxy, never 0

    def __post_init__(self) -> None:
        self._ticket = self._leader.throttle.next_ticket()
        self._session_id = self._ticket % _MAX_INT32 + 1

    @property
    def limits(self) -> Limits | None:
        """The limits on replication that applied to the last fetch, or None before the first fetch."""
        return self._limits

    @property
    def is_waiting(self) -> bool:
        """Whether the response to a fetch is awaited. No other fetch may be decided on until it has arrived."""
        return self._passed is not None

    def is_throttled(self, replica_id: int, api_version: int, *, now_ms: int) -> bool:
        """Return whether a limit on replication applies to a fetch of this follower.

        If so, the method ``take`` has to decide on the fetch. Otherwise the fetch is forwarded unchanged.
        """
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
        """Decide what to do with a fetch that has arrived as a whole.

        The fetch begins at the offset ``position`` of ``data``. Its body, which follows the header, begins at the
        offset ``body`` of ``data``.

        Raises:
            ProtocolError: If the request is not a Fetch that can be read.
        """
        self.has_ids = api_version >= FIRST_TOPIC_ID
        fetch = read_request(data, position, body, api_version)
        if len(fetch.partitions) > _MAX_PARTITIONS:
            self._forget()
            return Forward(b"", is_answer_read=False)
        if self._may_have_session(fetch, now_ms):
            return self._keep_session(fetch, correlation_id, api_version)
        leaders_session = fetch.session_id if fetch.session_id != self._session_id else 0
        fetched = self._fetched = self._partitions_of(fetch, now_ms)
        if fetched is None:
            self._left_session = leaders_session
            return Answered(make_response(correlation_id, (), api_version, error_code=FETCH_SESSION_ID_NOT_FOUND))
        if self._limits is not None:
            fetched.sort(self.seen, self._limits, is_id=self.has_ids, now_ms=now_ms)
        passed = PassedFetch(correlation_id, api_version, fetched.partitions, fetched.charges)
        chosen, most_bytes, room_at_ms = self._choose(fetched, passed.granted, now_ms)
        if not chosen and fetched.partitions:
            since_ms = self._held_since_ms or now_ms
            until_ms = since_ms + min(max(fetch.max_wait_ms, _MIN_HELD_MS), _MAX_HELD_MS)
            if now_ms < until_ms:
                self._held_since_ms = since_ms
                return Hold(min(until_ms, max(room_at_ms, now_ms + 1)), BlockedBy.REPLICATION_QUOTA)
            self._held_since_ms = 0
            left_out = () if fetched.next_epoch else fetched.partitions
            entries = [empty_entry(key, self.seen[key], api_version) for key in left_out]
            session_id = fetched.end_fetch(has_lagging=True)
            return Answered(make_response(correlation_id, entries, api_version, session_id=session_id))
        self._held_since_ms = 0
        is_trimmed = bool(passed.charges or fetched.next_epoch)
        if is_trimmed:
            self._passed = passed
        else:
            self._note(now_ms, has_lagging=False)
        wait_ms = min(fetch.max_wait_ms, max(room_at_ms - now_ms, _MIN_HELD_MS))
        session_id, self._left_session = leaders_session or self._left_session, 0
        max_bytes = min(fetch.max_bytes, most_bytes)
        if api_version >= FIRST_MAX_BYTES:
            passed.max_bytes = max_bytes
        frame = write_request(data, fetch, chosen, max_wait_ms=wait_ms, max_bytes=max_bytes, session_id=session_id)
        return Forward(frame, is_answer_read=is_trimmed)

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return the leader's response, edited for the follower.

        If a partition lags (its fetch offset is below the high watermark), its records are cut to what the quotas have
        room for. For partitions that were left out of the fetch, entries without records are added.

        Raises:
            ProtocolError: If the leader's response cannot be read, or answers no fetch.
        """
        passed, fetched = self._passed, self._fetched
        if passed is None or self._limits is None:
            raise UnexpectedResponse("a Fetch response does not answer a follower's fetch")
        version = passed.api_version
        response = read_response(data, position, frame_bytes, version)
        self._passed = None  # after `read_response`, so that `close` gives back the reservation if that raises an error
        if response.error_code:
            self._fetched = None
            _give_back(passed.granted)
            return data[position : position + frame_bytes]
        self._turn += 1
        trimming = Trimming(passed, self.seen, data, turn=self._turn, now_ms=now_ms)
        trimming.spare_bytes = passed.max_bytes - sum(one.records_end - one.records for one in response.partitions)
        if passed.is_of_session:
            if self._session is not None:
                self._session.count(response.partitions, trimming)
            frame = data[position : position + frame_bytes]
        else:
            if fetched is not None and fetched.next_epoch:
                entries = self._session_entries(fetched, response, trimming)
            else:
                entries = self._entries(passed, response, trimming)
            session_id = fetched.end_fetch(has_lagging=trimming.has_lagging) if fetched is not None else 0
            frame = write_response(data, position, response, entries, version, session_id=session_id)
        trimming.charge()
        self._note(now_ms, has_lagging=trimming.has_lagging)
        return frame

    def _entries(self, passed: PassedFetch, response: ReplicaResponse, trimming: Trimming) -> list[Entry]:
        """Return the entries of the response: the fetch's partitions in their order, and then any others."""
        found = {(one.topic, one.partition): one for one in response.partitions}
        entries: list[Entry] = []
        for key, request in passed.partitions.items():
            one = found.pop(key, None)
            if one is not None:
                entries.append(trimming.entry(key, request, one))
            elif key in self.seen:
                entries.append(trimming.left_out(key))
        entries += map(trimming.whole, found.values())
        return entries

    def _session_entries(
        self, fetched: FetchedPartitions, response: ReplicaResponse, trimming: Trimming
    ) -> list[Entry]:
        """Return the entries of a response in the follower's session: those of the leader's response."""
        trimming.has_lagging = bool(fetched.lagging)
        entries: list[Entry] = []
        for one in response.partitions:
            key = (one.topic, one.partition)
            request = fetched.partitions.get(key)
            if request is None:
                entries.append(trimming.whole(one))
            else:
                entries.append(trimming.entry(key, request, one))
                fetched.answered(key)
        return entries

    def _partitions_of(self, fetch: ReplicaFetch, now_ms: int) -> FetchedPartitions | None:
        """Return the partitions of a full fetch, or of the follower's session. Returns None if the session is over."""
        if fetch.session_epoch <= 0:
            fetched = FetchedPartitions(0 if fetch.session_epoch else self._session_id)
            fetched.update(fetch, now_ms=now_ms)
            return fetched
        session = self._fetched
        if session is None or not session.is_continued_by(fetch) or self._is_quiet(now_ms):
            return None
        session.update(fetch, now_ms=now_ms)
        return session if len(session.partitions) <= _MAX_PARTITIONS else None

    def _is_quiet(self, now_ms: int) -> bool:
        """Return whether no throttled partition has lagged for a while."""
        return self._quiet_since_ms is not None and now_ms - self._quiet_since_ms >= _QUIET_MS

    def _may_have_session(self, fetch: ReplicaFetch, now_ms: int) -> bool:
        """Return whether a fetch may belong to a session with the leader, and is therefore forwarded unchanged.

        It may if no throttled partition has lagged for a while.
        """
        session = self._session
        if session is not None and fetch.session_epoch > 0:
            if session.knows(fetch):
                return True
            self._quiet_since_ms = self._session = None
            return False
        return fetch.session_epoch == 0 and self._is_quiet(now_ms)

    def _keep_session(self, fetch: ReplicaFetch, correlation_id: int, api_version: int) -> Forward:
        session = self._session = self._session or FetchSession()
        self._fetched = None
        self.seen.clear()
        if self._limits is not None:
            session.update(fetch, self._limits, is_id=self.has_ids)
        if session.is_throttled:
            self._passed = PassedFetch(correlation_id, api_version, {}, is_of_session=True)
        return Forward(b"", is_answer_read=session.is_throttled)

    def _note(self, now_ms: int, *, has_lagging: bool) -> None:
        """Note whether any throttled partition of a fetch lags. If so, the follower's fetch session ends.

        The session may begin again when no partition has lagged for a while.
        """
        if has_lagging:
            self._quiet_since_ms = self._session = None
        elif self._quiet_since_ms is None:
            self._quiet_since_ms = now_ms

    def release(self) -> None:
        """Forward all further fetches of the follower unchanged, because the proxy is about to stop throttling."""
        self._is_released = True

    def close(self) -> None:
        """Give back the reservations of a pending fetch, and leave the lines of all quotas. This is the last call."""
        if self._passed is not None:
            _give_back(self._passed.granted)
            self._passed = None
        self._leave()

    def _choose(self, fetched: FetchedPartitions, granted: dict[ReplicationQuota, int], now_ms: int) -> "_Choice":
        """Return which partitions to fetch from the leader now, and how many bytes of each."""
        partitions = fetched.partitions
        shares = {key: min(partitions[key].max_bytes, FIRST_LOOK_BYTES) for key in fetched.unknown}
        room_at_ms = self._grant(fetched, shares, granted, now_ms) if fetched.lagging else _FAR_MS
        most_bytes = _MAX_ANSWER_BYTES if fetched.passing else max(sum(shares.values()), 1)
        chosen = [(partitions[key], partitions[key].max_bytes) for key in fetched.passing]
        chosen += [(partitions[key], share) for key, share in shares.items()]
        return _Choice(chosen, min(most_bytes, _MAX_ANSWER_BYTES), room_at_ms)

    def _grant(
        self, fetched: FetchedPartitions, shares: dict[Key, int], granted: dict[ReplicationQuota, int], now_ms: int
    ) -> int:
        """Divide the room of the quotas among lagging partitions, and reserve it.

        The number of bytes to fetch of each partition is added to ``shares``, and the bytes reserved in each quota are
        added to ``granted``.

        Returns:
            The time at which there may be room for the partitions that are left out now.
        """
        rooms = {charge.quota: 0.0 for charges in fetched.lagging for charge in charges}
        turns_ms: dict[ReplicationQuota, int] = {}  # when to try again, for quotas without room for this follower now
        for quota in rooms:
            if not quota.ahead(self, self._ticket, now_ms=now_ms):
                rooms[quota] = quota.room(now_ms=now_ms)
            if rooms[quota] > 0:
                quota.leave(self)
            else:
                turns_ms[quota] = quota.wait(self, self._ticket, now_ms=now_ms)
        left_out: set[tuple[Charge, ...]] = set()
        candidates: list[_Candidate] = []
        for charges, states in fetched.lagging.items():
            if min([rooms[charge.quota] for charge in charges]) > 0:
                candidates += [_Candidate(state.turn, key, state, charges) for key, state in states.items()]
            else:
                left_out.add(charges)
        candidates.sort(key=_turn_of)  # first the partition that has got no records for the longest time
        for each in candidates:
            room = min([rooms[charge.quota] for charge in each.charges])
            # A share into which no batch fits is wasted. But the first partition gets one batch, however large.
            if room <= 0 or (granted and room < each.state.least_bytes):
                left_out.add(each.charges)
                continue
            # A quota that only measures has infinite room. If max_bytes is below 0, the leader refuses the fetch.
            most = shares[each.key] = each.state.requested_bytes = int(
                min(fetched.partitions[each.key].max_bytes, max(room, each.state.least_bytes, 1))
            )
            expected = max(each.state.lag_bytes(most), 0)
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
        """Wait for room in no quota any more: leave the lines of followers that wait for the quotas."""
        for quota in self._limits.quotas if self._limits else ():
            quota.leave(self)

    def _forget(self) -> None:
        """Forget all partitions and the fetch session, and wait for room in no quota any more."""
        self._leave()
        self.seen.clear()
        self._quiet_since_ms = self._session = self._fetched = None


class _Choice(NamedTuple):
    partitions: list[tuple[RequestPartition, int]]  # each partition with the max_bytes to request
    most_bytes: int  # the max_bytes of the whole fetch
    room_at_ms: int  # the time at which there may be room for the partitions that are left out


class _Candidate(NamedTuple):
    turn: int
    key: Key
    state: PartitionState
    charges: tuple[Charge, ...]


def _turn_of(candidate: _Candidate) -> int:
    return candidate.turn


def _give_back(granted: dict[ReplicationQuota, int]) -> None:
    """End the reservations for a response that brings no records."""
    for quota, size_bytes in granted.items():
        quota.give_back(size_bytes)
