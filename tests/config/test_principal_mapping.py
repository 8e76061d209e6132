"""Tests that mapping rules are read as Kafka reads them, and refused if they would fail later in Kafka."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.principal_mapping import LetterCase, MappingRuleError, parse_rules
from tests.support.cases import each_case
from tests.support.java_principals import MAPPINGS, Answer, is_refused_here


def sources(text: str) -> list[str]:
    return [rule.source for rule in parse_rules(text)]


def fault(text: str) -> str:
    with pytest.raises(MappingRuleError) as caught:
        parse_rules(text)
    return str(caught.value)


def test_a_rule_ends_at_its_third_slash_and_not_at_a_comma() -> None:
    assert sources(r"RULE:^CN=(.*?),.*$/$1,x/L , RULE:a\/b\,c/d\/e/, DEFAULT") == [
        "RULE:^CN=(.*?),.*$/$1,x/L",
        r"RULE:a\/b\,c/d\/e/",
        "DEFAULT",
    ]


def test_a_rule_has_pattern_replacement_and_case() -> None:
    (rule,) = parse_rules(r"RULE:^CN=(.*?),OU=(.*?)$/\$$2@$1x/U")

    assert rule.pattern
    assert rule.pattern.groups == 2
    assert rule.replacement == ("$", 2, "@", 1, "x")
    assert rule.letter_case is LetterCase.UPPER


def test_empty_rules_are_ignored() -> None:
    assert sources(" , DEFAULT,,") == ["DEFAULT"]
    assert sources("") == []


@each_case("text, name, answer", MAPPINGS)
def test_a_rule_that_kafka_refuses_or_fails_at_is_refused(text: str, name: str, answer: str | Answer) -> None:
    if answer in (Answer.INVALID, Answer.FAILS):
        assert fault(text)
    elif is_refused_here(text):
        assert "cannot be used" in fault(text)
    else:
        parse_rules(text)


@each_case(
    "text, message",
    [
        ("CN=(.*)", "'CN=(.*)' is not a rule; write DEFAULT or RULE:pattern/replacement/"),
        ("DEFAULT/L", "'DEFAULT/L' has '/L' behind its end; write DEFAULT or RULE:pattern/replacement/"),
        ("RULE:a/b/LU", "'RULE:a/b/LU' has 'U' behind its end"),
        ("DEFAULT, RULE:(a/b/", "'RULE:(a/b/': the pattern '(a' cannot be used: a ( is not closed"),
        ("RULE:a/$1/", "'RULE:a/$1/': the replacement '$1' cannot be used: $1 is a group that the pattern does not"),
        ("RULE:(a)/$x/", r"$ must be followed by a group's number; write \$ for the character"),
        ("RULE:(a)/${x}/", r"$ must be followed by a group's number; write \$ for the character"),
        ("RULE:(a)/$9/", "$9 is a group that the pattern does not have"),
        ("RULE:(?=a)a/b/", "'RULE:(?=a)a/b/': the pattern '(?=a)a' cannot be used: (?= is not supported (look-around)"),
        ("DEFAULT\nDEFAULT\n\nRULE:a/b/", "has a line break between rules without a comma"),
    ],
)
def test_a_faulty_mapping_rule_is_refused_with_a_remedy(text: str, message: str) -> None:
    assert message in fault(text)


def test_a_line_break_after_a_comma_is_ignored() -> None:
    assert sources("DEFAULT,\n  RULE:a/b/,\r\nDEFAULT\n") == ["DEFAULT", "RULE:a/b/", "DEFAULT"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*"ab$1(){}\\/,LU \n:.*", "RULE:", "DEFAULT", "$2", "${a}", "/L"]), max_size=12))
def test_any_text_is_rules_or_a_mapping_rule_error(pieces: list[str]) -> None:
    try:
        rules = parse_rules("".join(pieces))
    except MappingRuleError as error:
        assert str(error)  # noqa: PT017 - either is right
    else:
        assert all(re.match("DEFAULT$|RULE:", rule.source) for rule in rules)
