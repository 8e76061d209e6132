"""Tests that failed attempts have few lines in the audit log, and that all of them are counted."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.client_quotas.audit.summary import MOST_KEYS, AttemptSummaries, AttemptSummary
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

ADMIN = Origin("admin", "adminclient-1", "10.0.0.5", "clients")
UNIX_MS = 1_767_268_800_000


def refused(code: int = 42) -> Outcome:
    return Outcome((("user", "alice"),), (), None, None, None, code, "no")


def add(sums: AttemptSummaries, now_ms: int, *, origin: Origin = ADMIN, code: int = 42, entities: int = 1) -> bool:
    return sums.add(refused(code), origin, result="refused", entities=entities, now_ms=now_ms, unix_ms=UNIX_MS + now_ms)


def test_first_attempt_has_its_line_and_the_rest_of_the_second_one_summary() -> None:
    sums = AttemptSummaries()

    told = [add(sums, now_ms, entities=10) for now_ms in (0, 1, 999)]

    assert told == [True, False, False]
    assert (sums.take(now_ms=999), sums.has_any) == ([], True)
    of_second = AttemptSummary(ADMIN, refused(), "refused", 20, UNIX_MS + 1, UNIX_MS + 999)
    assert (sums.take(now_ms=1_000), sums.has_any) == ([of_second], False)


def test_continued_attempts_have_summaries_only() -> None:
    sums = AttemptSummaries()
    add(sums, 0)
    add(sums, 1)
    sums.take(now_ms=1_000)

    assert not add(sums, 1_001)
    assert [one.entities for one in sums.take(now_ms=2_000)] == [1]


def test_attempt_after_a_quiet_second_has_its_own_line() -> None:
    sums = AttemptSummaries()
    add(sums, 0)

    assert sums.take(now_ms=1_000) == []
    assert add(sums, 1_001)


def test_each_reason_and_each_principal_has_its_line() -> None:
    sums = AttemptSummaries()

    assert [add(sums, 0, code=code, origin=Origin(who)) for who in "ab" for code in (42, 89, 42)] == [
        *[True, True, False],
        *[True, True, False],
    ]


def test_the_end_does_not_wait_for_the_second() -> None:
    sums = AttemptSummaries()
    add(sums, 0)
    add(sums, 1)

    assert [one.entities for one in sums.take(now_ms=2, is_end=True)] == [1]


def test_too_many_principals_share_one_summary() -> None:
    sums = AttemptSummaries()

    told = [add(sums, 0, origin=Origin(f"token@10.0.{n // 250}.{n % 250}")) for n in range(3 * MOST_KEYS)]

    assert sum(told) == MOST_KEYS
    assert [(one.origin, one.entities) for one in sums.take(now_ms=1_000)] == [(None, 2 * MOST_KEYS)]


_ATTEMPTS = st.lists(
    st.tuples(st.integers(0, 700), st.sampled_from("ab"), st.sampled_from([42, 89]), st.integers(1, 5)), max_size=60
)


@given(_ATTEMPTS)
def test_each_attempt_is_counted_and_a_reason_has_at_most_two_lines_a_second(
    attempts: list[tuple[int, str, int, int]],
) -> None:
    """The two lines are that of the first attempt, and a second later that of all others."""
    sums, lines = AttemptSummaries(), []
    asked: Counter[tuple[str, int]] = Counter()
    now_ms = 0
    for step_ms, who, code, entities in attempts:
        now_ms += step_ms
        asked[who, code] += entities
        lines += [(now_ms, one.origin, one.last.error_code, one.entities) for one in sums.take(now_ms=now_ms)]
        if add(sums, now_ms, origin=Origin(who), code=code, entities=entities):
            lines.append((now_ms, Origin(who), code, entities))
    for begin_ms, *_ in lines:
        within = Counter((one, code) for at_ms, one, code, _ in lines if begin_ms <= at_ms < begin_ms + 1_000)
        assert all(count <= 2 for count in within.values())

    lines += [(now_ms, one.origin, one.last.error_code, one.entities) for one in sums.take(now_ms=now_ms, is_end=True)]
    told: Counter[tuple[str, int]] = Counter()
    for _, origin, code, entities in lines:
        assert origin is not None
        told[origin.principal, code] += entities
    assert told == asked
