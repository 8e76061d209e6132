"""A table of metrics is a family for each row."""

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.singles import Single, singles

TABLE: tuple[Single[str], ...] = (
    ("letters", "gauge", "How long it is.", len),
    ("empty_total", "counter", "Whether it is empty.", lambda text: not text),
)


def test_each_row_is_read_of_the_thing_and_named_behind_the_prefix() -> None:
    assert list(singles("kafka_text", TABLE, "abc")) == [
        Family("kafka_text_letters", "gauge", "How long it is.", [("", 3.0)]),
        Family("kafka_text_empty_total", "counter", "Whether it is empty.", [("", 0.0)]),
    ]


def test_of_nothing_there_is_nothing() -> None:
    assert list(singles("kafka_text", TABLE, None)) == []
