"""The checks of a soak find growth, bytes above a limit, and lost, doubled or reordered records. And nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.soak import checks
from tests.soak.checks import QUANTITIES, Change, Flow, Life, Seen, Sent, Span
from tests.soak.clients import CLIENTS, Client
from tests.soak.records import Jump, Notes, key, value
from tests.soak.slope import Verdict

_SAMPLED, _PACED = (next(one for one in CLIENTS if one.name == f"{name}-produce") for name in ("java", "librdkafka"))
_PLAIN = next(one for one in CLIENTS if one.name == "kafkajs-produce")
_MEMBER, _LONELY = (next(one for one in CLIENTS if one.name == f"{name}-consume") for name in ("java", "librdkafka"))
_FAILURE = Span(100, 110)


# --- lives


def _life(*, seconds: int, memory_per_ten_minutes: float = 0.0) -> Life:
    life = Life(started_s=1_000, warm_s=1_060, ended_s=1_000 + seconds)
    for at in range(seconds):
        life.memory.append((1_000 + at, 40 + 0.1 * (at % 3) + memory_per_ten_minutes * at / 600))
        life.descriptors.append((1_000 + at, 50 + at % 7))
        life.lag.append((1_000 + at, 1 + 0.1 * (at % 5)))
    return life


def _life_findings(life: Life) -> list[str]:
    trends = [checks.trend(life, one, away=()) for one in QUANTITIES]
    return list(checks.life_findings(1, life, trends))


def test_flat_life_has_no_findings() -> None:
    assert _life_findings(_life(seconds=900)) == []


def test_leak_is_found() -> None:
    (finding,) = _life_findings(_life(seconds=900, memory_per_ten_minutes=3))

    assert finding.startswith("life 1: memory not flat: +3.00 to +3.0")


def test_long_life_that_is_too_noisy_to_tell_is_a_finding_and_a_short_one_is_not() -> None:
    for seconds, count in ((900, 1), (300, 0)):
        life = _life(seconds=seconds)
        life.lag = [(at, 1_000.0 * (number % 97 > 80)) for number, (at, _) in enumerate(life.lag)]
        assert len(_life_findings(life)) == count


def test_warm_up_and_times_without_a_broker_are_left_out() -> None:
    life = _life(seconds=900)
    life.memory = [(at, one + (500 if at < 1_060 or at > 1_800 else 0)) for at, one in life.memory]

    trend = checks.trend(life, QUANTITIES[0], away=[Span(1_800, 1_900)])

    assert trend.middle == pytest.approx(40.1)
    assert trend.verdict is Verdict.FLAT


def test_internal_errors_and_faults_are_findings() -> None:
    life = _life(seconds=900)
    life.internal_errors = 2
    life.faults.append("Traceback (most recent call last):")

    assert _life_findings(life) == ["life 1: 2 internal errors", "life 1: Traceback (most recent call last):"]


def test_tracebacks_are_found_in_a_log() -> None:
    trace = 'ERROR a\nTraceback (most recent call last):\n  File "b", line 1\n    c()\nValueError: d'

    assert checks.tracebacks(f"INFO e\n{trace}\nINFO f\n") == [trace]
    assert checks.tracebacks("INFO e\nINFO f\n") == []


# --- quotas


def _trace(rates: Iterable[float]) -> list[tuple[float, float]]:
    """Return a trace with these rates of successive seconds."""
    trace = [(0.0, 0.0)]
    for second, rate in enumerate(rates, 1):
        trace.append((float(second), trace[-1][1] + rate))
    return trace


def _quota_findings(flow: Flow, *, least_minutes: int = 1) -> list[str]:
    return list(checks.quota_findings(flow, checks.use(flow), 10, least_minutes=least_minutes))


@pytest.mark.parametrize("share", [0.9, 1.04])
def test_client_within_its_limit_has_no_findings(share: float) -> None:
    assert _quota_findings(Flow(_PACED, _trace([share * 100] * 200), [Change(-1, 0, 100)], [])) == []


def test_client_above_its_limit_is_found_in_the_minute_and_in_the_run() -> None:
    findings = _quota_findings(Flow(_PACED, _trace([107] * 200), [Change(-1, 0, 100)], []))

    assert findings == [
        "librdkafka-produce: a minute with 1.070 of the limit, above 1.050",
        "librdkafka-produce: 1.014 of what all limits of the run allow",
    ]


def test_single_minute_above_the_limit_is_found() -> None:
    flow = Flow(_PACED, _trace([50] * 90 + [110] * 61 + [50] * 90), [Change(-1, 0, 100)], [])

    assert _quota_findings(flow) == ["librdkafka-produce: a minute with 1.100 of the limit, above 1.050"]


def test_bursts_of_a_sampled_limit_are_allowed() -> None:
    bursts = [1_100.0 if second % 11 == 0 else 0 for second in range(300)]

    assert checks.use(Flow(_SAMPLED, _trace(bursts), [Change(-1, 0, 100)], [])).worst == pytest.approx(1.1, abs=0.02)
    assert _quota_findings(Flow(_SAMPLED, _trace(bursts), [Change(-1, 0, 100)], [])) == []


def test_minutes_are_compared_with_the_limit_of_their_time() -> None:
    changes = [Change(-1, 0, 100), Change(150, 151, 200), Change(300, 301, 50)]
    rates = [100.0] * 150 + [200] * 150 + [50] * 150
    used = checks.use(Flow(_PACED, _trace(rates), changes, []))

    assert used.worst == pytest.approx(1)
    assert used.minutes == 6
    assert used.run < 1


def test_change_that_did_not_hold_is_found() -> None:
    changes = [Change(-1, 0, 100), Change(150, 151, 50)]

    findings = _quota_findings(Flow(_PACED, _trace([100] * 300), changes, []))

    assert findings[0] == "librdkafka-produce: a minute with 2.000 of the limit, above 1.050"


def test_new_buckets_may_have_their_bursts() -> None:
    """A restart of the proxy at 100 s gives a sampled client eleven seconds' worth more in the run, not in a minute."""
    rates = [100.0] * 100 + [1_100] + [100] * 100
    restart = Span(99, 101)

    assert _quota_findings(Flow(_SAMPLED, _trace(rates), [Change(-1, 0, 100)], [restart])) == []
    assert len(_quota_findings(Flow(_SAMPLED, _trace(rates), [Change(-1, 0, 100)], []))) == 1


def test_client_that_was_never_throttled_or_never_checked_is_a_finding() -> None:
    flow = Flow(_PACED, _trace([90] * 50), [Change(-1, 0, 100)], [])

    assert list(checks.quota_findings(flow, checks.use(flow), 0, least_minutes=1)) == [
        "librdkafka-produce: only 0 undisturbed minutes to check",
        "librdkafka-produce: never throttled, so nothing was tested",
    ]


# --- records


def _delivered(numbers: Iterable[int], *, client: Client = _SAMPLED, at_s: float = 0) -> checks.Delivered:
    sent = Sent(6, frozenset({2}))
    return checks.delivered(client, sent, [(number, at_s) for number in numbers], [_FAILURE])


@pytest.mark.parametrize("numbers", [(0, 1, 3, 4, 5), (0, 1, 2, 3, 4, 5)])
def test_each_acknowledged_record_once_in_order_is_well(numbers: tuple[int, ...]) -> None:
    assert _delivered(numbers).findings == []


@pytest.mark.parametrize(
    ("numbers", "finding"),
    [
        ((0, 1, 3, 4), "1 acknowledged records are lost, such as 5"),
        ((0, 1, 1, 3, 4, 5), "record 1 is there twice"),
        ((0, 1, 4, 3, 5), "record 3 comes after record 4"),
        ((0, 1, 3, 4, 5, 6), "1 records were never sent, such as 6"),
    ],
)
def test_lost_doubled_reordered_and_invented_records_are_found(numbers: tuple[int, ...], finding: str) -> None:
    assert _delivered(numbers).findings == [f"java-produce: {finding}"]


def test_without_idempotence_duplicates_may_follow_a_failure() -> None:
    numbers = (0, 1, 0, 1, 3, 4, 5)

    after_failure = _delivered(numbers, client=_PLAIN, at_s=120)
    assert (after_failure.duplicates, after_failure.findings) == (2, [])
    assert len(_delivered(numbers, client=_PLAIN, at_s=50).findings) == 2
    assert len(_delivered(numbers, client=_PLAIN, at_s=300).findings) == 2


_WELL = Seen(9, [Jump(5, 4, 7)], [], [])


def _seen(client: Client, seen: Seen) -> list[str]:
    return list(checks.consumer_findings(client, seen, [Jump(5, 4, 7), Jump(10, 11, 20)], [_FAILURE]))


def test_consumer_that_saw_what_the_topic_has_is_well() -> None:
    assert _seen(_LONELY, _WELL) == []


def test_consumer_that_saw_something_else_is_found() -> None:
    assert len(_seen(_LONELY, _WELL._replace(jumps=[]))) == 1
    assert len(_seen(_LONELY, _WELL._replace(faults=["offset 3 follows offset 1"]))) == 1
    assert "librdkafka-consume: read nothing" in _seen(_LONELY, _WELL._replace(next_offset=0))


def test_only_members_of_groups_may_read_again_and_only_after_a_failure() -> None:
    assert _seen(_MEMBER, _WELL._replace(again_at_s=[120])) == []
    assert len(_seen(_MEMBER, _WELL._replace(again_at_s=[50]))) == 1
    assert len(_seen(_MEMBER, _WELL._replace(again_at_s=[120, 231]))) == 1
    assert len(_seen(_LONELY, _WELL._replace(again_at_s=[120]))) == 1


def test_notes_have_jumps_gaps_wrong_bytes_and_what_was_read_again() -> None:
    notes = Notes()
    for offset, number in ((0, 0), (1, 1), (2, 5), (4, 6), (4, 6), (5, 7)):
        notes.take(offset, key(number), value(number))
    notes.take(6, key(8), value(8)[:-1] + b"?")

    assert (notes.read, notes.again, notes.next_offset) == (6, 1, 7)
    assert notes.jumps == [Jump(2, 1, 5)]
    assert notes.faults == ["offset 4 follows offset 2", "offset 6: key b'8' with the value of another record"]
