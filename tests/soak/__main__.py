"""The soak, ``make soak``: real brokers, clients of five libraries, and everything fails now and then.

Prints progress every 30 seconds and the tables at the end, and returns 1 if there is a finding. A run of an hour or
more is recorded in RECORD.md and soak.svg.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench import machine
from tests.end_to_end.support.processes import HarnessError, remove_scratch_of_dead_runs
from tests.soak import checks, record
from tests.soak.checks import LONG_LIFE_S, Flow, Use
from tests.soak.clients import CLIENTS
from tests.soak.plan import WHOLE_MINUTES, plan
from tests.soak.record import Results
from tests.soak.world import Evidence, World, away_spans

HOME: Final = Path(__file__).parent
RECORDED_MINUTES: Final = 60
# Of each client, in a run of half an hour or more.
_LEAST_MINUTES: Final = 5
_PREFACE: Final = """# The last run of the soak

[How it is made, and what is checked](README.md). Written by `make soak`.

* Command: `make soak ARGS="{arguments}"`
* Machine: {machine}
* Versions: {software}

![Memory, descriptors and loop lag of the proxy](soak.svg)

"""


def main() -> int:
    """Run a soak, and return 1 if there is a finding, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="length (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the plan (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, help="folder of RECORD.md and soak.svg (default: this one, from an hour on)"
    )
    parser.add_argument("--strictness", type=float, default=1, help="divides all bounds; with 2 a run must fail")
    options = parser.parse_args()
    remove_scratch_of_dead_runs()
    started = time.monotonic()

    def say(text: str) -> None:
        passed = int(time.monotonic() - started)
        print(f"{passed // 60:02}:{passed % 60:02} {text}", flush=True)  # noqa: T201 - a program that shows its progress

    world = World(plan(options.minutes, options.seed), minutes=options.minutes, say=say)
    try:
        world.run()
    except HarnessError:
        world.evidence.findings.append(f"the run broke off:\n{traceback.format_exc()}")
    evidence = world.evidence
    results = judge(evidence, minutes=options.minutes, strictness=options.strictness)
    tables = record.tables(evidence, results)
    print(tables)  # noqa: T201
    folder = options.out or (HOME if options.minutes >= RECORDED_MINUTES else None)
    if folder is not None:
        preface = _PREFACE.format(
            arguments=f"--minutes {options.minutes:g} --seed {options.seed}",
            machine=machine.name(),
            software=record.software(),
        )
        (folder / "RECORD.md").write_text(preface + tables, encoding="utf-8")
        record.draw(evidence, folder / "soak.svg")
    return int(bool(results.findings))


def judge(evidence: Evidence, *, minutes: float, strictness: float) -> Results:
    """Apply all checks."""
    is_whole = minutes >= WHOLE_MINUTES
    away = away_spans(evidence)
    trends = [
        [checks.trend(life, one, away=away, strictness=strictness) for one in checks.QUANTITIES]
        for life in evidence.lives
    ]
    findings = list(evidence.findings)
    for number, (life, found) in enumerate(zip(evidence.lives, trends, strict=True), 1):
        findings += checks.life_findings(number, life, found)
    if minutes >= RECORDED_MINUTES and max((life.length_s for life in evidence.lives), default=0) < LONG_LIFE_S:
        findings.append(f"no life of the proxy had {LONG_LIFE_S // 60} minutes")
    uses: dict[str, Use] = {}
    for client in CLIENTS:
        flow = _flow(evidence, client.name)
        uses[client.name] = checks.use(flow)
        throttled = evidence.throttled.get(client.name, 0)
        least = _LEAST_MINUTES if is_whole else 0
        findings += checks.quota_findings(
            flow, uses[client.name], throttled, least_minutes=least, strictness=strictness
        )
    delivered = {
        client.library: checks.delivered(
            client,
            evidence.programs[client.name].sent,
            evidence.topics[client.library].numbers,
            evidence.failures,
        )
        for client in CLIENTS
        if client.role == "produce" and client.library in evidence.topics
    }
    for one in delivered.values():
        findings += one.findings
    findings += _program_findings(evidence)
    return Results(trends, uses, delivered, findings)


def _flow(evidence: Evidence, name: str) -> Flow:
    client = next(one for one in CLIENTS if one.name == name)
    program = evidence.programs.get(name)
    fresh = [*evidence.restarts, *evidence.moves.get(client.library, ())]
    return Flow(client, program.trace if program else [], evidence.changes.get(name, []), fresh)


def _program_findings(evidence: Evidence) -> Iterator[str]:
    """Yield what consumers saw wrong, what the topics have wrong, and errors without a failure before."""
    for client in CLIENTS:
        topic = evidence.topics.get(client.library)
        if topic is None:
            continue
        if client.role == "produce":
            yield from (f"topic of {client.library}: {fault}" for fault in topic.notes.faults[:5])
        else:
            seen = evidence.programs[client.name].seen
            yield from checks.consumer_findings(client, seen, topic.notes.jumps, evidence.failures)
    for name, program in evidence.programs.items():
        for at_s, error in program.errors:
            if not checks.in_failure(at_s, evidence.failures):
                yield f"{name}: {error} without a failure before"


if __name__ == "__main__":
    sys.exit(main())
