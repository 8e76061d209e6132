"""The records that Spark drops as too late are found in the oldest windows of a batch."""

from typing import Any

from kafka_quota_proxy.pipeline.late_records import LateRecords

MINUTE_MS = 60_000


def seen(*pairs: tuple[int, str, int]) -> list[dict[str, Any]]:
    """Return what a batch reports: for each minute and proxy the number of records."""
    return [{"item": f"{minute * MINUTE_MS} {proxy}", "count": count} for minute, proxy, count in pairs]


def test_dropped_records_are_those_of_the_oldest_windows() -> None:
    batch = seen((7, "p1", 60), (2, "p 2", 50), (7, "p3", 60), (1, "p 2", 50), (2, "p3", 1), (3, "p3", 60))

    late = LateRecords.of_batch(batch, dropped=101, newest_ms=7 * MINUTE_MS)

    assert late.by_proxy == {"p 2": 100, "p3": 1}
    assert late.words() == "101 too late (100 of p 2, 1 of p3; --late 6m would have kept them)"


def test_batch_without_dropped_records_names_nobody() -> None:
    late = LateRecords.of_batch(seen((1, "p1", 60)), dropped=0, newest_ms=MINUTE_MS)

    assert late == LateRecords()


def test_what_the_batch_did_not_report_is_counted_without_a_name() -> None:
    # Windows with few records may be missing in a batch with very many. Whose records were dropped is unknown then.
    late = LateRecords.of_batch(seen((2, "p1", 60)), dropped=5, newest_ms=2 * MINUTE_MS)

    assert (late.count, late.words()) == (5, "5 too late")


def test_rows_without_a_record_are_ignored() -> None:
    late = LateRecords.of_batch([{"item": None, "count": 9}, *seen((1, "p1", 2))], dropped=2, newest_ms=90_000)

    assert late.words() == "2 too late (2 of p1; --late 30s would have kept them)"


def test_batches_are_added_and_the_first_five_proxies_are_named() -> None:
    late = LateRecords()
    for number in range(1, 8):
        batch = seen((0, f"p{number}", number))
        late.add(LateRecords.of_batch(batch, dropped=number, newest_ms=number * MINUTE_MS))

    expected = "28 too late (7 of p7, 6 of p6, 5 of p5, 4 of p4, 3 of p3, 3 of others; --late 7m would have kept them)"
    assert late.words() == expected
