"""The command ``python -m tests.simulation.bites``, ``make bites``."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from tests.simulation.bites import mutate
from tests.simulation.bites.bite import STEPS, Bite, bite
from tests.simulation.bites.model import Break, BreakError, applied
from tests.simulation.bites.report import BITES, report

_LEAST_SHARE: Final = 0.9
_ABOUT: Final = """Break the proxy in many ways, one at a time, and see that the simulation finds each."""
_EXAMPLES: Final = """examples:
  make bites                                            all breaks, written to tests/simulation/BITES.md
  make bites ARGS="--log /tmp/bites.jsonl"              go on where an interrupted run has stopped
  make bites ARGS="--only proxy/quota --steps 1e5"      some of them; nothing is written
  make bites ARGS="--draw 20 --seed 19"                 draw mutations anew

The exit status is 1 if the unbroken proxy fails, if a break does not fit its file any more, if a break was not found
and nothing says why, if one that should break no promise was found, or if fewer than nine of ten were found.
"""


def main(breaks: Sequence[Break], arguments: Sequence[str], run: Callable[..., Bite] = bite) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.bites",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--steps", type=lambda text: int(float(text)), default=STEPS, help="for each break (default: %(default)s)")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="breaks at a time (default: all cores)")
    add("--only", metavar="TEXT", help="breaks with this in their name, file or origin")
    add("--log", type=Path, metavar="FILE", help="append each outcome to this file, and run none that is in it")
    add("--list", action="store_true", help="list the breaks")
    add("--draw", type=int, metavar="N", help="draw N mutations anew and keep them")
    add("--seed", type=int, default=1, help="of --draw (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.draw:
        mutate.draw(options.draw, options.seed)
        return 0
    chosen = [one for one in breaks if not options.only or options.only in f"{one.name} {one.file} {one.origin}"]
    if options.list:
        _say(*(f"{one.origin:9}  {one.file}: {one.name}" for one in chosen))
        return 0
    try:
        for one in chosen:
            applied(one)
        if not _passes_unbroken(run, options, sorted({one.theme for one in chosen} | {""})):
            return 1
        found = _run_all(chosen, run, options)
    except BreakError as error:
        _say(str(error))
        return 1
    text = report(chosen, found, steps=options.steps)
    if not options.only:
        BITES.write_text(text, encoding="utf-8")
        _say(f"wrote {BITES}")
    return _status(chosen, found)


def _passes_unbroken(run: Callable[..., Bite], options: argparse.Namespace, themes: Sequence[str]) -> bool:
    """Run the unbroken proxy with the same seeds as the breaks: those of each of ``themes``."""
    failed = False
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = pool.map(lambda theme: run(None, steps=options.steps, theme=theme), themes)
        for theme, one in zip(themes, outcomes, strict=True):
            what = one.check or "nothing is found"
            _say(f"unbroken, {theme or 'all themes'}: {what} ({one.steps:,} steps, {one.seconds:,.0f} s)")
            if one.check:
                failed = True
                _say(one.text)
    if failed:
        _say("the breaks say nothing while the unbroken proxy fails")
    return not failed


def _run_all(chosen: Sequence[Break], run: Callable[..., Bite], options: argparse.Namespace) -> dict[str, Bite]:
    """Run each break that is not in the log, and return the outcomes of all by name."""
    log: Path | None = options.log
    lines = log.read_text(encoding="utf-8").splitlines() if log is not None and log.exists() else []
    found = {one.name: one for one in map(Bite.from_json, lines)}
    left = [one for one in chosen if one.name not in found]
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(run, one, steps=options.steps) for one in left]
        try:
            for number, future in enumerate(as_completed(waiting), start=1):
                one = future.result()
                found[one.name] = one
                if log is not None:
                    with log.open("a", encoding="utf-8") as file:
                        file.write(one.to_json() + "\n")
                what = f"found by: {one.check}" if one.check else "NOT FOUND"
                _say(f"{number}/{len(left)} {one.name}\n    {what} ({one.steps:,} steps, {one.seconds:,.1f} s)")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _status(chosen: Sequence[Break], found: dict[str, Bite]) -> int:
    noticed = [one.name for one in chosen if one.is_harmless and found[one.name].check]
    chosen = [one for one in chosen if not one.is_harmless]
    missed = [one for one in chosen if not found[one.name].check]
    unexplained = [one.name for one in missed if not one.why]
    _say(f"found {len(chosen) - len(missed)} of {len(chosen)}")
    if noticed:
        _say("found, although it should break no promise:", *(f"  {name}" for name in noticed))
    if unexplained:
        _say("not found, and nothing says why:", *(f"  {name}" for name in unexplained))
    return int(bool(unexplained or noticed) or len(chosen) - len(missed) < _LEAST_SHARE * len(chosen))


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
