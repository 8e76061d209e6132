"""Draws mutants, runs the unit tests with each, and writes RECORD.md."""

import argparse
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from tests.mutation.mutants import ROOMS, Verdict, drawn, enter_copy, verdict
from tests.simulation.totals import cpu_model

RECORD: Final = Path(__file__).parent / "RECORD.md"
_PREFACE: Final = """# Do the unit tests bite?

Written by `make mutate`. A mutant is a package with one small fault: a number moved by one, a comparison turned round,
a condition negated, a sign changed. The tests of its module and of the folder beside it run until one fails. A mutant
that no test notices is either the same program, or a hole in the tests.

"""


def main() -> None:
    """Draw mutants of each package, try them, and write the record."""
    options = _options()
    began_s = time.monotonic()
    mutants = [one for room in options.rooms for one in drawn(room, options.mutants, options.seed)]
    verdicts: list[Verdict] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        get_context("spawn").Pool(options.jobs, initializer=enter_copy, initargs=(folder,)) as pool,
    ):
        for one in pool.imap_unordered(verdict, mutants):
            verdicts.append(one)
            sys.stdout.write(f"{len(verdicts)} of {len(mutants)}: {described(one)}\n")
            sys.stdout.flush()
    text = report(verdicts, seed=options.seed, minutes=(time.monotonic() - began_s) / 60)
    if set(options.rooms) == set(ROOMS):
        RECORD.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def described(one: Verdict) -> str:
    """Return one line about a mutant."""
    return f"{'noticed' if one.is_noticed else 'NOT noticed'}: {one.module}:{one.line}: {' -> '.join(one.change)}"


def report(verdicts: list[Verdict], *, seed: int, minutes: float) -> str:
    """Return the text of the record."""
    lines = [f"Seed {seed}, {minutes:.0f} minutes on {cpu_model()}.", "", "| package | mutants | noticed | |"]
    lines.append("|---|---:|---:|---:|")
    for room in ROOMS:
        own = [one for one in verdicts if one.module.startswith(f"{room}/")]
        lines += [_row(f"`{room}`", own)] if own else []
    lines += [_row("**all**", verdicts), "", "## Not noticed", "", "| where | before | after |", "|---|---|---|"]
    missed = sorted(one for one in verdicts if not one.is_noticed)
    lines += [f"| `{one.module}:{one.line}` | {_code(one.change[0])} | {_code(one.change[1])} |" for one in missed]
    return _PREFACE + "\n".join(lines) + "\n"


def _row(name: str, verdicts: list[Verdict]) -> str:
    noticed = sum(one.is_noticed for one in verdicts)
    return f"| {name} | {len(verdicts)} | {noticed} | {100 * noticed / max(1, len(verdicts)):.0f} % |"


def _code(line: str) -> str:
    return f"<code>{line.replace('|', '&#124;').replace('<', '&lt;')}</code>"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--mutants", type=int, default=60, metavar="N", help="mutants of each package (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes (default: 2)")
    parser.add_argument("rooms", nargs="*", default=ROOMS, choices=[*ROOMS, []], help=f"default: {', '.join(ROOMS)}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
