"""Tests how YAML is read into values with line numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.document import Odd, parse
from kafka_quota_proxy.config.errors import ConfigError
from tests.support.cases import each_case


def test_values_are_what_yaml_says() -> None:
    document = parse("{a: x, b: 1, c: 1.5, d: true, e: null, f: [1_000], g: '1'}", file="f")

    assert document.data == {"a": "x", "b": 1, "c": 1.5, "d": True, "e": None, "f": [1_000], "g": "1"}
    assert document.faults == ()


@each_case("written", ["007", "2024-01-01", "0b1"])
def test_dates_and_other_types_of_yaml_stay_text(written: str) -> None:
    assert parse(f"a: {written}", file="f").data == {"a": Odd(written)}


def test_the_first_of_duplicate_keys_counts() -> None:
    document = parse("a: 1\nb: 2\na: 3\n", file="f")

    assert document.data == {"a": 1, "b": 2}
    assert (document.line(("a",)), document.text(("a",))) == (1, "1")


@each_case(
    "text, hint",
    [
        ("a: &x {b: 1}\nc: {<<: *x}", "merge keys are not supported"),
        ("a: &x [*x]", "refers to itself"),
        ("{[1]: 2}", "must be a plain name"),
        ("a: !thing x", "tag !thing is not supported"),
        ("a: !!float x", "is not what its tag"),
        ("a: !!bool x", "is not what its tag"),
    ],
)
def test_yaml_that_no_configuration_needs_is_a_fault(text: str, hint: str) -> None:
    faults = parse(text, file="f").faults

    assert [hint in fault.message for fault in faults] == [True]


def test_an_alias_is_its_value() -> None:
    assert parse("a: &x {b: 1}\nc: *x", file="f").data == {"a": {"b": 1}, "c": {"b": 1}}


@each_case(
    "text, line, hint",
    [
        ("a:\n  - b\n c: 1\n", 3, "did not find expected"),
        ("a: 1\nbind: [::1]:9092\nc: 1\n", 2, 'quote an address in brackets: "[::1]:9092"'),
        ("a:\n\tb: 1\n", 2, "indent with spaces, not tabs"),
        ('a: "\\1"\n', 1, "use single quotes"),
        ("a: 1\n--- \nb: 2\n", 2, "single document"),
        (f"a: {'[' * 2000}{']' * 2000}\n", 1, "nested too deeply"),
        ("a: 1\nb: \x00\n", 2, "a character that YAML does not allow"),
    ],
)
def test_a_fault_of_syntax_has_a_line_and_a_hint(text: str, line: int, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, file="f.yaml")

    (fault,) = caught.value.faults
    assert fault.line == line
    assert hint in fault.message
    assert "\n" not in str(fault)


@given(st.text(alphabet="ab:-[]{}<&*!?|>'\"# \n\t01%@,.~", max_size=60))
def test_any_text_is_a_document_or_a_fault_of_syntax(text: str) -> None:
    try:
        faults = parse(text, file="f").faults
    except ConfigError as error:
        faults = error.faults

    assert all(1 <= fault.line <= text.count("\n") + 1 for fault in faults)
