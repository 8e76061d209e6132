"""Tests for how many bytes a fetch asks, and how many fetches whose size nobody knows may be at the broker."""

from math import inf

import pytest

from kafka_quota_proxy.proxy.quota.answer_time import AnswerTime
from kafka_quota_proxy.proxy.quota.awaited_fetches import AwaitedFetches
from kafka_quota_proxy.proxy.quota.fetch_size import FetchSize

MIB = 1 << 20


def taught(*batches: int, around: int = 100, took_ms: int = 1, limit: float = MIB) -> FetchSize:
    """Return the sizes after responses with these batches, one in each, and ``around`` bytes around them."""
    size = FetchSize()
    for batch in batches:
        size.ask(1, room=0, limit=limit)
        size.note_batch(batch, batch + around, took_ms)
    return size


def test_first_fetch_asks_for_the_room() -> None:
    assert FetchSize().ask(5_000, room=5_000, limit=1_000) == 5_000


@pytest.mark.parametrize("batch", [30_000, 65_536, 200_000, 1_000_000])
def test_at_the_limit_a_fetch_asks_for_one_large_batch(batch: int) -> None:
    assert taught(batch).ask(MIB // 20, room=0, limit=MIB) == 1


def test_at_the_limit_a_fetch_asks_for_many_small_batches() -> None:
    asked = taught(*[1_000] * 8, around=2_500).ask(MIB // 20, room=0, limit=MIB)

    assert asked % 1_000 == 0
    assert 2_500 / asked < 0.05


def test_fetch_asks_for_no_more_than_two_seconds_of_its_limit() -> None:
    assert taught(*[1_000] * 8, around=50_000).ask(5_000, room=0, limit=100_000) <= 200_000


@pytest.mark.parametrize("batch", [60_000, 64_000, 200_000, 500_000])
def test_with_room_a_fetch_asks_for_whole_batches_of_a_partition(batch: int) -> None:
    """Clients fetch up to 1 MiB of each partition, and throw the piece of a batch at its end away."""
    asked = taught(*[batch] * 8).ask(10 * MIB, room=10 * MIB, limit=MIB)

    assert asked == MIB // batch * batch


def test_with_room_a_fetch_of_small_batches_asks_for_all_of_it() -> None:
    assert taught(*[1_000] * 8).ask(10 * MIB, room=10 * MIB, limit=MIB) == 10 * MIB


def test_uneven_large_batches_are_fetched_one_by_one() -> None:
    size = taught(*[200_000, 700_000, 350_000, 900_000] * 4)

    assert size.ask(10 * MIB, room=10 * MIB, limit=MIB) < 200_000


def test_slow_broker_is_asked_for_more_batches_at_a_time() -> None:
    """One batch of 16 KiB in 200 ms would be a sixth of the limit."""
    asked = taught(*[16_384] * 8, took_ms=200, limit=512 * 1024).ask(26_000, room=0, limit=512 * 1024)

    assert asked >= 6 * 16_384
    assert asked % 16_384 == 0


def test_consumer_that_fetches_in_bursts_asks_for_more_at_the_limit() -> None:
    size = taught(*[16_384] * 8, around=200)

    asked = [size.ask(MIB // 10, room=0, limit=2 * MIB, is_bursty=is_bursty) for is_bursty in (True, False, True)]

    assert asked == [524_288, 32_768, 524_288]


def test_lower_limit_lets_a_fetch_ask_for_less_at_once() -> None:
    size = taught(*[16_384] * 8, around=200)

    asked = [size.ask(MIB // 20, room=0, limit=limit, is_bursty=True) for limit in (4 * MIB, MIB)]

    assert asked == [MIB, 262_144]


def test_who_shares_a_bucket_asks_for_less_where_that_costs_little() -> None:
    size = taught(*[16_384] * 8, around=1_886)

    asked = [size.ask(5_120, room=0, limit=102_400, is_alone=is_alone) for is_alone in (True, False, True)]

    assert asked == [131_072, 65_536, 131_072]


def test_few_batches_are_not_taken_for_all() -> None:
    """A connection that has seen two small batches goes on to ask for single ones."""
    assert taught(1_000, 1_000).ask(1_000, room=0, limit=20_000) == 1


def test_smaller_batches_are_noticed() -> None:
    size = taught(*[500_000] * 16)
    assert size.ask(MIB // 20, room=0, limit=MIB) == 1
    for _ in range(16):
        size.note_batch(1_000, 1_100, 1)

    assert size.batch_bytes == 1_000
    assert size.ask(MIB // 20, room=0, limit=MIB) >= 5_000


def test_with_room_other_batches_are_noticed() -> None:
    size = taught(*[10_000] * 16)
    assert size.ask(131_072, room=MIB, limit=MIB) == 131_072
    for _ in range(17):
        size.ask(1, room=0, limit=MIB)
        size.note_batch(40_000, 40_100, 1)

    assert size.ask(131_072, room=MIB, limit=MIB) == 120_000


def test_now_and_then_a_single_batch_is_asked_for_to_learn_the_sizes_again() -> None:
    size = taught(*[1_000] * 16)

    asked = [size.ask(MIB // 20, room=0, limit=MIB) for _ in range(100)]

    assert asked.count(1) == 6


def test_batch_that_is_longer_than_those_known_lets_the_sizes_be_learned_again() -> None:
    size = taught(*[4_000] * 9)
    assert size.ask(3_000, room=0, limit=60_000) == 16_000

    size.note_response(16_000, 16_384 + 100)

    assert [size.ask(3_000, room=0, limit=60_000) for _ in range(3)] == [1, 1, 16_000]


@pytest.mark.parametrize(("asked", "records"), [(16_000, 16_000), (16_000, 12_000), (3_000, 4_000), (1, 4_000)])
def test_batch_of_a_known_size_is_nothing_new(asked: int, records: int) -> None:
    size = taught(*[4_000] * 9)

    size.note_response(asked, records + 100)

    assert size.ask(3_000, room=0, limit=60_000) == 16_000


@pytest.mark.parametrize(
    ("asked", "records", "is_cut"),
    [(2_500, 2_500, True), (2_500, 2_450, False), (2_000, 2_000, False), (1, 1_000, False)],
)
def test_only_a_piece_of_a_batch_shows_that_there_is_more(asked: int, records: int, is_cut: bool) -> None:
    """A response as long as two batches, or a single one, may have been all that the broker had."""
    assert taught(*[1_000] * 8).note_response(asked, records + 100) is is_cut


def test_quick_answers_lower_the_time() -> None:
    time = AnswerTime()
    assert time.ms == 21
    for _ in range(50):
        time.note(1, had_data=False)
    assert time.ms == 2


def test_only_a_fetch_for_which_there_was_data_raises_the_time() -> None:
    time = AnswerTime()

    time.note(500, had_data=False)
    assert time.ms == 21
    time.note(300, had_data=True)
    assert time.ms == 301


def test_time_is_bounded() -> None:
    time = AnswerTime()
    time.note(100_000, had_data=True)
    assert time.ms == 5_000


ANSWER_MS = 10


class Fetches:
    """Fetches of 100 bytes each, of which ``at_broker`` are not answered."""

    def __init__(self, *, room: float = 0.0, owed_until_ms: int = 0) -> None:
        self.awaited = AwaitedFetches()
        self.room = room
        self.owed_until_ms = owed_until_ms
        self.at_broker = 0

    def may_pass(self, now_ms: int) -> bool:
        return self.awaited.may_pass(100, in_flight=100 * self.at_broker, room=self.room, now_ms=now_ms)

    def begin(self, now_ms: int, *, most: int = 1_000) -> int:
        """Forward as many fetches as may pass, up to ``most``, and return their number."""
        passed = 0
        while passed < most and self.may_pass(now_ms):
            self.awaited.passes(
                100, in_flight=100 * self.at_broker, room=self.room, owed_until_ms=self.owed_until_ms,
                answer_ms=ANSWER_MS, now_ms=now_ms,
            )  # fmt: skip
            self.at_broker += 1
            passed += 1
        return passed

    def answer(self, now_ms: int, *, owes: bool) -> None:
        self.at_broker -= 1
        self.awaited.answered(owes=owes, answer_ms=ANSWER_MS, now_ms=now_ms)


def test_fetches_pass_while_the_limit_has_room_for_them() -> None:
    fetches = Fetches(room=350)

    assert fetches.begin(5_000) == 3
    assert fetches.awaited.held_until_ms(in_flight=300) == 5_000 + ANSWER_MS


def test_without_room_the_first_passes_and_the_others_wait_for_an_answer() -> None:
    fetches = Fetches(room=-50)

    assert fetches.begin(5_000) == 1
    assert fetches.begin(5_009) == 0
    fetches.answer(5_009, owes=False)
    assert fetches.begin(5_009) == 1


def test_fetch_without_an_answer_holds_nobody_back_if_the_bucket_owes_nothing() -> None:
    fetches = Fetches(owed_until_ms=4_000)

    assert fetches.begin(5_000) == 1
    assert fetches.begin(5_009) == 0
    assert fetches.begin(5_010) == 1_000


def test_in_a_bucket_that_owed_lately_the_number_doubles_with_each_answer_that_does_not_come() -> None:
    fetches = Fetches(owed_until_ms=5_000)

    assert [fetches.begin(5_000 + number * ANSWER_MS) for number in range(6)] == [1, 1, 2, 4, 8, 16]


def test_after_a_response_that_used_up_the_limit_one_fetch_passes_again() -> None:
    fetches = Fetches(owed_until_ms=5_000)
    for number in range(6):
        fetches.begin(5_000 + number * ANSWER_MS)

    fetches.answer(5_055, owes=True)

    assert fetches.begin(5_060) == 1


def test_any_number_of_small_fetches_pass_a_limit_with_ample_room() -> None:
    fetches = Fetches(room=inf)

    assert fetches.begin(5_000) == 1_000
