"""Tests that prometheus_client's parser reads the metrics as they were written."""

from math import isnan

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.proxy.admin.metrics.exposition import (
    Family,
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
