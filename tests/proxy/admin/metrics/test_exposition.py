"""Tests that prometheus_client's parser reads the metrics as they were written."""

from math import isnan

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.proxy.admin.metrics.exposition import (
    LINES_BETWEEN_RESTS,
    Family,
    Metric,
    Namespace,
    labels,
    summed,
    write,
)


def no_rest() -> None: ...


def text_of(*families: Family) -> str:
    return b"".join(write(families, no_rest)).decode()


def test_a_family_is_its_help_its_type_and_a_line_for_each_sample() -> None:
    family = Family("connections", "gauge", "Open ones.", [(labels(listener="a"), 3), (labels(listener="b"), 0.5)])

    assert text_of(family) == (
        "# HELP connections Open ones.\n# TYPE connections gauge\n"
        'connections{listener="a"} 3\nconnections{listener="b"} 0.5\n'
    )


def test_samples_with_the_same_labels_are_summed() -> None:
    samples = [(labels(broker="a"), 3), (labels(broker="b"), 0.5), (labels(broker="a"), 4)]

    assert list(summed(samples)) == [(labels(broker="a"), 7), (labels(broker="b"), 0.5)]


@given(
    values=st.dictionaries(
        st.sampled_from(["user", "client_id", "kind"]),
        st.text(st.characters(codec="utf-8")) | st.text('\\n"{},=# '),
        min_size=1,
    ),
    value=st.floats(allow_infinity=False) | st.integers(0, 2**53),
)
def test_any_label_and_value_is_parsed_as_written(values: dict[str, str], value: float) -> None:
    text = text_of(Family("bytes", "gauge", "Bytes.", [(labels(**values), value)]))

    (family,) = text_string_to_metric_families(text)
    found = family.samples[0]
    assert found.labels == values
    assert found.value == value or isnan(found.value) is isnan(value) is True


def test_writing_rests_after_each_piece() -> None:
    rests: list[int] = []
    samples = [(labels(number=str(number)), number) for number in range(10 * LINES_BETWEEN_RESTS)]

    pieces = list(write([Family("many", "gauge", "Many.", samples)], lambda: rests.append(1)))

    assert len(rests) == 10
    assert max(piece.count(b"\n") for piece in pieces) <= LINES_BETWEEN_RESTS + 1


TABLE: tuple[Metric[str], ...] = (
    ("letters", "How long it is.", lambda text: len(text) or None),
    ("empty_total", "Whether it is empty.", lambda text: not text),
)


def test_each_metric_of_a_table_has_a_sample_for_each_row_with_a_value() -> None:
    space = Namespace("kafka_text")
    assert list(space.table(TABLE, [("{a}", "abc"), ("{b}", "")])) == [
        Family("kafka_text_letters", "gauge", "How long it is.", [("{a}", 3.0)]),
        Family("kafka_text_empty_total", "counter", "Whether it is empty.", [("{a}", 0.0), ("{b}", 1.0)]),
    ]
    assert [family.samples for family in space.single_values(TABLE, "abc")] == [[("", 3.0)], [("", 0.0)]]
    assert list(space.single_values(TABLE, None)) == []
