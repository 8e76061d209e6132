"""Tests what the charts of the benchmark show."""

from bench.figures import OURS, OURS_WITHOUT_RELAY
from bench.plot_performance import charts
from bench.report import Measured
from bench.rows import ROWS


def measured(key: str, samples: dict[str, list[dict[str, float]]]) -> Measured:
    (row,) = (row for row in ROWS if row.key == key)
    return Measured(row=row, date="2026-01-31", machine="one", samples=samples)


def run(rate: float, cpu_s: float) -> dict[str, float]:
    return {"seconds": 1, "bytes": rate, "requests": rate / 1_000, "cpu_s": cpu_s}


BULK = measured("produce-16k", {"direct": [run(1e9, 0)], "Envoy": [run(8e8, 0.8)], "ours": [run(4e8, 0.2)]})
LATE = measured(
    "latency-100",
    {
        "direct": [{"p50_us": 50, "p99_us": 90}],
        "Envoy": [{"p50_us": 80, "p99_us": 190}],
        "ours": [{"p50_us": 75, "p99_us": 140}],
    },
)


def test_heights_are_ratios_within_a_repetition() -> None:
    cpu, throughput, latency = charts([BULK, LATE])

    assert cpu.loads == ["Produce\n16 KiB"]
    assert cpu.bars == {"Envoy": [1.0], "Kroxylicious": [None], OURS_WITHOUT_RELAY: [None], OURS: [0.5]}
    assert throughput.bars == {"Envoy": [0.8], "Kroxylicious": [None], OURS_WITHOUT_RELAY: [None], OURS: [0.4]}
    assert latency.bars == {
        "Envoy": [30, 100],
        "Kroxylicious": [None, None],
        OURS_WITHOUT_RELAY: [None, None],
        OURS: [25, 50],
    }
