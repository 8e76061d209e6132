"""Runs the benchmarks and writes the results: ``python -m bench [--quick] [--rows a,b] [--peers a,b]``."""

import argparse
import datetime
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from bench import decision, machine, real_broker, report, scheduling, synthetic, veth
from bench.figures import OURS, Sample
from bench.peers import PEERS, Peer
from bench.rows import ROWS, Row, Section, selected
from tests.end_to_end.support.processes import remove_scratch_of_dead_runs

REPETITIONS: Final = 5
RESULTS: Final = Path(__file__).with_name("RESULTS.md")
RAW: Final = Path(__file__).with_name("results.json")

Measure = Callable[[Row, Peer], Sample]
Environment = Callable[[Sequence[str]], AbstractContextManager[tuple[list[Peer], Measure]]]


@contextmanager
def _in_process(names: Sequence[str]) -> Iterator[tuple[list[Peer], Measure]]:
    yield [Peer(name=OURS, port=0)], lambda row, peer: decision.measure(row)


@contextmanager
def _scheduling(names: Sequence[str]) -> Iterator[tuple[list[Peer], Measure]]:
    yield [Peer(name=OURS, port=0)], lambda row, peer: scheduling.measure(row)


# Sections with the same environment share its programs, which stay warm for the next row.
ENVIRONMENTS: Final[Sequence[tuple[Environment, frozenset[Section]]]] = (
    (synthetic.measuring, frozenset({Section.BULK, Section.REQUESTS, Section.LATENCY})),
    (synthetic.measuring_rewriting, frozenset({Section.ADDRESSES})),
    (synthetic.measuring_queue, frozenset({Section.QUEUE})),
    (synthetic.measuring_fresh, frozenset({Section.IDLE})),
    (synthetic.measuring_tls, frozenset({Section.TLS})),
    (veth.measuring, frozenset({Section.VETH})),
    (real_broker.measuring, frozenset({Section.KAFKA})),
    (real_broker.measuring_queue, frozenset({Section.KAFKA_QUEUE})),
    (_in_process, frozenset({Section.DECISION})),
    (_scheduling, frozenset({Section.SCHEDULING})),
)
# In these sections, the first round does not count, because it would measure compilers and cold caches.
WARMED_UP: Final = frozenset(Section) - {Section.IDLE, Section.DECISION, Section.SCHEDULING}


def measured(row: Row, *, peers: Sequence[Peer], measure: Measure, repetitions: int, warm_up: bool) -> report.Measured:
    """Measure a row with all peers in turn. Each repetition starts with another peer."""
    samples: dict[str, list[Sample]] = {peer.name: [] for peer in peers}
    if warm_up:
        for peer in peers:
            measure(row, peer)
    for repetition in range(repetitions):
        first = repetition % len(peers)
        for peer in (*peers[first:], *peers[:first]):
            samples[peer.name].append(measure(row, peer))
            latest = {name: taken[-1:] for name, taken in samples.items()}
            print(f"[{repetition + 1}/{repetitions}] {report.progress(row, peer.name, latest)}", flush=True)
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return report.Measured(row=row, date=date, machine=machine.name(), samples=samples)


def all_measured(
    rows: Sequence[Row], *, names: Sequence[str], repetitions: int, warm_up: bool
) -> list[report.Measured]:
    """Measure the rows of one environment after the other."""
    taken = []
    for environment, sections in ENVIRONMENTS:
        wanted = [row for row in rows if row.section in sections]
        if wanted:
            with environment(names) as (peers, measure):
                taken += [
                    measured(
                        row,
                        peers=peers,
                        measure=measure,
                        repetitions=repetitions,
                        warm_up=warm_up and row.section in WARMED_UP,
                    )
                    for row in wanted
                ]
    return taken


def _write(taken: Sequence[report.Measured], described: dict[str, str]) -> None:
    """Write the new figures, and keep the figures of all other rows."""
    stored = json.loads(RAW.read_text()) if RAW.exists() else {"machines": {}, "rows": {}}
    again = {one.row.key for one in taken}
    everything = [*(one for one in report.from_json(stored["rows"]) if one.row.key not in again), *taken]
    machines = stored["machines"] | {machine.name(): described}
    machines = {name: machines[name] for name in {one.machine for one in everything}}
    RAW.write_text(json.dumps({"machines": machines, "rows": report.to_json(everything)}, indent=1) + "\n")
    RESULTS.write_text(report.document(everything, machines=machines, commands=_commands()))


def _commands() -> dict[str, str]:
    return {"All rows": "make bench", **{row.title: _command(row) for row in ROWS if row.section in synthetic.SECONDS}}


def _command(row: Row) -> str:
    tls = " --tls CA" if row.section is Section.TLS else ""
    return f"python -m bench.load {' '.join(synthetic.command(row))} --port PORT --pid PID{tls}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one repetition, no warm-up, table on the terminal only")
    parser.add_argument("--rows", help="keys or sections of rows, with commas: " + ", ".join(row.key for row in ROWS))
    parser.add_argument("--peers", default=",".join(PEERS), help=f"which to measure (default: {','.join(PEERS)})")
    parser.add_argument("--repetitions", type=int, help=f"default {REPETITIONS}, 1 with --quick")
    options = parser.parse_args()
    names = options.peers.split(",")
    if unknown := set(names) - set(PEERS):
        parser.error(f"no peer is called {min(unknown)}; there are {', '.join(PEERS)}")
    try:
        rows = selected(options.rows)
    except ValueError as error:
        parser.error(str(error))
    remove_scratch_of_dead_runs()
    described = machine.describe()
    repetitions = options.repetitions or (1 if options.quick else REPETITIONS)
    taken = all_measured(rows, names=names, repetitions=repetitions, warm_up=not options.quick)
    print("\n" + report.tables(taken))
    if not options.quick:
        _write(taken, described)
        print(f"\nwritten to {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
