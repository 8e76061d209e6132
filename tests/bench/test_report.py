"""The report has ratios within a repetition, and verdicts."""

import json

from bench.figures import Samples
from bench.report import Measured, document, from_json, tables, to_json
from bench.rows import ROWS, Row


def row(key: str) -> Row:
    return next(one for one in ROWS if one.key == key)


def run(*, bytes_per_second: float, cpu_s: float) -> dict[str, float]:
    return {"seconds": 1.0, "bytes": bytes_per_second, "requests": bytes_per_second / 16_384, "cpu_s": cpu_s}


def measured(key: str, samples: Samples, *, machine: str = "one") -> Measured:
    return Measured(row=row(key), date="2026-01-31", machine=machine, samples=samples)


def test_ratios_are_computed_within_a_repetition() -> None:
    # In the second repetition the machine was half as fast for all peers, so the ratio has no spread.
    samples = {
        "direct": [run(bytes_per_second=2e9, cpu_s=0), run(bytes_per_second=1e9, cpu_s=0)],
        "Envoy": [run(bytes_per_second=1e9, cpu_s=1), run(bytes_per_second=5e8, cpu_s=1)],
        "ours": [run(bytes_per_second=8e8, cpu_s=1), run(bytes_per_second=4e8, cpu_s=1)],
    }

    text = tables([measured("produce-16k", samples)])

    assert "| ours | 600 [400–800] | 0.40 [0.40–0.40] | 0.80 [0.80–0.80] |" in text


def test_missed_target_is_shown_as_missed() -> None:
    samples = {
        "Envoy": [run(bytes_per_second=1e9, cpu_s=1.0)],
        "ours": [run(bytes_per_second=0.8e9, cpu_s=0.5)],
    }

    text = tables([measured("produce-16k", samples)])

    # 0.8 of Envoy's bytes per second, but 1.6 of its bytes per CPU second.
    assert "bytes/s ≥ 0.95 of Envoy's | 0.80 | 0.95 | **missed** |" in text
    assert "| per CPU second ≥ 1 of Envoy's | 1.60 | 1.00 | met |" in text
    assert "without relay, per CPU second ≥ 0.8 of Envoy's | – | 0.80 | not measured |" in text
    assert text.startswith("1 of 3 targets met, 1 missed, 1 not measured.")


def test_latency_targets_compare_what_is_added_with_the_best_peer() -> None:
    def one(p50_us: float, p99_us: float) -> dict[str, float]:
        return {"requests": 1_000, "cpu_s": 0.1, "p50_us": p50_us, "p99_us": p99_us}

    samples = {
        "direct": [one(50, 90)],
        "Envoy": [one(100, 250)],
        "Kroxylicious": [one(110, 200)],
        "ours": [one(99, 210)],
    }

    text = tables([measured("latency-1k", samples)])

    assert "p50 over direct ≤ the best peer's (µs) | 49.0 | 50.0 | met |" in text
    assert "p99 over direct ≤ the best peer's (µs) | 120 | 110 | **missed** |" in text


def test_real_broker_targets_compare_direct_ratio_and_cpu_time_with_envoy() -> None:
    samples = {
        "direct": [run(bytes_per_second=1e9, cpu_s=0)],
        "Envoy": [run(bytes_per_second=0.8e9, cpu_s=0.4)],
        "Kroxylicious": [run(bytes_per_second=0.6e9, cpu_s=0.6)],
        "ours": [run(bytes_per_second=0.9e9, cpu_s=0.6)],
    }

    text = tables([measured("kafka-consume-1", samples)])

    assert "bytes/s of direct ≥ Envoy's | 0.90 | 0.80 | met |" in text
    assert "CPU s per GB ≤ Envoy's | 1.33 | 1.00 | **missed** |" in text
    assert "CPU s per GB ≤ Kroxylicious' | 0.67 | 1.00 | met |" in text


def test_stored_results_make_the_same_document() -> None:
    samples = {"Envoy": [run(bytes_per_second=1e9, cpu_s=1)], "ours": [run(bytes_per_second=9e8, cpu_s=1)]}
    rows = [measured("produce-16k", samples)]

    stored = from_json(json.loads(json.dumps(to_json(rows))))

    machines, commands = {"one": {"Java": "17"}}, {"All rows": "make bench"}
    assert document(stored, machines=machines, commands=commands) == document(
        rows, machines=machines, commands=commands
    )


def test_rows_name_their_machine() -> None:
    samples = {"Envoy": [run(bytes_per_second=1e9, cpu_s=1)], "ours": [run(bytes_per_second=9e8, cpu_s=1)]}
    rows = [
        measured("produce-16k", samples, machine="old"),
        measured("fetch-1m", samples, machine="new"),
        measured("tls-fetch-1m", samples, machine="new"),
    ]

    text = document(rows, machines={"old": {"Java": "17"}, "new": {"Java": "21", "Envoy": "1"}}, commands={})

    assert "| machine | new | old |" in text
    assert "| Java | 21 | 17 |" in text
    assert "| Envoy | 1 | – |" in text
    assert "Measured 2026-01-31 on old, 1 repetitions (produce-16k)." in text
    assert "Measured 2026-01-31 on new, 1 repetitions (fetch-1m)." in text
    assert "Measured 2026-01-31 on new, 1 repetitions.\n" in text
