"""Draws how a replica catches up under Kafka's throttle and under the proxy's.

``python -m bench.plot_move [--megabytes 300] [--out docs/pictures/move.svg]``

Four partitions move from one broker of three to another at the same rate, each time in a new cluster. The size of the
new replica's files is measured.
"""

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib as mpl

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.rebalance import Growth, Reassignment, Sample, behind_proxies, load, without_proxies

MB: Final = 1_000_000
RATE: Final = 20 * MB
RECORD_BYTES: Final = 16_300
STEP_S: Final = 0.5
AT_KAFKA: Final = "Kafka's own --throttle"
THROUGH_PROXY: Final = "the proxy's file"
OUT: Final = Path(__file__).parents[1] / "docs" / "pictures" / "move.svg"


def measure(megabytes: int) -> dict[str, list[Sample]]:
    """Move this many bytes under one throttle, and then under the other."""
    moves = {}
    with without_proxies(KAFKA_4) as kafka:
        moves[AT_KAFKA] = _move(kafka, megabytes, throttle=RATE)
    with behind_proxies(KAFKA_4, {"replication": {"leader.replication.throttled.rate": RATE}}) as bed:
        moves[THROUGH_PROXY] = _move(bed.kafka, megabytes, throttle=None)
    return moves


def _move(kafka: Kafka, megabytes: int, *, throttle: int | None) -> list[Sample]:
    moving = load(kafka, on=[1], size_bytes=megabytes * MB, record_bytes=RECORD_BYTES)
    reassignment = Reassignment(load=moving, to=[3], throttle=throttle)
    with Growth(moving, kafka.brokers[2]) as growth:
        reassignment.execute()
        reassignment.wait(timeout_s=3 * megabytes * MB / RATE + 60)
    reassignment.verify()
    first = next(at for at, (_, size_bytes) in enumerate(growth.samples) if size_bytes)
    return growth.samples[first - 1 :]


def rates(samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Return seconds since the first sample, and the MB/s of the half second before each."""
    start_s = samples[0].at_s
    kept = [samples[0]]
    for sample in samples:
        if sample.at_s - kept[-1].at_s >= STEP_S:
            kept.append(sample)
    steps = list(pairwise(kept))
    return (
        [after.at_s - start_s for _, after in steps],
        [(after.size_bytes - before.size_bytes) / MB / (after.at_s - before.at_s) for before, after in steps],
    )


def draw(moves: dict[str, list[Sample]], out: Path) -> None:
    """Draw both moves over time, and the throttle."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "move"  # the same picture from the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    seconds, height = rates(moves[AT_KAFKA])
    axes.bar(seconds, height, width=STEP_S * 0.9, color="#c8553d", label=AT_KAFKA)
    seconds, height = rates(moves[THROUGH_PROXY])
    axes.plot(seconds, height, drawstyle="steps-mid", color="#1f6f8b", linewidth=2, label=THROUGH_PROXY)
    axes.axhline(RATE / MB, color="black", linewidth=1, linestyle="--", label=f"throttle, {RATE // MB} MB/s")
    axes.set_xlabel("seconds since the first byte")
    axes.set_ylabel("MB/s, over half a second")
    axes.set_title("A new replica that catches up")
    axes.legend(loc="upper right")
    axes.margins(x=0.01)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plot_move", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300, help="size of each move")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    draw(measure(options.megabytes), options.out)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
