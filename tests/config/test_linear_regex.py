"""Tests that patterns match clients' names in linear time, and how replacements use groups."""

import time

import pytest

from kafka_quota_proxy.config.linear_regex import (
    MAX_NAME_LENGTH,
    LinearRegexError,
    compile_linear,
    match_whole,
    read_replacement,
    replaced,
)
from tests.support.cases import each_case


@each_case("pattern", ["(a+)+", "(a|aa)+", "(a?){500}a{500}", ".*.*.*.*.*.*x"])
def test_matching_is_fast_for_any_name(pattern: str) -> None:
    compiled = compile_linear(pattern)
    begun_s = time.thread_time()

    assert match_whole(compiled, "a" * (MAX_NAME_LENGTH - 1) + "!") is None

    assert time.thread_time() - begun_s < 0.5  # re would never finish, and the event loop would wait


def test_a_name_that_is_too_long_matches_nothing() -> None:
    anything = compile_linear("(?s).*")

    assert match_whole(anything, "a" * MAX_NAME_LENGTH)
    assert not match_whole(anything, "a" * (MAX_NAME_LENGTH + 1))


def test_an_unpaired_surrogate_matches_nothing() -> None:
    assert not match_whole(compile_linear(".*"), "a\ud800")


@each_case(
    "pattern, to, name, expected",
    [
        ("app-([a-z]+)-[0-9a-f]+", r"app-\1", "app-etl-7f", "app-etl"),
        ("(?P<team>.*)/(.*)", r"\1.\2\\x", "é/😀", "é.😀\\x"),
        ("(a)|(b)", r"ü\1\2", "b", "üb"),
    ],
)
def test_a_replacement_inserts_the_texts_of_groups(pattern: str, to: str, name: str, expected: str) -> None:
    compiled = compile_linear(pattern)
    found = match_whole(compiled, name)

    assert found
    assert replaced(found, read_replacement(to, compiled)) == expected


@each_case("to", [r"\1", r"\g<x>", r"\g<1>", r"\n", "\\", r"\0", r"\99"])
def test_a_replacement_that_fits_no_group_is_refused(to: str) -> None:
    with pytest.raises(LinearRegexError):
        read_replacement(to, compile_linear("a"))


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "a++", "(?>a)", "a{2000}", r"\Z"])
def test_a_pattern_beyond_linear_time_is_refused_without_output(
    pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LinearRegexError) as refused:
        compile_linear(pattern)

    assert str(refused.value)
    assert capfd.readouterr().err == ""
