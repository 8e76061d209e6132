"""The command ``python -m tests.simulation``: its options, and what each does."""

import argparse
import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation import kept, totals
from tests.simulation.guarded import run_guarded
from tests.simulation.outcome import Outcome, RunSeed
from tests.simulation.shrink import shrink
from tests.simulation.totals import CannotRecordError, NotALogError, Totals
from tests.simulation.workers import Workers

COMMAND: Final = "python -m tests.simulation"
_FIRST_SEEDS: Final = 1_000_000_000
_TICK_SECONDS: Final = 0.5
_TOLD_SECONDS: Final = 15  # the time between two lines of sums
_STORY_LINES: Final = 40

_ABOUT: Final = """Run the proxy in simulated worlds, one for each seed, until it is stopped or a promise is broken."""
_EXAMPLES: Final = f"""examples:
  {COMMAND} --seconds 60                   a minute of fresh seeds on all cores
  {COMMAND} --seeds 1000 --from 1          the seeds 1 to 1000
  {COMMAND} --seeds 1e5 --from 1 --record --log run.json
                                       the long run, in several if it is interrupted, written to RECORD.md
  {COMMAND} --theme followers              fresh seeds, only those whose world is about followers
  {COMMAND} --seed 4711                    replay a seed and print its story
  {COMMAND} --plan shrunk.json             replay a plan that a finding was shrunk to
  {COMMAND} --keep 4711 "a response went to the wrong request"
                                       make a test of the seed (or of a plan's file)
  {COMMAND} --seeds 200 --twice            run each seed twice: is it repeatable?

The exit status is 1 if a promise was broken, and 2 if the options are wrong or the run cannot be recorded.
"""


class Simulation(NamedTuple):
    """What the command runs.

    Attributes:
        run: Runs a seed.
        fault_kinds: The kinds of faults, each with a short description.
        themes: The names of the themes.
        theme_of: Returns the name of a seed's theme.
    """

    run: RunSeed
    fault_kinds: Mapping[str, str]
    themes: Sequence[str]
    theme_of: Callable[[int], str]


def main(simulation: Simulation, arguments: Sequence[str]) -> int:
    """Run the command, and return its exit status."""
    parser = _parser(simulation.themes)
    options = parser.parse_args(arguments)
    if options.list:
        for kind, text in sorted(simulation.fault_kinds.items()):
            _say(f"{kind}: {text}")
        return 0
    if options.keep:
        return _keep(parser, simulation.run, *options.keep)
    if options.seed is not None:
        return _replay(simulation, kept.Kept(options.seed, None, ""), options)
    if options.plan is not None:
        return _replay(simulation, kept.read(options.plan), options)
    try:
        campaign = _Campaign(simulation, options, list(arguments))
    except NotALogError as error:
        parser.error(str(error))
    return campaign.run()


def _parser(themes: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=_ABOUT, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    much = parser.add_argument_group("how much (default: until Ctrl-C)").add_argument
    much("--seconds", type=float, metavar="S", help="stop after this time")
    much("--seeds", type=_count, metavar="N", help="stop after N seeds")
    much("--from", type=int, metavar="S", dest="first", help="the first seed; the next is S+1 (default: at random)")
    much("--theme", choices=themes, metavar="NAME", help="only seeds of this theme: " + ", ".join(themes))
    much("--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="processes (default: all cores)")
    much("--twice", action="store_true", help="run each seed twice and compare their digests")
    found = parser.add_argument_group("findings").add_argument
    found("--findings", type=int, default=1, metavar="N", help="stop after N findings (default: 1)")
    found("--shrink-seconds", type=float, default=60, metavar="S", help="time to shrink a finding (default: 60)")
    found("--record", action="store_true", help="write tests/simulation/RECORD.md if nothing was found and all fired")
    found(
        "--log",
        type=Path,
        metavar="FILE",
        help="keep the sums in this file, and go on where a run with it has stopped: first the seeds that had failed, "
        "then the next; --seeds and --seconds are those of all its runs",
    )
    one = parser.add_argument_group("instead of a run").add_mutually_exclusive_group().add_argument
    one("--seed", type=int, metavar="S", help="replay one seed, print its story and digest")
    one("--plan", type=Path, metavar="FILE", help="replay a plan or a kept seed")
    one(
        "--keep", nargs=2, metavar=("SEED", "FOUND"), help="keep a seed, or a plan's file, as a test; say what it found"
    )
    one("--list", action="store_true", help="list the kinds of faults")
    return parser


def _count(text: str) -> int:
    return int(float(text))


def _keep(parser: argparse.ArgumentParser, run: RunSeed, seed: str, found: str) -> int:
    # With its plan: when draws are added or moved, the seed will draw another one.
    given = kept.Kept(int(seed), run(int(seed), None).plan, "") if seed.isdecimal() else kept.read(Path(seed))
    try:
        _say(f"wrote {kept.write(given._replace(found=found))}")
    except ValueError as error:
        parser.error(str(error))
    return 0


def _replay(simulation: Simulation, given: kept.Kept, options: argparse.Namespace) -> int:
    outcome = run_guarded(simulation.run, given.seed, given.plan, is_twice=options.twice)
    _say(str(outcome.plan), *outcome.story)
    _say(f"{outcome.steps:,} steps, {outcome.simulated_ms / 1_000:.3f} s simulated, digest {outcome.digest}")
    if outcome.violation is None:
        return 0
    _say(f"BROKEN: {outcome.violation.check}", outcome.violation.text)
    return 1


def finding_lines(outcome: Outcome, replay: str = "") -> list[str]:
    """Return what is known of a failed seed: what was broken, how to replay it, and its story."""
    assert outcome.violation is not None
    told = outcome.story[-_STORY_LINES:]
    lines = [
        *outcome.violation.text.splitlines(),
        f"seed {outcome.seed}, {outcome.steps:,} steps, {outcome.simulated_ms / 1_000:.3f} s simulated",
        f"replay: {COMMAND} {replay or f'--seed {outcome.seed}'}",
        f"the last {len(told)} lines of its story ({len(outcome.story) - len(told)} before):",
        *told,
    ]
    return ["", f"BROKEN: {outcome.violation.check}", *(f"  {line}" for line in lines)]


class _Campaign:
    """A run of many seeds."""

    def __init__(self, simulation: Simulation, options: argparse.Namespace, arguments: list[str]) -> None:
        self._simulation = simulation
        self._options = options
        self._arguments = arguments
        self._totals = Totals(simulation.fault_kinds, options.log)
        self._started = time.monotonic() - self._totals.seconds
        self._first: int = random.SystemRandom().randrange(_FIRST_SEEDS) if options.first is None else options.first

    @property
    def _seconds(self) -> float:
        """The real time, with that of earlier runs."""
        return time.monotonic() - self._started

    def run(self) -> int:
        options, totals = self._options, self._totals
        try:
            self._say_start()
            with Workers(self._simulation.run, self._seeds(), jobs=options.jobs, is_twice=options.twice) as workers:
                self._collect(workers)
        except KeyboardInterrupt:
            _say("stopped")
        seconds = self._seconds
        totals.write(seconds)
        self._shrink_all()
        _say("", *(f"{times:>11,}  {kind}" for kind, times in sorted(totals.faults.items())), totals.line(seconds))
        if totals.unfired:
            _say(f"never fired: {', '.join(totals.unfired)}")
        if totals.failed:
            return 1
        return self._record(seconds) if options.record else 0

    def _say_start(self) -> None:
        log, totals = self._options.log, self._totals
        _say(f"seeds from {self._first}, jobs: {self._options.jobs}")
        if totals.is_anew:
            _say(f"{log} is of another proxy, and begins anew")
        elif totals.next_seed is not None:
            _say(f"run {totals.runs} of {log}: {len(totals.again)} seeds again, then from {totals.next_seed}")

    def _seeds(self) -> Iterator[int]:
        """Give the seeds, until enough have been given or the time is over."""
        theme, totals, most = self._options.theme, self._totals, self._options.seeds
        seeds: Iterator[int] = itertools.count(self._first)
        if totals.next_seed is not None:
            seeds = itertools.chain(tuple(totals.again), itertools.count(totals.next_seed))
            most = None if most is None else max(0, most - totals.seeds)
        if theme is not None:
            seeds = (seed for seed in seeds if self._simulation.theme_of(seed) == theme)
        for seed in itertools.islice(seeds, most):
            if self._options.seconds is not None and self._seconds >= self._options.seconds:
                return
            totals.given(seed)
            yield seed

    def _collect(self, workers: Workers) -> None:
        told_seconds = self._seconds
        while (outcomes := workers.outcomes(_TICK_SECONDS)) is not None:
            for outcome in outcomes:
                self._totals.add(outcome)
                if outcome.violation is not None:
                    _say(*finding_lines(outcome))
            if len(self._totals.failed) >= self._options.findings:
                return
            if self._seconds >= told_seconds + _TOLD_SECONDS:
                told_seconds = self._seconds
                _say(self._totals.line(told_seconds))
                self._totals.write(told_seconds)

    def _shrink_all(self) -> None:
        seconds = self._options.shrink_seconds
        for failed in self._totals.failed if seconds > 0 else ():
            if not failed.plan.actors:
                continue  # it was not told what it was
            run = partial(run_guarded, self._simulation.run, failed.seed, is_twice=self._options.twice)
            _say("", f"shrinking seed {failed.seed} for {seconds:g} s")
            try:
                shrunk = shrink(failed, run, seconds=seconds)
            except KeyboardInterrupt:
                _say("stopped")
                return
            with tempfile.NamedTemporaryFile("w", prefix=f"seed-{failed.seed}-", suffix=".json", delete=False) as file:
                json.dump(shrunk.plan.to_json(), file)
            _say(*str(shrunk.plan).splitlines(), *finding_lines(shrunk, f"--plan {file.name}"))

    def _record(self, seconds: float) -> int:
        command = " ".join([COMMAND, *self._arguments])
        if self._options.first is None:
            command += f" --from {self._first}"
        try:
            text = self._totals.recorded(command, seconds)
        except CannotRecordError as error:
            _say(f"not recorded: {error}")
            return 2
        totals.RECORD.write_text(text, encoding="utf-8")
        _say(f"wrote {totals.RECORD}")
        return 0


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201 - a program that shows its progress
