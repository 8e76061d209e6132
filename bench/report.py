"""Writes measured rows as Markdown tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from bench.figures import (
    DIRECT,
    ENVOY,
    OURS,
    Quantity,
    Samples,
    Spread,
    bytes_per_second,
    cpu_s_per_10k_requests,
    cpu_s_per_gb,
    difference,
    field,
    ratio,
    requests_per_second,
    spread,
)
from bench.rows import ROWS, Row, Section

# A column: its heading, and a function for the cell of a peer.
Column: TypeAlias = tuple[str, Callable[[Samples, str], str]]
ABSENT: Final = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The samples of a row, and when and on which machine they were taken."""

    row: Row
    date: str
    machine: str
    samples: Samples


def number(value: float) -> str:
    """Write a number with three significant digits, or as a whole number from 1,000 on."""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    digits = 3 - len(f"{abs(value):.0f}") if abs(value) >= 1 else 3 if abs(value) < 0.1 else 2
    return f"{value:.{max(digits, 0)}f}"


def cell(value: Spread | None, *, scale: float = 1) -> str:
    """Write a median and its spread."""
    if value is None:
        return ABSENT
    return f"{number(value.median / scale)} [{number(value.low / scale)}–{number(value.high / scale)}]"


def _figure(heading: str, quantity: Quantity, *, scale: float = 1) -> Column:
    return heading, lambda samples, peer: cell(spread(samples, peer, quantity), scale=scale)


def _cpu(heading: str, quantity: Quantity) -> Column:
    return heading, lambda samples, peer: ABSENT if peer == DIRECT else cell(spread(samples, peer, quantity))


def _of(other: str, heading: str, quantity: Quantity) -> Column:
    def of_other(samples: Samples, peer: str) -> str:
        without = peer == other or (other == ENVOY and peer == DIRECT)
        return ABSENT if without else cell(ratio(samples, peer, other, quantity))

    return heading, of_other


def _over_direct(heading: str, quantity: Quantity) -> Column:
    def over(samples: Samples, peer: str) -> str:
        return ABSENT if peer == DIRECT else cell(difference(samples, peer, DIRECT, quantity))

    return heading, over


_MEMORY: Final = field("resident_bytes_per_connection")
COLUMNS: Final[Mapping[Section, Sequence[Column]]] = {
    Section.BULK: (
        _figure("MB/s", bytes_per_second, scale=1e6),
        _of(DIRECT, "of direct", bytes_per_second),
        _of(ENVOY, "of Envoy", bytes_per_second),
        _cpu("CPU s per GB", cpu_s_per_gb),
        _of(ENVOY, "CPU, of Envoy's", cpu_s_per_gb),
    ),
    Section.REQUESTS: (
        _figure("requests/s", requests_per_second),
        _of(DIRECT, "of direct", requests_per_second),
        _of(ENVOY, "of Envoy", requests_per_second),
        _cpu("CPU s per 10,000", cpu_s_per_10k_requests),
        _of(ENVOY, "CPU, of Envoy's", cpu_s_per_10k_requests),
    ),
    Section.LATENCY: (
        _figure("p50, µs", field("p50_us")),
        _over_direct("p50 over direct", field("p50_us")),
        _figure("p99, µs", field("p99_us")),
        _over_direct("p99 over direct", field("p99_us")),
        _cpu("CPU s per 10,000", cpu_s_per_10k_requests),
    ),
    Section.IDLE: (_cpu("KiB a connection", lambda sample: _MEMORY(sample) / 1024),),
    Section.ADDRESSES: (
        _figure("MB/s", bytes_per_second, scale=1e6),
        _of(OURS, "of ours", bytes_per_second),
        _cpu("CPU s per GB", cpu_s_per_gb),
        _of(OURS, "CPU, of ours", cpu_s_per_gb),
    ),
    Section.QUEUE: (
        _figure("MB/s", bytes_per_second, scale=1e6),
        _of(OURS, "of ours", bytes_per_second),
        _cpu("CPU s per 10,000", cpu_s_per_10k_requests),
        _of(OURS, "CPU, of ours", cpu_s_per_10k_requests),
    ),
    Section.KAFKA_QUEUE: (
        _figure("MB/s", bytes_per_second, scale=1e6),
        _of(OURS, "of ours", bytes_per_second),
        _cpu("CPU s per GB", cpu_s_per_gb),
        _of(OURS, "CPU, of ours", cpu_s_per_gb),
    ),
    Section.VETH: (
        _figure("MB/s", bytes_per_second, scale=1e6),
        _of(ENVOY, "of Envoy", bytes_per_second),
        _cpu("CPU s per GB", cpu_s_per_gb),
        _of(ENVOY, "CPU, of Envoy's", cpu_s_per_gb),
    ),
    Section.DECISION: (_figure("µs a decision", field("decision_us")),),
    Section.SCHEDULING: (_figure("µs a decision", field("decision_us")),),
}
TITLES: Final = {
    Section.BULK: "Bulk, fake broker",
    Section.REQUESTS: "Small requests, fake broker",
    Section.LATENCY: "Latency, fake broker",
    Section.IDLE: "Memory, fake broker",
    Section.VETH: "Bulk, fake broker, packets over veth pairs",
    Section.ADDRESSES: "Addresses rewritten or not, fake broker",
    Section.QUEUE: "With and without a queue that never fills, fake broker that is faster than the proxy",
    Section.KAFKA_QUEUE: "With and without a queue that never fills, Apache Kafka",
    Section.TLS: "Bulk over TLS, fake broker",
    Section.KAFKA: "Apache Kafka and its performance tools",
    Section.DECISION: "A decision, no network: resolve, record, throttle time",
    Section.SCHEDULING: "What the fair call queue decides, no network",
}


def columns(section: Section) -> Sequence[Column]:
    """Return the columns of a section's table."""
    return COLUMNS[Section.BULK if section in (Section.KAFKA, Section.TLS) else section]


def progress(row: Row, peer: str, samples: Samples) -> str:
    """Describe the result of one run, for the terminal."""
    figures = (f"{heading} {one(samples, peer).split(' [')[0]}" for heading, one in columns(row.section))
    return f"{row.key}  {peer}: " + ", ".join(figure for figure in figures if not figure.endswith(ABSENT))


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table. Its first two columns are aligned to the left."""
    rules = ["---" if n < 2 else "---:" for n in range(len(headings))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rules, *lines))


def figures_table(section: Section, rows: Sequence[Measured]) -> str:
    """Write a table with a line for each row and peer."""
    wanted = columns(section)
    lines = [
        [one.row.title if first else "", peer, *(make(one.samples, peer) for _, make in wanted)]
        for one in rows
        for first, peer in _with_first(_peers(section, one.samples))
    ]
    return table(["load", "peer", *(heading for heading, _ in wanted)], lines)


def _peers(section: Section, samples: Samples) -> list[str]:
    return [peer for peer in samples if peer != DIRECT or section is not Section.IDLE]


def _with_first(peers: Sequence[str]) -> Iterable[tuple[bool, str]]:
    return ((n == 0, peer) for n, peer in enumerate(peers))


def targets_table(rows: Sequence[Measured]) -> str:
    """Write a table with a line for each target: the figure, its bound, and whether it is met."""
    lines = []
    for one in rows:
        for first, target in enumerate(one.row.targets):
            figure, bound = target.read(one.samples), target.bound(one.samples)
            lines.append(
                [
                    "" if first else one.row.title,
                    target.text,
                    ABSENT if figure is None else number(figure),
                    ABSENT if bound is None else number(bound),
                    {True: "met", False: "**missed**", None: "not measured"}[target.is_met(one.samples)],
                ]
            )
    return table(["load", "target", "ours", "bound", ""], lines)


def verdict(rows: Sequence[Measured]) -> str:
    """Say how many targets are met, missed, and not measured."""
    met = [target.is_met(one.samples) for one in rows for target in one.row.targets]
    return f"{met.count(True)} of {len(met)} targets met, {met.count(False)} missed, {met.count(None)} not measured."


def tables(rows: Sequence[Measured]) -> str:
    """Write all tables, in the order of ``ROWS``."""
    by_key = {one.row.key: one for one in rows}
    ordered = [by_key[row.key] for row in ROWS if row.key in by_key]
    parts = []
    for section, title in TITLES.items():
        of_section = [one for one in ordered if one.row.section is section]
        if of_section:
            parts += [f"## {title}", *_occasions(of_section), figures_table(section, of_section)]
            if any(one.row.targets for one in of_section):
                parts.append(targets_table(of_section))
    return "\n\n".join([verdict(ordered), *parts])


def _occasions(rows: Sequence[Measured]) -> list[str]:
    """Return a sentence for each machine: when and how often the rows were measured."""
    lines = []
    for machine in sorted({one.machine for one in rows}):
        there = [one for one in rows if one.machine == machine]
        dates = sorted({one.date for one in there})
        when = dates[0] + (f" to {dates[-1]}" if dates[1:] else "")
        repetitions = max(len(samples) for one in there for samples in one.samples.values())
        which = "" if len(there) == len(rows) else f" ({', '.join(one.row.key for one in there)})"
        lines.append(f"Measured {when} on {machine}, {repetitions} repetitions{which}.")
    return lines


def document(
    rows: Sequence[Measured], *, machines: Mapping[str, Mapping[str, str]], commands: Mapping[str, str]
) -> str:
    """Write RESULTS.md. ``machines`` describes each machine by its name."""
    names = sorted({one.machine for one in rows})
    what = list(dict.fromkeys(heading for name in names for heading in machines[name]))
    intro = (
        "Cells are the median [least–greatest] of the repetitions. Ratios are made within a repetition, in which all "
        "peers are measured in turn. What is measured and how: [README.md](README.md)."
    )
    parts = [
        "# Results",
        intro,
        table(["machine", *names], [[key, *(machines[name].get(key, ABSENT) for name in names)] for key in what]),
        tables(rows),
        "## Commands",
        *(f"{what}:\n\n```\n{command}\n```" for what, command in commands.items()),
    ]
    return "\n\n".join(parts) + "\n"


def to_json(rows: Sequence[Measured]) -> dict[str, Any]:
    """Return a JSON object: row key -> date, machine and samples."""
    return {
        one.row.key: {
            "date": one.date,
            "machine": one.machine,
            "samples": {peer: list(samples) for peer, samples in one.samples.items()},
        }
        for one in rows
    }


def from_json(stored: Mapping[str, Any]) -> list[Measured]:
    """Return the rows of such an object, except for those that no longer exist."""
    return [
        Measured(row=row, **{key: stored[row.key][key] for key in ("date", "machine", "samples")})
        for row in ROWS
        if row.key in stored
    ]


__all__ = ["OURS", "Measured", "document", "from_json", "progress", "tables", "to_json"]
