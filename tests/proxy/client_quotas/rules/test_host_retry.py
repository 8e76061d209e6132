"""Tests when hosts that were not found are looked up again."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.client_quotas.rules.host_retry import FIRST_DELAY_MS, LONGEST_DELAY_MS, MissingHosts


def test_host_is_looked_up_at_once_and_then_with_growing_delays() -> None:
    missing = MissingHosts()
    missing.follow({"a"}, now_ms=7)
    asked: list[int] = []
    while len(asked) < 12:
        now_ms = missing.next_ms
        assert now_ms is not None
        assert missing.take(9, now_ms=now_ms - 1) == ()
        assert missing.take(9, now_ms=now_ms) == ("a",)
        asked.append(now_ms)

    waits = [after - before for before, after in pairwise(asked)]
    assert asked[0] == 7
    assert waits[:4] == [1_000, 2_000, 4_000, 8_000]
    assert waits[-1] == LONGEST_DELAY_MS == max(waits)


def test_hosts_are_taken_up_to_a_number_first_come_first_served() -> None:
    missing = MissingHosts()
    missing.follow({"a", "b", "c"}, now_ms=0)

    assert missing.take(2, now_ms=0) == ("a", "b")
    assert missing.take(2, now_ms=0) == ("c",)
    assert missing.next_ms == FIRST_DELAY_MS


def test_found_host_is_dropped_and_starts_over_when_missing_again() -> None:
    missing = MissingHosts()
    missing.follow({"a", "b"}, now_ms=0)
    for now_ms in (0, 1_000, 3_000):
        missing.take(9, now_ms=now_ms)

    missing.follow({"b"}, now_ms=4_000)
    assert missing.take(9, now_ms=7_000) == ("b",)
    missing.follow(set(), now_ms=8_000)
    assert (missing.next_ms, len(missing)) == (None, 0)
    missing.follow({"a"}, now_ms=9_000)
    assert missing.take(9, now_ms=9_000) == ("a",)
    assert missing.next_ms == 9_000 + FIRST_DELAY_MS


@given(st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.integers(0, 5_000)), max_size=20))
def test_all_missing_hosts_and_no_others_are_looked_up_in_time(
    steps: list[tuple[set[str], int]],
) -> None:
    missing, now_ms = MissingHosts(), 0
    for names, later_ms in steps:
        missing.follow(names, now_ms=now_ms)
        now_ms += later_ms
        asked = missing.take(9, now_ms=now_ms)
        assert set(asked) <= names
        assert len(asked) == len(set(asked))
        assert (missing.next_ms is None) == (not names)
        assert missing.next_ms is None or missing.next_ms > now_ms
