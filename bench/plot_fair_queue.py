"""Draws the waits of polite users while a greedy one comes and goes, with and without a queue.

``python -m bench.plot_fair_queue [--seconds 40] [--out docs/pictures/fair-call-queue.svg]``

Ten users send a write as soon as their last one is answered. In the middle half of the time, another user does the same
with a hundred connections. The broker has one thread, and a write takes 5 ms.
"""

import argparse
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.closed_loop import Crowd, Load, Served, Writes
from tests.end_to_end.support.greedy import GREEDY, POLITE, meet, slow_kafka
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

OUT: Final = Path(__file__).parents[1] / "docs" / "pictures" / "fair-call-queue.svg"
WITHOUT: Final = "no queue"
QUEUES: Final[dict[str, dict[str, Any]]] = {
    WITHOUT: {},
    "max_in_flight: 4": {"fair_call_queue": {"max_in_flight": 4}},
    "max_in_flight: adaptive": {"fair_call_queue": {}},
}
COLOURS: Final = ("#c8553d", "#1f6f8b", "#7fb069")


def visit(kafka: Kafka, topic: str, settings: dict[str, Any], seconds: int) -> dict[str, list[Served]]:
    """Run all users, and return the answered requests with their times from the start."""
    with Proxy(settings, kafka) as proxy, ExitStack() as stack:

        def load(*crowds: Crowd, seconds: float) -> Load:
            return stack.enter_context(Load(proxy.port(), topic, *crowds, seconds=seconds, kind=Writes()))

        polite = load(*POLITE, seconds=seconds)
        time.sleep(seconds / 4)
        greedy = load(GREEDY, seconds=seconds / 2)
        served = greedy.served() | polite.served()
    start_s = min(one.at_s for crowd in POLITE for one in served[crowd.client_id])
    return {
        name: [Served(one.at_s - start_s, one.took_s) for one in answers if one.at_s - start_s < seconds]
        for name, answers in served.items()
    }


def polite_ms(served: dict[str, list[Served]], seconds: int) -> list[list[float]]:
    """Return the latencies of polite users in each second, in ms, in ascending order."""
    found: list[list[float]] = [[] for _ in range(seconds)]
    for crowd in POLITE:
        for one in served[crowd.client_id]:
            found[int(one.at_s)].append(one.took_s * 1_000)
    return [sorted(each) for each in found]


def summary(name: str, served: dict[str, list[Served]], seconds: int) -> str:
    """Describe the waits of polite users without and with the greedy one, and the rates with it."""
    each = polite_ms(served, seconds)
    settled_s = 3
    alone = [one for second in each[settled_s : seconds // 4] for one in second]
    during = [one for second in each[seconds // 4 + settled_s : seconds * 3 // 4] for one in second]
    begin_s, end_s = seconds // 4 + settled_s, seconds * 3 // 4
    rates = {
        who: sum(begin_s <= one.at_s < end_s for name in names for one in served[name]) / (end_s - begin_s)
        for who, names in (("polite", [one.client_id for one in POLITE]), ("greedy", [GREEDY.client_id]))
    }
    return (
        f"{name}: p99 alone {_p99(alone):.0f} ms, with the greedy one {_p99(during):.0f} ms "
        f"(median {statistics.median(alone):.0f} and {statistics.median(during):.0f} ms); then "
        f"{rates['polite']:.0f} polite and {rates['greedy']:.0f} greedy requests/s, {sum(rates.values()):.0f} in all"
    )


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def draw(seen: dict[str, dict[str, list[Served]]], seconds: int, out: Path) -> None:
    """Draw the slowest polite request of each second."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fair call queue"  # the same picture from the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    axes.axvspan(seconds / 4, seconds * 3 / 4, color="#eeeeee", label="another user's 100 connections")
    for colour, (name, served) in zip(COLOURS, seen.items(), strict=True):
        each = polite_ms(served, seconds)
        at = [second + 0.5 for second in range(seconds)]
        axes.plot(at, [max(one, default=float("nan")) for one in each], color=colour, linewidth=2, label=name)
    axes.set_yscale("log")
    axes.set_yticks([50, 100, 200, 500, 1_000], ["50", "100", "200", "500", "1000"])
    axes.minorticks_off()
    axes.set_xlabel("second")
    axes.set_ylabel("ms, slowest request of the second")
    axes.set_title("What ten users with one request at a time wait for")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    axes.margins(x=0.01)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plot_fair_queue", description=__doc__)
    parser.add_argument("--seconds", type=int, default=40, help="length of each of the three")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    with slow_kafka() as kafka:
        topic = create_topic(kafka)
        meet(kafka, topic, None, seconds=3)  # until the broker's Java code is compiled
        seen = {}
        for name, settings in QUEUES.items():
            seen[name] = visit(kafka, topic, settings, options.seconds)
            print(summary(name, seen[name], options.seconds), flush=True)
    draw(seen, options.seconds, options.out)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
