"""The sums over seeds, the line that says them, and the record of a long run."""

import pytest

from tests.simulation.made_up import BREAKS, FAULT_KINDS, run_seed
from tests.simulation.progress import Progress, Totals, counted
from tests.simulation.record import CannotRecordError, recorded


def totals_of(*seeds: int) -> Totals:
    totals = Totals(FAULT_KINDS)
    for seed in seeds:
        totals.add(run_seed(seed))
    return totals


def test_line_has_the_sums() -> None:
    assert totals_of(1, 2, BREAKS).line(0.1) == (
        "3 seeds, 3,000 steps (30,000/s), 0.0 simulated hours, fault kinds 2 of 3, 3 states, 1 finding"
    )
    assert Totals(FAULT_KINDS).line(0) == (
        "0 seeds, 0 steps (0/s), 0.0 simulated hours, fault kinds 0 of 3, 0 states, no finding"
    )


def test_fault_lines_have_each_kind() -> None:
    assert [line.split(maxsplit=2) for line in totals_of(1, 2).fault_lines(FAULT_KINDS)] == [
        ["never", "0", "it never happens"],
        ["reset", "6", "a connection is reset"],
        ["stall", "6", "a connection stalls"],
    ]


@pytest.mark.parametrize(("is_terminal", "seconds"), [(True, [5, 10, 15]), (False, [])])
def test_progress_is_said_more_often_to_a_person(*, is_terminal: bool, seconds: list[int]) -> None:
    now = 100.0
    said: list[float] = []
    progress = Progress(Totals(()), is_terminal=is_terminal, now=lambda: now, say=lambda _line: said.append(now - 100))
    for _ in range(17):
        progress.tick()
        now += 1
    assert said == seconds
    assert progress.seconds == 17


def test_numbers_are_counted_in_words() -> None:
    assert [counted(number, "finding") for number in (0, 1, 2)] == ["no finding", "1 finding", "2 findings"]


def test_record_has_each_kind_of_fault_and_the_command() -> None:
    totals = totals_of(1, 2)
    totals.faults["never"] += 1
    text = recorded(totals, FAULT_KINDS, command="python -m tests.simulation --from 1", seconds=2)
    assert "| command | `python -m tests.simulation --from 1` |" in text
    assert "| steps | 2,000 |" in text
    assert "| real time | 0.00 h (1,000 steps/s) |" in text
    assert "| reset | a connection is reset | 6 |" in text
    assert "| findings | none |" in text


def test_run_with_a_fault_that_never_fired_is_not_recorded() -> None:
    with pytest.raises(CannotRecordError, match="never fired: never"):
        recorded(totals_of(1), FAULT_KINDS, command="", seconds=1)


def test_run_with_a_finding_is_not_recorded() -> None:
    with pytest.raises(CannotRecordError, match="there were findings"):
        recorded(totals_of(BREAKS), FAULT_KINDS, command="", seconds=1)


def test_run_of_no_seed_is_not_recorded() -> None:
    with pytest.raises(CannotRecordError, match="no seed was run"):
        recorded(Totals(()), {}, command="", seconds=1)
