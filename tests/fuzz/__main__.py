"""Any bytes give an answer or one closed connection, in bounded time and memory: the long run, ``make fuzz``.

Atheris (libFuzzer) looks for inputs that reach new branches of ``protocol``, ``proxy`` and ``config``, one target after
the other, each in a process of its own, until all have had their share of the frames. A finding is shown with its
traceback, and its input is written beside the log. A run of ten million frames or more is written down in RECORD.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.fuzz import corpus

RECORD: Final = Path(__file__).parent / "RECORD.md"
RECORDED_FRAMES: Final = 10_000_000
MAX_SECONDS_PER_INPUT: Final = 10
MAX_MEMORY_MIB: Final = 1_024

_PROGRESS_SECONDS: Final = 5.0
_COVERAGE: Final = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")


class Outcome(NamedTuple):
    """What a target's run did; ``finding`` is what libFuzzer and Python said of it, "" without one."""

    target: str
    inputs: int
    frames: int
    edges: int
    corpus_inputs: int
    finding: str


def main() -> int:
    """Run the targets; return 1 if any of them found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="which; all without any")
    parser.add_argument("--frames", type=int, default=RECORDED_FRAMES, help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of libFuzzer (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="put the minimised corpus in the place of the one kept")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)  # a target; the rest are libFuzzer's arguments
    options, rest = parser.parse_known_args()
    if options.in_process:
        return _fuzz(options.in_process, options.frames, rest)
    if rest:
        parser.error(f"unknown: {' '.join(rest)}")
    targets = import_module("tests.fuzz.targets").TARGETS
    chosen = options.targets or list(targets)
    if unknown := set(chosen) - set(targets):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(targets)}")
    shares = sum(targets[target].share for target in chosen)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    outcomes = []
    for target in chosen:
        frames = options.frames * targets[target].share // shares + 1
        outcomes.append(_run(target, frames, options.seed, folder, is_kept=options.keep))
    _report(outcomes, options)
    return int(any(outcome.finding for outcome in outcomes))


def _run(target: str, frames: int, seed: int, folder: Path, *, is_kept: bool) -> Outcome:
    """Fuzz one target in a process of its own, with its corpus in files as libFuzzer wants it."""
    work = folder / target
    inputs = work / "inputs"
    inputs.mkdir(parents=True)
    _write(inputs, corpus.kept(target) + corpus.first(target))
    command = [sys.executable, "-m", "tests.fuzz", f"--in-process={target}", f"--frames={frames}"]
    limits = [f"-timeout={MAX_SECONDS_PER_INPUT}", f"-rss_limit_mb={MAX_MEMORY_MIB}"]
    limits += [f"-max_len={corpus.MAX_INPUT_BYTES}", "-len_control=0", "-detect_leaks=0"]
    lines = []
    process = subprocess.Popen(
        [*command, *limits, f"-seed={seed}", f"-artifact_prefix={work}/", str(inputs)],
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    with (work / "log").open("w") as log:
        for line in process.stderr:
            log.write(line)
            lines.append(line)
            if line.startswith(target):
                print(line, end="", flush=True)  # noqa: T201 - a program that shows its progress
    code = process.wait()
    said = [match for line in lines if (match := _COVERAGE.search(line))]
    edges, corpus_inputs = (int(said[-1][1]), int(said[-1][3])) if said else (0, 0)
    done = json.loads(next((line for line in reversed(lines) if line.startswith('{"inputs"')), "{}"))
    finding = "" if code == 0 and done else "".join(lines[-60:])
    if finding:
        print(f"{target}: exit code {code}; the input and the log are in {work}\n{finding}", flush=True)  # noqa: T201
    elif is_kept:
        _minimise(target, command, work)
    return Outcome(target, done.get("inputs", 0), done.get("frames", 0), edges, corpus_inputs, finding)


def _minimise(target: str, command: list[str], work: Path) -> None:
    """Keep as few inputs as reach what all of them reach."""
    merged = work / "merged"
    merged.mkdir()
    subprocess.run([*command, "-merge=1", str(merged), str(work / "inputs")], check=True, stderr=subprocess.DEVNULL)
    corpus.keep(target, [path.read_bytes() for path in merged.iterdir()])


def _write(folder: Path, inputs: list[bytes]) -> None:
    for number, one in enumerate(inputs):
        (folder / f"{number:05}").write_bytes(one)


def _fuzz(target: str, frames: int, arguments: list[str]) -> int:
    """Be libFuzzer, until so many frames have passed."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["protocol", "proxy", "config"]):
        run = import_module("tests.fuzz.targets").TARGETS[target].run
    is_merge = any(argument.startswith("-merge") for argument in arguments)
    done = inputs = 0
    shown = time.monotonic()

    def one(data: bytes) -> None:
        nonlocal done, inputs, shown
        done += run(data)
        inputs += 1
        if time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            print(f"{target}: {done:,} of {frames:,} frames, {inputs:,} inputs", file=sys.stderr)  # noqa: T201
        if done >= frames and not is_merge:
            print("\n" + json.dumps({"inputs": inputs, "frames": done}), file=sys.stderr, flush=True)  # noqa: T201
            os._exit(0)  # libFuzzer has no other way to be stopped from within

    atheris.Setup(["fuzz", *arguments], one)
    atheris.Fuzz()
    return 0


def _report(outcomes: list[Outcome], options: argparse.Namespace) -> None:
    """Print the table, and write it down if the run was a long one."""
    lines = [
        "| target | frames | inputs | edges reached | inputs that reach them | findings |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.target} | {one.frames:,} | {one.inputs:,} | {one.edges:,} | {one.corpus_inputs:,} | {int(bool(one.finding))} |"
        for one in outcomes
    ]
    frames, inputs = sum(one.frames for one in outcomes), sum(one.inputs for one in outcomes)
    findings = sum(bool(one.finding) for one in outcomes)
    lines.append(f"| all | {frames:,} | {inputs:,} | | | {findings} |")
    table = "\n".join(lines)
    print(table)  # noqa: T201
    if frames >= RECORDED_FRAMES:
        atheris = import_module("importlib.metadata").version("atheris")
        version = ".".join(map(str, sys.version_info[:2]))
        RECORD.write_text(
            f"{_PREFACE}\n`make fuzz`: seed {options.seed}, atheris {atheris}, Python {version}.\n\n{table}\n",
            encoding="utf-8",
        )


_PREFACE: Final = """# The last long run

Any bytes give an answer or one closed connection, in bounded time and memory. Written by `make fuzz`.

A *frame* of a dialogue or of garbage is one that came out of a session whole, to the broker or to the client, or was
refused and closed it; of a pair of sessions that are compared one is counted. A frame of the readers is one that was
read. An *input* is what the fuzzer made, a play of some dozen frames. *Edges* are branches of `protocol`, `proxy` and
`config` as libFuzzer counts them.
"""


if __name__ == "__main__":
    sys.exit(main())
