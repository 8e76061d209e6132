"""Writes what a soak found: the tables, for the terminal and RECORD.md, and the picture."""

from __future__ import annotations

import platform
import re
import statistics
import subprocess
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib as mpl

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.everything import KAFKAJS
from tests.soak.checks import MINUTE_BOUNDS, QUANTITIES, Delivered, Life, Trend, Use
from tests.soak.clients import CLIENTS, LIBRARIES
from tests.soak.world import Evidence

_COLOURS: Final = ("#1f6f8b", "#c8553d")


class Results(NamedTuple):
    """The figures of all checks: by life, by client and by library."""

    trends: list[list[Trend]]
    uses: dict[str, Use]
    delivered: dict[str, Delivered]
    findings: list[str]


def software() -> str:
    """Return the versions of the proxy, the brokers and the clients."""
    commit = _output(["git", "describe", "--always", "--dirty", "--exclude", "*"]) or "unknown"
    java = re.search(r'version "([^"]+)"', _output(["java", "-version"]))
    parts = [
        f"proxy {commit}", f"Python {platform.python_version()}", f"uvloop {version('uvloop')}",
        f"Kafka and its client {KAFKA_4}", f"Java {java[1] if java else 'unknown'}",
        *(f"{name} {version(name)}" for name in ("confluent-kafka", "aiokafka", "kafka-python")), f"kafkajs {KAFKAJS}",
    ]  # fmt: skip
    return ", ".join(parts)


def tables(evidence: Evidence, results: Results) -> str:
    """Return the tables of lives, clients, topics and events, and the findings, in Markdown."""
    parts = [
        "## Findings",
        "\n".join(f"* {one}" for one in results.findings) or "None.",
        "## The processes of the proxy",
        "Growth is per ten minutes. It is the 95 % interval of the slope, without the warm-up and without the times "
        "when a broker was away. Each open connection of a client needs two descriptors, which are not counted here.",
        _lives(evidence.lives, results.trends),
        "## Quotas",
        f"A share is what a client wrote or read in a minute, divided by its limit. Minutes in which the limit changed "
        f"or a bucket was new are left out. A share may be {MINUTE_BOUNDS['sampled']} with sampled shaping and "
        f"{MINUTE_BOUNDS['paced']} with paced. The last column compares the whole run with what all limits allowed.",
        _quotas(evidence, results.uses),
        "## Records",
        _records(evidence, results.delivered),
        "## Events",
        _events(evidence),
    ]
    return "\n\n".join(parts) + "\n"


def _lives(lives: Sequence[Life], trends: Sequence[Sequence[Trend]]) -> str:
    names = [f"{one.name}{f', {one.unit}' if one.unit else ''}" for one in QUANTITIES]
    heads = [head for name in names for head in (name, "growth")]
    rows = [_row("life", "minutes", *heads, "lag p99, ms", "internal errors", "ended by")]
    rows.append("|---|---:|" + "---:|---|" * len(names) + "---:|---:|---|")
    for number, (life, found) in enumerate(zip(lives, trends, strict=True), 1):
        cells = [cell for one in found for cell in (f"{one.middle:.1f}", _growth(one))]
        lag = [value for _, value in life.lag]
        p99 = f"{statistics.quantiles(lag, n=100)[98]:.1f}" if len(lag) > 1 else ""
        errors = f"{life.internal_errors:.0f}"
        rows.append(_row(str(number), f"{life.length_s / 60:.1f}", *cells, p99, errors, life.end))
    return "\n".join(rows)


def _growth(trend: Trend) -> str:
    if trend.fit is None or trend.verdict is None:
        return "too short to tell"
    return f"{trend.fit.low * 600:+.2f} to {trend.fit.high * 600:+.2f}, {trend.verdict.value}"


def _quotas(evidence: Evidence, uses: dict[str, Use]) -> str:
    rows = [_row("client", "quota", "limits", "new buckets", "throttled", "minutes", "mean", "highest", "run")]
    rows.append("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for client in CLIENTS:
        used = uses[client.name]
        fresh = len(evidence.restarts) + len(evidence.moves.get(client.library, ()))
        where = "file" if client.in_file else "store"
        whose = "user and client-id" if client.by_user else "client-id"
        limits = str(len(evidence.changes.get(client.name, ())))
        throttled = f"{evidence.throttled.get(client.name, 0):,.0f}"
        shares = (f"{used.mean:.3f}", f"{used.worst:.3f}", f"{used.run:.3f}")
        quota = f"{client.shaping}, of {whose}, {where}"
        rows.append(_row(client.name, quota, limits, str(fresh), throttled, str(used.minutes), *shares))
    return "\n".join(rows)


def _records(evidence: Evidence, delivered: dict[str, Delivered]) -> str:
    head = ("library", "idempotent", "sent", "not acknowledged", "in the topic", "duplicates", "read", "read again")
    rows = [_row(*head), "|---|---|---:|---:|---:|---:|---:|---:|"]
    for library in LIBRARIES:
        if library not in delivered:
            continue
        producer, consumer = (evidence.programs[f"{library}-{role}"] for role in ("produce", "consume"))
        client = next(one for one in CLIENTS if one.library == library)
        numbers = (
            producer.sent.records, len(producer.sent.unacknowledged), delivered[library].records,
            delivered[library].duplicates, consumer.records, (consumer.last or {}).get("again", 0),
        )  # fmt: skip
        rows.append(_row(library, "yes" if client.is_idempotent else "no", *(f"{one:,}" for one in numbers)))
    visits = evidence.programs.get("visitors")
    if visits is not None:
        rows.append(f"\nShort-lived clients: {visits.records // 10:,}; {len(visits.errors)} failed while a broker or "
                    "the proxy was away.")  # fmt: skip
    return "\n".join(rows)


def _events(evidence: Evidence) -> str:
    """Return the number of reloads and alterations, and all other events with their times."""
    kinds = Counter(text.split(":")[0] for _, text in evidence.events)
    counts = f"{kinds['reload']} reloads, {kinds['alter']} quotas changed by Kafka's API, and:"
    rare = [f"* {int(at // 60):02}:{int(at % 60):02} {text}" for at, text in evidence.events if _is_rare(text)]
    return "\n".join([counts, "", *rare])


def _is_rare(text: str) -> bool:
    return not text.startswith(("reload", "alter"))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def draw(evidence: Evidence, out: Path) -> None:
    """Draw memory, descriptors and loop lag over the run, and the ends of brokers and proxies."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "soak"  # the same picture from the same numbers
    from matplotlib import pyplot

    figure, every = pyplot.subplots(len(QUANTITIES), figsize=(9, 7), layout="constrained", sharex=True)
    for axes, quantity in zip(every, QUANTITIES, strict=True):
        for number, life in enumerate(evidence.lives):
            points = _thinned(getattr(life, quantity.name), highest=quantity.name == "lag")
            minutes = [(at - evidence.started_s) / 60 for at, _ in points]
            axes.plot(minutes, [value for _, value in points], color=_COLOURS[number % 2], linewidth=1)
        for away in evidence.brokers_away:
            axes.axvspan(*((at - evidence.started_s) / 60 for at in away), color="#dddddd")
        axes.set_ylabel(f"{quantity.name}, {quantity.unit}" if quantity.unit else quantity.name)
        axes.set_ylim(0, axes.dataLim.y1 * 1.1)
    every[0].set_title("The proxy in a soak: each life in its own colour; grey: a broker is away")
    every[-1].set_ylabel("loop lag, ms (highest in 5 s)")
    every[-1].set_xlabel("minute")
    figure.savefig(out, metadata={"Date": None})
    out.write_text("".join(f"{line.rstrip()}\n" for line in out.read_text().splitlines()))


def _thinned(points: Sequence[tuple[float, float]], *, highest: bool) -> list[tuple[float, float]]:
    """Return one point for each five seconds."""
    groups: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        groups.setdefault(int(point[0] // 5), []).append(point)
    return [max(group, key=lambda one: one[1]) if highest else group[0] for _, group in sorted(groups.items())]


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip() if done.returncode == 0 else ""
