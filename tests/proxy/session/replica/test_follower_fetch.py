"""Tests single fetches of a follower: which partitions are forwarded, wait or are put back, and what is charged."""

from collections.abc import Mapping
from struct import pack

import pytest

from kafka_quota_proxy.config.model import KafkaSettings, Replication
from kafka_quota_proxy.config.throttled_replicas import parse
from kafka_quota_proxy.protocol.header import read_request_head
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication import throttle
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.session.handlers.whole_request import Answered, Decision, Forward, Hold
from kafka_quota_proxy.proxy.session.replica.follower_fetch import Follower
from tests.support.move import view
from tests.support.replica_frames import (
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
from tests.support.replicas import SESSION_NOT_FOUND
from tests.support.wire import START_MS, UPSTREAM

VERSIONS = (1, 3, 5, 11, 12, 17)
FOLLOWER = 3
P0, P1, P2 = ("moving", 0), ("moving", 1), ("moving", 2)
BUSY = ("busy", 0)
MiB = 1024 * 1024


def limited(rate: float, **more: object) -> Replication:
    """Return a limit of the leader on all replicas that lag."""
    return Replication(leader_rate=rate, **more)  # type: ignore[arg-type]


def listed(rate: float, *topics: str) -> Replication:
    """Return a limit of the leader on the replicas of these topics, by default ``moving``."""
    return limited(rate, leader_replicas={topic: parse("*") for topic in topics or ("moving",)}, follower_replicas={})


def lagging(records: bytes = b"", *, high_watermark: int = 1_000) -> Entry:
    """Return a leader's response for a partition with a fetch offset below the high watermark."""
    return Entry(0, high_watermark, high_watermark - 1, 7, records)


class Hands:
    """Plays both the follower and the leader, one fetch at a time."""

    def __init__(self, replication: Replication | None, version: int = 17, *, throttle: Throttle | None = None) -> None:
        self.version = version
        self.throttle = throttle or Throttle(replication, KafkaSettings())
        self.throttle.see(view({"moving", "busy"}), now_ms=START_MS)
        self.leader = self.throttle.leader(UPSTREAM, 1)
        self.follower = Follower(self.leader)
        self.now_ms = START_MS

    @property
    def quota(self) -> ReplicationQuota:
        return self.leader.quota(now_ms=self.now_ms)

    def use_up(self, size_bytes: int) -> None:
        """Use up bytes of the limit, as if other followers had fetched them."""
        self.quota.settle(0, size_bytes, now_ms=self.now_ms)
        self.quota.record(size_bytes, now_ms=self.now_ms)

    def decide(self, frame: bytes, *, replica_id: int = FOLLOWER, follower: Follower | None = None) -> Decision:
        follower = follower or self.follower
        assert follower.is_throttled(replica_id, self.version, now_ms=self.now_ms)
        head = read_request_head(frame, 0, len(frame))
        assert head is not None
        return follower.take(frame, 0, head.body, self.version, head.correlation_id, now_ms=self.now_ms)

    def ask(
        self,
        parts: Mapping[Place, Part | int],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 10 * MiB,
        session: tuple[int, int] = (0, -1),
        forgotten: tuple[Place, ...] = (),
    ) -> Decision:
        """Let the follower fetch. Return the proxy's decision. A number in ``parts`` is a fetch offset."""
        frame = self.frame(parts, max_wait_ms=max_wait_ms, max_bytes=max_bytes, session=session, forgotten=forgotten)
        return self.decide(frame)

    def frame(
        self,
        parts: Mapping[Place, Part | int],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 10 * MiB,
        session: tuple[int, int] = (0, -1),
        forgotten: tuple[Place, ...] = (),
    ) -> bytes:
        whole = {place: Part(part, MiB, 4) if isinstance(part, int) else part for place, part in parts.items()}
        return write_request(self.version, Request(9, FOLLOWER, max_wait_ms, max_bytes, *session, whole, forgotten))

    def asked(self, parts: Mapping[Place, Part | int], **more: object) -> Request:
        """Let the follower fetch. Return the request that the leader gets."""
        decision = self.ask(parts, **more)  # type: ignore[arg-type]
        assert isinstance(decision, Forward)
        return read_request(decision.frame, self.version)

    def told(self, parts: Mapping[Place, Part | int], **more: object) -> Response:
        """Let the follower fetch. Return the response that the proxy gives itself."""
        decision = self.ask(parts, **more)  # type: ignore[arg-type]
        assert isinstance(decision, Answered)
        return read_response(decision.frame, self.version)

    def reply(self, entries: Mapping[Place, Entry], *, error_code: int = 0, session_id: int = 0) -> Response:
        """Let the leader respond. Return the response that the follower gets."""
        frame = write_response(self.version, Response(9, error_code, session_id, dict(entries)))
        out = self.follower.answer(b"before" + frame, 6, len(frame), now_ms=self.now_ms)
        return read_response(out, self.version)

    def see(self, parts: Mapping[Place, Part | int], entries: Mapping[Place, Entry] | None = None) -> None:
        """Let the follower fetch and get no records, so that the proxy knows how far each partition lags."""
        self.asked(parts)
        self.reply(entries or dict.fromkeys(parts, lagging()))


def sizes(response: Response) -> list[int]:
    return [len(entry.records) for entry in response.entries.values()]


# -- Kafka's cases


@pytest.mark.parametrize("version", VERSIONS)
def test_v24_no_messages_if_the_quota_is_exceeded(version: int) -> None:
    hands = Hands(limited(1_000), version)
    hands.use_up(1_000_000)
    hands.asked({P0: 1, P1: 1})
    reply = {P0: lagging(batches(300)), P1: lagging(batches(300))}
    assert sizes(hands.reply(reply)) == [0, 0]
    assert isinstance(hands.ask({P0: 1, P1: 1}), Hold), "from then on nothing is asked for"


@pytest.mark.parametrize("version", VERSIONS)
def test_v24_throttled_replicas_in_sync_are_included(version: int) -> None:
    hands = Hands(listed(1_000), version)
    in_sync = lagging(batches(300), high_watermark=1)
    for _ in range(3):
        asked = hands.asked({P0: 1, P1: 1})
        assert list(asked.parts) == [P0, P1]
        assert sizes(hands.reply({P0: in_sync, P1: in_sync})) == [300, 300]
        hands.use_up(1_000_000)


def test_v39_response_overhead_is_charged_to_the_leader() -> None:
    hands = Hands(limited(1_000_000), 17)
    hands.see({P0: 1})
    assert hands.quota.total == 0, "without records nothing is"
    hands.asked({P0: 1})
    hands.reply({P0: lagging(batches(300))})
    entry_bytes = 4 + 2 + 8 + 8 + 8 + 1 + 4 + 2 + 300 + 1
    assert hands.quota.total == 16 + (16 + 1 + entry_bytes + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_v40_only_throttled_partitions_are_charged(version: int) -> None:
    alone, both = Hands(listed(1_000_000), version), Hands(listed(1_000_000), version)
    alone.see({P0: 1})
    both.see({P0: 1, BUSY: 1})
    alone.asked({P0: 1})
    both.asked({P0: 1, BUSY: 1})
    alone.reply({P0: lagging(batches(300))})
    both.reply({P0: lagging(batches(300)), BUSY: lagging(batches(90_000))})
    assert both.quota.total == alone.quota.total > 300


# -- partitions that are put back


@pytest.mark.parametrize("version", VERSIONS)
def test_omitted_partition_is_restored_with_its_last_values(version: int) -> None:
    hands = Hands(listed(1_000), version)
    first = Entry(0, 500, 490, 7, b"")
    hands.see({P0: 1, BUSY: 1, P1: 1}, {P0: first, BUSY: first, P1: first})
    hands.use_up(1_000_000)
    assert list(hands.asked({P0: 1, BUSY: 1, P1: 1}).parts) == [BUSY]
    answer = hands.reply({BUSY: Entry(0, 600, 600, 0, batches(50))})
    assert list(answer.entries) == [P0, BUSY, P1], "in the order of the request"
    told = Entry(0, 500, 490 if version >= 4 else -1, 7 if version >= 5 else -1, b"")
    assert (answer.entries[P0], answer.entries[P1]) == (told, told)
    assert answer.entries[BUSY].records == batches(50)


@pytest.mark.parametrize("version", [9, 11, 17])
def test_new_leader_epoch_forgets_the_partition(version: int) -> None:
    hands = Hands(limited(1_000), version)
    hands.see({P0: Part(1, MiB, 4)})
    hands.use_up(1_000_000)
    assert isinstance(hands.ask({P0: Part(1, MiB, 4)}), Hold)
    assert list(hands.asked({P0: Part(1, MiB, 5)}).parts) == [P0]
    hands.reply({P0: lagging(high_watermark=2)})
    assert isinstance(hands.ask({P0: Part(1, MiB, 5)}), Hold)
    hands.now_ms += 500
    assert hands.told({P0: Part(1, MiB, 5)}).entries[P0].high_watermark == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_partition_error_is_forwarded_and_forgets_the_partition(version: int) -> None:
    hands = Hands(limited(1_000), version)
    hands.see({P0: 1, P1: 1})
    hands.asked({P0: 1, P1: 1})
    broken = Entry(6, 5_000, 5_000 if version >= 4 else -1, -1, b"")
    answer = hands.reply({P0: broken, P1: lagging(batches(99))})
    assert answer.entries[P0] == broken
    hands.use_up(1_000_000)
    assert list(hands.asked({P0: 1, P1: 1}).parts) == [P0], "it is asked for again, whatever the quota"


@pytest.mark.parametrize("version", [5, 11, 17])
def test_last_entry_of_a_repeated_partition_counts(version: int) -> None:
    hands = Hands(listed(1_000), version)
    frame = hands.frame({("moving", 5): 70_001, ("moving", 6): 70_002})
    epoch = pack(">i", 4) if version >= 9 else b""
    assert frame.count(pack(">i", 6) + epoch) == 1
    twice = frame.replace(pack(">i", 6) + epoch, pack(">i", 5) + epoch)
    decision = hands.decide(twice)
    assert isinstance(decision, Forward)
    assert read_request(decision.frame, version).parts == {("moving", 5): Part(70_002, 64 * 1024, 4 if epoch else -1)}
    assert list(hands.reply({("moving", 5): lagging()}).entries) == [("moving", 5)]


# -- how long a fetch waits in the proxy


@pytest.mark.parametrize(("max_wait_ms", "held_ms"), [(500, 500), (30_000, 500), (200, 200), (0, 50), (-(2**31), 50)])
def test_fetch_is_held_for_its_max_wait_up_to_half_a_second(max_wait_ms: int, held_ms: int) -> None:
    hands = Hands(limited(1_000))
    hands.see({P0: 1})
    hands.use_up(1_000_000)
    for _ in range(3):
        began_ms = hands.now_ms
        while isinstance(decision := hands.ask({P0: 1}, max_wait_ms=max_wait_ms), Hold):
            assert decision.until_ms > hands.now_ms
            hands.now_ms = decision.until_ms
        assert isinstance(decision, Answered)
        assert hands.now_ms - began_ms == held_ms


def test_the_leader_waits_no_longer_than_until_there_is_room() -> None:
    hands = Hands(listed(1_000))
    hands.see({P0: 1, BUSY: 1})
    assert hands.asked({P0: 1, BUSY: 1}).max_wait_ms == 500, "nothing was left out"
    hands.reply({P0: lagging(), BUSY: lagging()})
    hands.use_up(1_200)
    asked = hands.asked({P0: 1, BUSY: 1}, max_wait_ms=30_000)
    assert list(asked.parts) == [BUSY]
    assert 1_000 <= asked.max_wait_ms <= 1_300
    hands.reply({BUSY: lagging()})
    assert hands.asked({P0: 1, BUSY: 1}, max_wait_ms=0).max_wait_ms == 0
    hands.reply({BUSY: lagging()})
    assert hands.asked({P0: 1, BUSY: 1}, max_wait_ms=-5).max_wait_ms == -5


# -- sessions


def test_an_incremental_fetch_is_refused_and_its_session_closed_by_the_first_full_one() -> None:
    hands = Hands(limited(1_000_000))
    for epoch in (1, 2**31 - 1):
        answer = hands.told({}, session=(77, epoch))
        assert (answer.error_code, answer.session_id, answer.entries) == (SESSION_NOT_FOUND, 0, {})
    asked = hands.asked({P0: 1}, session=(0, 0))
    assert (asked.session_id, asked.session_epoch) == (77, -1)
    assert hands.reply({P0: lagging()}, session_id=5).session_id not in (0, 5), "it begins one with the proxy"
    asked = hands.asked({P0: 1}, session=(0, 0))
    assert (asked.session_id, asked.session_epoch) == (0, -1), "once"


@pytest.mark.parametrize("version", [7, 11, 12, 17])
def test_fetch_of_a_session_with_the_proxy_names_only_what_has_changed(version: int) -> None:
    hands = Hands(listed(1_000), version)
    hands.asked({P0: 1, P1: 1, BUSY: 1}, session=(0, 0))
    session_id = hands.reply({P0: lagging(), P1: lagging(), BUSY: lagging()}).session_id
    assert session_id
    hands.use_up(1_000_000)
    asked = hands.asked({BUSY: 2}, session=(session_id, 1))
    assert (asked.session_id, asked.session_epoch) == (0, -1), "the leader has no session"
    assert asked.parts == {BUSY: Part(2, MiB, 4 if version >= 9 else -1)}
    answer = hands.reply({BUSY: lagging(batches(60))})
    assert (answer.session_id, list(answer.entries)) == (session_id, [BUSY])
    parts = hands.asked({P0: 1_000}, session=(session_id, 2)).parts
    assert list(parts.items()) == [(BUSY, asked.parts[BUSY]), (P0, Part(1_000, MiB, 4 if version >= 9 else -1))]
    hands.reply({})
    held = {"session": (session_id, 3), "forgotten": (BUSY, P0)}
    assert isinstance(hands.ask({}, **held), Hold)  # type: ignore[arg-type]
    hands.now_ms += 500
    answer = hands.told({}, **held)
    assert (answer.session_id, answer.error_code, answer.entries) == (session_id, 0, {})


@pytest.mark.parametrize(("other", "epoch"), [(0, 2), (1, 1)])
def test_fetch_of_another_session_or_epoch_is_refused(other: int, epoch: int) -> None:
    hands = Hands(limited(1_000))
    hands.asked({P0: 1}, session=(0, 0))
    session_id = hands.reply({P0: lagging()}).session_id
    answer = hands.told({}, session=(session_id + other, epoch))
    assert (answer.error_code, answer.session_id) == (SESSION_NOT_FOUND, 0)
    assert hands.told({}, session=(session_id, 1)).error_code == SESSION_NOT_FOUND, "it is over"


def test_session_with_the_proxy_ends_when_nothing_has_lagged_for_a_while() -> None:
    hands = Hands(limited(1_000_000))
    hands.asked({P0: 1}, session=(0, 0))
    session_id = hands.reply({P0: lagging()}).session_id
    hands.asked({P0: 1_000}, session=(session_id, 1))
    assert hands.reply({P0: lagging()}).session_id == session_id
    hands.now_ms += 3_000
    assert hands.told({}, session=(session_id, 2)).error_code == SESSION_NOT_FOUND
    assert hands.ask({P0: 1_000}, session=(0, 0)) == Forward(b"", is_answer_read=True)


def test_error_of_the_whole_response_ends_the_session_with_the_proxy() -> None:
    hands = Hands(limited(1_000_000))
    hands.asked({P0: 1}, session=(0, 0))
    session_id = hands.reply({P0: lagging()}).session_id
    hands.asked({P0: 1_000}, session=(session_id, 1))
    hands.reply({}, error_code=100)
    asked = hands.asked({P0: 1_000}, session=(session_id, 0))
    assert asked.session_id == 0, "the leader is not asked to close it"


def test_session_in_which_nothing_is_throttled_any_more_goes_on_for_a_while() -> None:
    """A follower that exceeds Kafka's own throttle leaves out what is throttled, and fetches it again soon."""
    hands = Hands(listed(1_000))
    hands.asked({P0: 1, BUSY: 1}, session=(0, 0))
    session_id = hands.reply({P0: lagging(), BUSY: lagging()}).session_id
    hands.throttle.update(listed(1_000, "other"), now_ms=hands.now_ms)
    assert list(hands.asked({}, session=(session_id, 1)).parts) == [P0, BUSY]
    answer = hands.reply({P0: lagging(batches(700)), BUSY: lagging()})
    assert (answer.session_id, sizes(answer)) == (session_id, [700, 0])
    hands.now_ms += 3_000
    assert hands.told({}, session=(session_id, 2)).error_code == SESSION_NOT_FOUND


def test_a_session_that_was_left_is_not_closed_by_another_limit() -> None:
    hands = Hands(limited(1_000_000))
    hands.told({}, session=(77, 1))
    hands.throttle.update(None, now_ms=hands.now_ms)
    assert not hands.follower.is_throttled(FOLLOWER, 17, now_ms=hands.now_ms)
    hands.throttle.update(limited(1_000_000), now_ms=hands.now_ms)
    assert hands.asked({P0: 1}, session=(0, 0)).session_id == 0, "by now it may be another's"


# -- records that are delivered


@pytest.mark.parametrize("version", [3, 11, 17])
@pytest.mark.parametrize("records", [batches(5_000)[:700], bytes(700), b"?" * 700], ids=["cut off", "zeros", "noise"])
def test_records_without_a_whole_batch_are_sent_at_the_rate(version: int, records: bytes) -> None:
    """If such records were held back, the follower would fetch them again at once and without end."""
    hands = Hands(limited(1_000), version)
    hands.see({P0: 1})
    passed = 0
    while hands.now_ms < START_MS + 10_000:
        decision = hands.ask({P0: 1})
        if isinstance(decision, Forward):
            assert sizes(hands.reply({P0: lagging(records)})) == [700]
            passed += 1
        hands.now_ms = decision.until_ms if isinstance(decision, Hold) else hands.now_ms + 1
    assert 10 <= passed <= 17, "1,000 bytes a second, 700 each"


# -- reservations, and the line


def test_closed_connection_returns_its_reservation() -> None:
    hands = Hands(limited(1_000))
    hands.see({P0: 1})
    hands.asked({P0: 1})
    hands.follower.close()
    hands.follower.close()
    assert hands.quota.room(now_ms=hands.now_ms) == 100


@pytest.mark.parametrize(("offset", "max_bytes"), [(2, 1_000), (1_001, 10 * MiB)])
def test_max_bytes_is_lowered_unless_a_partition_is_in_sync(offset: int, max_bytes: int) -> None:
    hands = Hands(limited(10_000))
    hands.asked({P0: 1, P1: 1})
    hands.reply({P0: lagging(batches(400)), P1: lagging(batches(400))})
    hands.now_ms += 80
    asked = hands.asked({P0: 2, P1: offset})
    assert asked.parts[P0].max_bytes == 1_000
    assert asked.max_bytes == max_bytes


def test_observed_quota_has_unlimited_room() -> None:
    lists = {topic: {topic: parse("*")} for topic in ("moving", "busy")}
    hands = Hands(Replication(follower_rate=1_000, leader_replicas=lists["moving"], follower_replicas=lists["busy"]))
    hands.see({P0: 1, BUSY: 1})
    assert hands.asked({P0: 1, BUSY: 1}).parts[P0] == Part(1, MiB, 4)
    assert sizes(hands.reply({P0: lagging(batches(700_000)), BUSY: lagging()})) == [700_000, 0]
    assert hands.quota.total > 700_000


def test_throttle_that_ends_during_a_fetch_leaves_its_response_complete() -> None:
    hands = Hands(listed(1_000))
    hands.see({P0: 1, BUSY: 1})
    hands.use_up(1_000_000)
    assert list(hands.asked({P0: 1, BUSY: 1}).parts) == [BUSY]
    hands.throttle.update(None, now_ms=hands.now_ms)
    answer = hands.reply({BUSY: lagging(batches(60))})
    assert list(answer.entries) == [P0, BUSY]
    assert not hands.follower.is_throttled(FOLLOWER, 17, now_ms=hands.now_ms)
    assert not hands.follower.seen, "nothing is kept while no limit holds"


def test_follower_does_not_wait_behind_itself() -> None:
    """A follower that is served moves to the end of all lines, and must not wait behind its own earlier place."""
    replication = Replication(
        leader_rate=1_000_000,
        follower_rate=1_000,
        leader_replicas={"moving": parse("*"), "busy": parse("*")},
        follower_replicas={"moving": parse("*")},
    )
    hands = Hands(replication)
    hands.see({P0: 1, BUSY: 1})
    brought = 0
    for _ in range(50):
        asked = hands.asked({P0: 1, BUSY: 1})
        brought += P0 in asked.parts
        hands.reply({place: lagging(batches(300)) for place in asked.parts})
        hands.now_ms += 100
    assert 12 <= brought <= 20, "1,000 bytes a second, 300 each"


# -- state that is kept


def test_follower_quotas_are_bounded() -> None:
    hands = Hands(limited(1_000, follower_rate=1_000.0))
    frame = hands.frame({P0: 1})
    for replica_id in range(1_500):
        hands.decide(frame, replica_id=replica_id)
        hands.follower.close()
    assert len(hands.throttle.followers) <= 1_000


def test_known_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "_MAX_KNOWN_PARTITIONS", 20_000)
    hands = Hands(limited(1_000))
    for first in range(0, 24_000, 2_000):
        hands.asked({("moving", number): 1 for number in range(first, first + 2_000)})
        hands.follower.close()
    limits = hands.follower.limits
    assert limits is not None
    assert 0 < len(limits.known) <= 20_000


def test_fetch_of_more_than_100000_partitions_is_forwarded_unchanged() -> None:
    hands = Hands(limited(1_000), 3)
    hands.use_up(10_000)
    assert hands.ask({("moving", number): 1 for number in range(100_001)}) == Forward(b"", is_answer_read=False)
