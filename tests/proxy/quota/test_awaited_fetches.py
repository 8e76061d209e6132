"""Tests how many fetches may be at the broker while nobody knows what they will bring."""

from math import inf

from kafka_quota_proxy.proxy.quota.awaited_fetches import AwaitedFetches

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
