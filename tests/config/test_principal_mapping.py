"""Tests of ``config.principal_mapping``."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.principal_mapping import (
    LetterCase,
    MappingRuleError,
    compile_java,
    parse_rules,
)
from tests.support.cases import each_case
from tests.support.java_principals import MAPPINGS, Answer, is_refused_here


def matches(pattern: str, text: str) -> bool:
    return compile_java(pattern).fullmatch(text) is not None


@each_case(
    "pattern, taken, not_taken",
    [
        (r"a.c", ["abc", "a😀c", "a\tc"], ["ac"]),
        (r"\w+", ["aZ_9"], ["é", "٣", "-"]),
        (r"\W", ["é", "-", "😀"], ["a", "_"]),
        (r"\d+", ["09"], ["٣"]),
        (r"[\D]", ["٣", "a"], ["1"]),
        (r"\s", list(" \t\f"), ["\xa0", "\x1c"]),
        (r"\S", ["\xa0", "\x1c"], [" "]),
        (r"[^a-c&-]", ["d"], ["b", "&", "-"]),
        (r"[a\]\-]+", ["a]-"], ["b"]),
        (r"[\w.-]+", ["a.b-c_1"], ["a b"]),
        (r"\.\/\,\=\#", ["./,=#"], []),
        (r"a{2}b{1,}c{0,2}", ["aabbcc", "aab"], ["abc", "aabccc"]),
        (r"a+?b*?c??", ["aab", "a"], ["b"]),
        (r"^a$|^b", ["a", "b"], ["ab"]),
        (r"[--/]+[^^]", ["-./a"], [",", "-^"]),
        (r"a||b", ["a", "", "b"], ["ab"]),
        (r"}]", ["}]"], []),
        ("é", ["é"], ["e"]),
    ],
)
def test_a_pattern_matches_the_texts_that_java_matches(pattern: str, taken: list[str], not_taken: list[str]) -> None:
    assert [text for text in taken if not matches(pattern, text)] == []
    assert [text for text in not_taken if matches(pattern, text)] == []


def test_groups_keep_their_numbers() -> None:
    found = compile_java(r"(?:a)(b)((c)|d)").fullmatch("abd")

    assert found
    assert found.groups() == ("b", "d", None)


@each_case(
    "pattern, why",
    [
        ("(", "missing ): ("),
        ("a)", "unexpected ): a)"),
        ("[a", "[a is not supported; a pattern may have characters, [a-z], ., ^, $, |, (…)"),
        ("[]", "[] is not supported"),
        ("[]a]", "[]a] is not supported"),
        ("[^]", "[^] is not supported"),
        ("[a\\", "[a\\ is not supported"),
        ("a**", "bad repetition operator: **"),
        ("a{2}{3}", "bad repetition operator: {2}{3}"),
        ("*a", "no argument for repetition operator: *"),
        ("a|*", "no argument for repetition operator: *"),
        ("a{,3}", "{,3} is not supported"),
        ("a{3,2}", "invalid repetition size: {3,2}"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(?:a{1000}){1000}", "cannot be matched in time linear in a client's name: "),
        ("(a?)*", "can be empty"),
        ("(a|){2}", "can be empty"),
        ("(?:a*b*)+", "can be empty"),
        ("(?:,|$)+", "can be empty"),
        ("[b-a]", "invalid character class range: b-a"),
        (r"[a-\d]", r"invalid escape sequence: \d"),
        ("[a&&b]", "[a&&b] is not supported"),
        ("[a[b]]", "[a[b]] is not supported"),
        (r"[\v]", r"[\v] is not supported"),
        (r"[\Qa\E]", r"[\Qa\E] is not supported"),
        ("a\\", "\\ is not supported"),
        (r"\x41", r"\x41 is not supported"),
        (r"\bCN", r"\bCN is not supported"),
        (r"\Aa\z", r"\Aa\z is not supported"),
        (r"\Qa\E", r"\Qa\E is not supported"),
        (r"\p{Alpha}", r"\p{Alpha} is not supported"),
        ("(?i)a", "(?i)a is not supported"),
        ("(?<n>a)", "(?<n>a) is not supported"),
        ("(?=a)b", "(?=a)b is not supported"),
        ("(?<!a)b", "(?<!a)b is not supported"),
        ("(?>a|ab)c", "(?>a|ab)c is not supported"),
        ("a++", "bad repetition operator: ++"),
        ("a{2}+", "bad repetition operator: {2}+"),
        (r"(a)\1", r"\1 is not supported"),
    ],
)
def test_a_pattern_that_java_refuses_or_no_mapping_rule_in_use_has_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(MappingRuleError, match=re.escape(why)):
        compile_java(pattern)


PIECES = st.sampled_from([*r"ab01.^$|?*+()[]{}\-,&<>=!:#iswdQEpx", "(?", "(?<n>", "[^", r"\E", "{2}", "\r", "é", "😀"])


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=20).map("".join))
def test_any_text_is_a_pattern_or_a_mapping_rule_error(pattern: str) -> None:
    try:
        compiled = compile_java(pattern)
    except MappingRuleError as error:
        assert str(error)  # noqa: PT017 - either is right
    else:
        assert compiled.groups >= 0


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
        ("CN=(.*)", "'CN=(.*)' does not begin with a rule; write DEFAULT or RULE:pattern/replacement/"),
        ("DEFAULT/L", "'DEFAULT/L' does not begin with a rule; write DEFAULT or RULE:pattern/replacement/"),
        ("RULE:a/b/LU", "'RULE:a/b/LU' does not begin with a rule"),
        ("DEFAULT, RULE:(a/b/", "'RULE:(a/b/': the pattern '(a' cannot be used: cannot be matched in time"),
        ("RULE:a/$1/", "'RULE:a/$1/': the replacement '$1' cannot be used: $1 is a group that the pattern does not"),
        ("RULE:(a)/$x/", r"$ must be followed by a group's number; write \$ for the character"),
        ("RULE:(a)/${x}/", r"$ must be followed by a group's number; write \$ for the character"),
        ("RULE:(a)/$9/", "$9 is a group that the pattern does not have"),
        ("RULE:(?=a)a/b/", "'RULE:(?=a)a/b/': the pattern '(?=a)a' cannot be used: (?=a)a is not supported"),
        ("DEFAULT\nDEFAULT\n\nRULE:a/b/", "does not begin with a rule"),
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
