"""The long fuzz run, ``make fuzz``.

Atheris (libFuzzer) searches for inputs that reach new branches of ``protocol``, ``proxy`` and ``config``. Each target
runs in its own process until it has done its share of the frames. A finding is printed with its traceback, and its
input is written next to the log. A run of ten million frames or more is recorded in RECORD.md. With ``--folder`` an
interrupted run continues, and finished targets are not run again.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from tests.fuzz import corpus
from tests.fuzz.targets import TARGETS

RECORD: Final = Path(__file__).parent / "RECORD.md"
RECORDED_FRAMES: Final = 10_000_000
MAX_SECONDS_PER_INPUT: Final = 10
MAX_MEMORY_MIB: Final = 1_024

_COVERAGE: Final = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")
_PREFACE: Final = """# The last long run

[Targets and findings](README.md).

Any bytes give a response or one closed connection, in bounded time and memory. Written by `make fuzz`.

A *frame* of a dialogue or of garbage passed a session whole, or was refused and closed it; of two compared sessions
one counts. A frame of the other targets was read. An *input* is one series of decisions, for some dozen frames. *Edges*
are branches of `protocol`, `proxy` and `config`, counted by libFuzzer. *Kept* is the smallest set of inputs in
`corpus/` that reaches all reached code.
"""


class Outcome(NamedTuple):
    """The result of a target's run. ``finding`` is the output of libFuzzer and Python, or "" if nothing was found."""

    target: str
    inputs: int
    frames: int
    edges: int
    corpus_inputs: int
    seconds: int
    finding: str


def main() -> int:
    """Run the targets, and return 1 if there is a finding, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"which; all without any: {', '.join(TARGETS)}")
    parser.add_argument("--frames", type=int, default=RECORDED_FRAMES, help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of libFuzzer (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="of logs and inputs (default: a new one)")
    parser.add_argument("--keep", action="store_true", help="add to the corpus that is kept what reaches more")
    options = parser.parse_args()
    chosen = options.targets or list(TARGETS)
    if unknown := set(chosen) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    shares = sum(TARGETS[target].share for target in chosen)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))
    frames = [options.frames * TARGETS[target].share // shares + 1 for target in chosen]
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda one, most: _run(one, most, options.seed, folder / one), chosen, frames))
    if options.keep:
        for target in chosen:
            found = [path.read_bytes() for path in (folder / target / "inputs").iterdir()]
            corpus.keep(target, corpus.minimised(TARGETS[target].run, corpus.kept(target) + found))
    _report(outcomes, f"--frames {options.frames} --seed {options.seed} --jobs {options.jobs}")
    return int(any(outcome.finding for outcome in outcomes))


def _run(target: str, frames: int, seed: int, work: Path) -> Outcome:
    """Fuzz one target in its own process. libFuzzer reads the corpus from files."""
    done_before = work / "outcome.json"
    if done_before.exists():
        return Outcome(**json.loads(done_before.read_text()))
    inputs = work / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(corpus.kept(target) + corpus.first(target)):
        (inputs / f"{number:05}").write_bytes(one)
    limits = [f"-timeout={MAX_SECONDS_PER_INPUT}", f"-rss_limit_mb={MAX_MEMORY_MIB}"]
    limits += [f"-max_len={corpus.MAX_INPUT_BYTES}", "-len_control=0", "-detect_leaks=0", f"-seed={seed}"]
    started = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.fuzz.libfuzzer",
            target,
            str(frames),
            *limits,
            f"-artifact_prefix={work}/",
            str(inputs),
        ],
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    lines = []
    with (work / "log").open("w") as log:
        for line in process.stderr or ():
            log.write(line)
            lines.append(line)
            if line.startswith(target):
                print(line, end="", flush=True)  # noqa: T201 - a program that shows its progress
    code = process.wait()
    said = [match for line in lines if (match := _COVERAGE.search(line))]
    edges, corpus_inputs = (int(said[-1][1]), int(said[-1][3])) if said else (0, 0)
    done = json.loads(next((line for line in reversed(lines) if line.startswith('{"inputs"')), "{}"))
    # The output without libFuzzer's progress lines.
    finding = "" if code == 0 and done else "".join(line for line in lines if not line.startswith(("#", "INFO")))
    seconds = round(time.monotonic() - started)
    outcome = Outcome(target, done.get("inputs", 0), done.get("frames", 0), edges, corpus_inputs, seconds, finding)
    if finding:
        print(f"{target}: exit code {code}; input and log are in {work}\n{finding}", flush=True)  # noqa: T201
    else:
        done_before.write_text(json.dumps(outcome._asdict()))
    return outcome


def _report(outcomes: list[Outcome], arguments: str) -> None:
    """Print the table of outcomes, and add a long run to RECORD.md."""
    rows = [
        "| target | frames | inputs | edges reached | inputs that reach them | of those kept | seconds | findings |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {target} | {frames:,} | {inputs:,} | {edges:,} | {reaching:,} | {len(corpus.kept(target)):,} "
            f"| {seconds:,} | {int(bool(finding))} |"
            for target, inputs, frames, edges, reaching, seconds, finding in outcomes
        ),
    ]
    frames, inputs = sum(one.frames for one in outcomes), sum(one.inputs for one in outcomes)
    seconds = sum(one.seconds for one in outcomes)
    findings = sum(bool(one.finding) for one in outcomes)
    rows.append(f"| all | {frames:,} | {inputs:,} | | | | {seconds:,} | {findings} |")
    table = "\n".join(rows)
    print(table)  # noqa: T201
    if frames >= RECORDED_FRAMES:
        tools = f"atheris {version('atheris')}, Python {platform.python_version()}"
        preface = f'{_PREFACE}\n`make fuzz ARGS="{arguments}"`, {tools}.'
        RECORD.write_text(f"{preface}\n\n{table}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
