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
* Incremental fetches (KIP-227) do not say what they fetch. While a throttle is active there are none:
  they are refused, and the full ones that follow are passed on without a session.

Source: ``ReplicaManager.readFromLog`` and ``shouldLeaderThrottle``, ``FetchSessionHandler``,
``AbstractFetcherThread`` in Apache Kafka.
"""

from math import inf
from typing import Final, NamedTuple

from protocol import replica_fetch
from protocol.api import HIGHEST_VERSION, ApiKey
from protocol.errors import MalformedLength, UnexpectedResponse
from protocol.fetch import FIRST_MAX_BYTES, FIRST_TOPIC_ID, UNLIMITED_BYTES
from protocol.replica_fetch import Entry, RequestPartition, ResponsePartition
from proxy.quota.replication import ReplicationQuota
from proxy.replication.throttle import Charge, Leader, Limits

FETCH_SESSION_ID_NOT_FOUND: Final = 70
_NEWEST: Final = HIGHEST_VERSION[ApiKey.FETCH]
# How long a fetch is held here at the most, whatever its max_wait_ms: a limit that is lifted takes effect within it.
_MAX_HELD_MS: Final = 500
# And at the least, where there is no room: max_wait_ms of 0 must not make anybody spin.
_MIN_HELD_MS: Final = 50
# What is asked for of a partition of which nothing is known yet: it may be in sync, and then must not wait.
_FIRST_LOOK_BYTES: Final = 64 * 1024
# What the leader is to answer with at the most, for its answer is held whole. Followers ask for 10 MiB by default.
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
# Of one fetch: each is decided on by itself, 100,000 take about a second and 100 MB.
_MAX_PARTITIONS: Final = 100_000
# Over how long what is written to a partition is measured.
_BYTES_IN_EVERY_MS: Final = 5_000
_FAR_MS: Final = 1 << 62

Key = tuple[bytes, int]  # topic and partition


class Hold(NamedTuple):
    """Ask again then."""

    until_ms: int


class Answered(NamedTuple):
    """The fetch does not pass; this is its answer, a whole frame."""

    frame: bytes


class Forward(NamedTuple):
    """This passes in its place."""

    frame: bytes
    is_trimmed: bool  # its answer is to be handed to ``Follower.answer``, whole; else it passes as it comes


Decision = Hold | Answered | Forward


class Seen:
    """What was seen last of a throttled partition, by one follower."""

    __slots__ = (
        "_since",
        "brought_bytes",
        "bytes_in_rate",
        "bytes_per_offset",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "least_bytes",
        "log_start_offset",
        "turn",
    )

    def __init__(self, partition: ResponsePartition, leader_epoch: int, now_ms: int) -> None:
        self._since = (now_ms, partition.high_watermark)
        self.bytes_in_rate = 0.0  # what is written to the partition, bytes per second
        self.bytes_per_offset = 0.0  # 0: not known yet
        self.fetch_offset = 0
        self.brought_bytes = 0  # by the last answer
        self.turn = 0  # when it lagged and got records; a number that grows
        self.least_bytes = 0  # in less than that likely not a batch fits
        self.see(partition, leader_epoch, now_ms)

    @property
    def lag(self) -> int:
        """How many offsets are missing, by the last fetch and the last answer."""
        return max(self.high_watermark - self.fetch_offset, 0)

    def see(self, partition: ResponsePartition, leader_epoch: int, now_ms: int) -> None:
        """Take up what an answer says; put back later, it must be what the follower was told last."""
        since_ms, since_offset = self._since
        if now_ms - since_ms >= _BYTES_IN_EVERY_MS:
            offsets = max(partition.high_watermark - since_offset, 0)
            self.bytes_in_rate = offsets * self.bytes_per_offset * 1_000 / (now_ms - since_ms)
            self._since = (now_ms, partition.high_watermark)
        self.leader_epoch = leader_epoch
        self.high_watermark = partition.high_watermark
        self.last_stable_offset = partition.last_stable_offset
        self.log_start_offset = partition.log_start_offset

    def arrive_at(self, fetch_offset: int) -> None:
        """Take up where the next fetch begins."""
        offsets = fetch_offset - self.fetch_offset
        if self.brought_bytes and offsets > 0:
            self.bytes_per_offset = self.brought_bytes / offsets
        self.brought_bytes = 0
        self.fetch_offset = fetch_offset

    def lag_bytes(self, most: int) -> int:
        """Return about how much is missing; ``most`` at the most, and while nobody knows."""
        return min(most, int(self.lag * self.bytes_per_offset) + 1) if self.bytes_per_offset else most


class _Asked:
    """A fetch that was passed on, until its answer is there."""

    __slots__ = ("api_version", "charges", "correlation_id", "granted", "partitions")

    def __init__(self, correlation_id: int, api_version: int, partitions: dict[Key, RequestPartition]) -> None:
        self.correlation_id = correlation_id
        self.api_version = api_version
        self.partitions = partitions  # as they were asked for, left out or not
        self.charges: dict[Key, tuple[Charge, ...]] = {}  # of those that are throttled
        self.granted: dict[ReplicationQuota, int] = {}


class Follower:
    """What one connection's fetches have seen, and the one that is under way. Nothing is kept while no limit holds."""

    __slots__ = (
        "_asked",
        "_held_since_ms",
        "_is_released",
        "_leader",
        "_left_session",
        "_limits",
        "_ticket",
        "_turn",
        "has_ids",
        "seen",
    )

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._limits: Limits | None = None
        self._asked: _Asked | None = None
        self._held_since_ms = 0  # of the fetch that waits here; 0: none does
        self._left_session = 0  # the leader still has it, its follower does not
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
                self._leave()
                self.seen.clear()
            limits = self._limits = self._leader.limits(replica_id, now_ms=now_ms)
        if limits.is_active and not self._is_released and api_version <= _NEWEST:
            return True
        self._leave()
        self.seen.clear()
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
            ProtocolError: it is no Fetch request, or one of more partitions than anybody has.
        """
        self.has_ids = api_version >= FIRST_TOPIC_ID
        fetch = replica_fetch.read_request(data, position, body, api_version)
        if len(fetch.partitions) > _MAX_PARTITIONS:
            raise MalformedLength(f"a follower fetches {len(fetch.partitions)} partitions at once")
        if fetch.session_epoch > 0:
            self._left_session = fetch.session_id
            return Answered(
                replica_fetch.answer(correlation_id, (), api_version, error_code=FETCH_SESSION_ID_NOT_FOUND)
            )
        # Of a partition that is named twice the last counts, in the place of the first, as to the leader.
        asked = _Asked(correlation_id, api_version, {(one.topic, one.partition): one for one in fetch.partitions})
        chosen, room_at_ms = self._choose(asked, now_ms)
        if not chosen and asked.partitions:
            since_ms = self._held_since_ms or now_ms
            until_ms = since_ms + min(max(fetch.max_wait_ms, _MIN_HELD_MS), _MAX_HELD_MS)
            if now_ms < until_ms:
                self._held_since_ms = since_ms
                return Hold(min(until_ms, max(room_at_ms, now_ms + 1)))
            self._held_since_ms = 0
            return Answered(replica_fetch.answer(correlation_id, self._put_back(asked), api_version))
        self._held_since_ms = 0
        is_trimmed = bool(asked.charges)
        if is_trimmed:
            self._asked = asked
        wait_ms = min(fetch.max_wait_ms, max(room_at_ms - now_ms, _MIN_HELD_MS))
        session_id, self._left_session = fetch.session_id or self._left_session, 0
        max_bytes = min(fetch.max_bytes, _MAX_ANSWER_BYTES)
        frame = replica_fetch.write_request(
            data, fetch, chosen, max_wait_ms=wait_ms, max_bytes=max_bytes, session_id=session_id
        )
        return Forward(frame, is_trimmed)

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
            _settle(asked.granted, {})
            return data[position : position + frame_bytes]
        trimming = _Trimming(self, asked, data, now_ms)
        found = {(one.topic, one.partition): one for one in response.partitions}
        entries: list[Entry] = []
        for key, request in asked.partitions.items():
            one = found.pop(key, None)
            if one is not None:
                entries.append(trimming.entry(key, request, one))
            elif (seen := self.seen.get(key)) is not None:
                entries.append(_empty(key, seen, version))
        entries += map(trimming.whole, found.values())
        trimming.charge()
        return replica_fetch.write_response(data, position, response, entries, version)

    def release(self) -> None:
        """Throttle nothing any more."""
        self._is_released = True

    def close(self) -> None:
        """Give back what was set aside for an answer that does not come; the last that is called."""
        if self._asked is not None:
            _settle(self._asked.granted, {})
            self._asked = None
        self._leave()

    def next_turn(self) -> int:
        """Return a number above all that were returned."""
        self._turn += 1
        return self._turn

    def _choose(self, asked: _Asked, now_ms: int) -> tuple[list[tuple[RequestPartition, int]], int]:
        """Return what to ask the leader for, each with its most bytes; and when there is room for what is left out."""
        shares: dict[Key, int | None] = {}  # of what is not asked for as it came; None: not at all
        lagging: list[_Candidate] = []
        self._find_charges(asked)
        for key, charges in asked.charges.items():
            one = asked.partitions[key]
            seen = self.seen.get(key)
            if seen is None or seen.leader_epoch != one.leader_epoch:
                shares[key] = min(one.max_bytes, _FIRST_LOOK_BYTES)
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
        return chosen, room_at_ms

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
            most = shares[each.key] = int(min(each.partition.max_bytes, max(room, each.seen.least_bytes, 1)))
            expected = max(each.seen.lag_bytes(most), 0)
            for charge in each.charges:
                rooms[charge.quota] -= expected
                granted[charge.quota] = granted.get(charge.quota, 0) + expected
        for quota, size_bytes in granted.items():
            quota.take(size_bytes)
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

    def _put_back(self, asked: _Asked) -> list[Entry]:
        return [_empty(key, self.seen[key], asked.api_version) for key in asked.partitions]

    def _find_charges(self, asked: _Asked) -> None:
        """Find out what is throttled. Of all else, also of what is fetched no longer, what was seen may be wrong."""
        limits, is_id = self._limits, self.has_ids
        if limits is not None:
            known, found = limits.known, asked.charges
            for key in asked.partitions:
                charges = known.get(key)
                if charges is None:
                    charges = limits.charges(*key, is_id=is_id)
                if charges:
                    found[key] = charges
        for key in self.seen.keys() - asked.charges.keys():
            del self.seen[key]


class _Candidate(NamedTuple):
    turn: int
    key: Key
    partition: RequestPartition
    seen: Seen
    charges: tuple[Charge, ...]


class _Trimming:
    """One answer on its way through: what of it may flow, and what that costs."""

    def __init__(self, follower: Follower, asked: _Asked, data: bytes, now_ms: int) -> None:
        self._follower = follower
        self._asked = asked
        self._data = data
        self._view = memoryview(data)
        self._now_ms = now_ms
        self._brought: dict[ReplicationQuota, int] = {}  # of what lagged, records
        self._leaders: dict[ReplicationQuota, list[Entry]] = {}  # to be charged as the leader does it
        self._followers: dict[ReplicationQuota, int] = {}  # records, likewise as the follower does it

    def entry(self, key: Key, request: RequestPartition, one: ResponsePartition) -> Entry:
        """Return the entry of a partition as the follower gets it."""
        follower = self._follower
        charges = self._asked.charges.get(key, ())
        if one.error_code or not charges:
            follower.seen.pop(key, None)
            return self.whole(one)
        seen = follower.seen.get(key)
        if seen is None:
            seen = follower.seen[key] = Seen(one, request.leader_epoch, self._now_ms)
            seen.arrive_at(request.fetch_offset)
        else:
            seen.see(one, request.leader_epoch, self._now_ms)
        is_lagging = request.fetch_offset < one.high_watermark
        if one.records == one.records_end:
            if is_lagging:  # not a batch fitted in, perhaps: the leader lets only the first go over its share
                seen.least_bytes = min(max(2 * seen.least_bytes, _FIRST_LOOK_BYTES), UNLIMITED_BYTES)
            return self.whole(one)
        end = self._end(one, charges) if is_lagging else one.records_end
        entry = Entry(one.topic, replica_fetch.cut(self._data, one, end, self._asked.api_version))
        size_bytes = end - one.records
        if size_bytes:
            seen.brought_bytes = size_bytes
            self._count(entry, size_bytes, charges, is_lagging=is_lagging)
        if is_lagging and size_bytes:
            seen.least_bytes = replica_fetch.first_batch_bytes(self._data, one.records, one.records_end)
            seen.turn = follower.next_turn()
        return entry

    def whole(self, one: ResponsePartition) -> Entry:
        """Return an entry as it came."""
        return Entry(one.topic, (self._view[one.begin : one.end],))

    def charge(self) -> None:
        """Charge what flows."""
        for quota, entries in self._leaders.items():
            quota.record(replica_fetch.charged_bytes(entries, self._asked.api_version), now_ms=self._now_ms)
        for quota, size_bytes in self._followers.items():
            quota.record(size_bytes, now_ms=self._now_ms)
        _settle(self._asked.granted, self._brought)

    def _end(self, one: ResponsePartition, charges: tuple[Charge, ...]) -> int:
        """Return where the records end that may flow of what lags: behind a whole batch, or where they begin."""
        room = min(self._room(charge.quota) for charge in charges)
        if room <= 0:
            return one.records
        if self._asked.api_version < FIRST_MAX_BYTES:
            return one.records_end  # a batch that is cut short tells the follower to ask for more
        end = one.records_end if room >= one.records_end - one.records else one.records + int(room)
        # Whoever is let through at all gets a batch, as from the leader.
        first_end = one.records + replica_fetch.first_batch_bytes(self._data, one.records, one.records_end)
        return replica_fetch.whole_batches(self._data, one.records, max(end, min(first_end, one.records_end)))

    def _room(self, quota: ReplicationQuota) -> float:
        """Return how much may still come. A fetch that was granted something is not counted byte by byte again."""
        brought = self._brought.get(quota, 0)
        if brought < self._asked.granted.get(quota, 0):
            return inf
        return quota.room(now_ms=self._now_ms) - brought

    def _count(self, entry: Entry, size_bytes: int, charges: tuple[Charge, ...], *, is_lagging: bool) -> None:
        for charge in charges:
            quota = charge.quota
            if is_lagging:
                self._brought[quota] = self._brought.get(quota, 0) + size_bytes
            if is_lagging or charge.counts_all:
                if charge.is_leaders:
                    self._leaders.setdefault(quota, []).append(entry)
                else:
                    self._followers[quota] = self._followers.get(quota, 0) + size_bytes


def _turn_of(candidate: _Candidate) -> int:
    return candidate.turn


def _settle(granted: dict[ReplicationQuota, int], brought: dict[ReplicationQuota, int]) -> None:
    for quota in granted.keys() | brought.keys():
        quota.settle(granted.get(quota, 0), brought.get(quota, 0))


def _empty(key: Key, seen: Seen, api_version: int) -> Entry:
    topic, partition = key
    return Entry(
        topic,
        (
            replica_fetch.empty(
                partition,
                high_watermark=seen.high_watermark,
                last_stable_offset=seen.last_stable_offset,
                log_start_offset=seen.log_start_offset,
                api_version=api_version,
            ),
        ),
    )
