"""Tests that a Java pattern matches the same texts in RE2, or is refused."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.java_regex import JavaRegexError, compile_java
from tests.support.cases import each_case


def matches(pattern: str, text: str) -> bool:
    return compile_java(pattern).fullmatch(text) is not None


@each_case(
    "pattern, taken, not_taken",
    [
        (r"a.c", ["abc", "a😀c", "a\tc"], ["a\nc", "a\rc", "a\x85c", "a\u2028c", "a\u2029c"]),
        (r"(?s)a.c", ["a\nc", "a\u2028c"], ["ac"]),
        (r"\w+", ["aZ_9"], ["é", "٣", "-"]),
        (r"\W", ["é", "-", "😀"], ["a", "_"]),
        (r"\d+", ["09"], ["٣"]),
        (r"[\D]", ["٣", "a"], ["1"]),
        (r"\s", list(" \t\n\x0b\f\r"), ["\xa0", "\x85", "\x1c"]),
        (r"\S", ["\xa0", "\x1c"], [" "]),
        (r"(?i)k", ["k", "K"], ["\u212a"]),  # the sign for Kelvin, which folds to k outside ASCII
        (r"(?i)s", ["S"], ["ſ"]),
        (r"((?i)a)b", ["Ab", "ab"], ["AB"]),
        (r"(?i:a(?-i:b))", ["Ab"], ["AB"]),
        (r"(?-i)a", ["a"], ["A"]),
        (r"(?i)[X-c]", list("XZ[]`acxzAC"), ["d", "D", "w", "W"]),
        (r"(?i)[^k]", ["\u212a", "j"], ["k", "K"]),
        (r"(?i)\x6b", ["k", "K"], ["\u212a"]),
        (r"[^a-c&-]", ["d"], ["b", "&", "-"]),
        (r"[a\]\-]+", ["a]-"], ["b"]),
        (r"[\w.-]+", ["a.b-c_1"], ["a b"]),
        (r"\t\n\r\f", ["\t\n\r\f"], []),
        (r"\x42\u0043\x{1F600}", ["BC😀"], []),
        (r"\.\/\,\=\#", ["./,=#"], []),
        (r"a{2}b{1,}c{0,2}", ["aabbcc", "aab"], ["abc", "aabccc"]),
        (r"a+?b*?c??", ["aab", "a"], ["b"]),
        (r"\Aa\z|^b\Z", ["a", "b"], ["ab"]),
        (r"a||b", ["a", "", "b"], ["ab"]),
        (r"}]", ["}]"], []),
        ("é", ["é"], ["e"]),
    ],
)
def test_a_pattern_matches_the_texts_that_java_matches(pattern: str, taken: list[str], not_taken: list[str]) -> None:
    assert [text for text in taken if not matches(pattern, text)] == []
    assert [text for text in not_taken if matches(pattern, text)] == []


def test_a_dollar_matches_only_at_the_very_end() -> None:
    found = compile_java("$").search("a\n")

    assert found
    assert found.start() == 2  # in Java also at 1


def test_groups_keep_their_numbers_and_names() -> None:
    pattern = compile_java(r"(?:a)(b)(?<name>c)((?i)d)")

    found = pattern.fullmatch("abcD")

    assert found
    assert found.groups() == ("b", "c", "D")
    assert pattern.groupindex == {"name": 2}


@each_case(
    "pattern, why",
    [
        ("(", "is not closed"),
        ("a)", "closes no group"),
        ("[a", "is not closed"),
        ("[]", "is not closed"),
        ("a**", "repeats a repetition"),
        ("a{2}{3}", "repeats a repetition"),
        ("*a", "repeats nothing"),
        ("a{,3}", "repeats nothing"),
        ("{", r"write \{"),
        ("a{3,2}", "a maximum of 2 below its minimum of 3"),
        ("a{100000}", "too many"),
        ("^*", "repeats a position"),
        ("(a?)*", "can be empty"),
        ("(a|){2}", "can be empty"),
        ("(?:a*b*)+", "can be empty"),
        ("a\\", "escapes nothing"),
        ("[a\\", "escapes nothing"),
        (r"\y", "not supported"),
        (r"\Qa\E", "not supported"),
        (r"\bCN", "since Java 19"),
        (r"\R", "not supported"),
        (r"[\v]", "not supported"),
        (r"\0101", "not supported"),
        (r"\G", "not supported"),
        (r"\p{Alpha}", "not supported"),
        ("[a[b]]", "classes within classes"),
        ("[a&&b]", "&& within brackets"),
        (r"[a-\d]", "a range ends with a set"),
        ("[b-a]", "runs backwards"),
        (r"[\Qa\E]", "not supported"),
        ("(?u)a", "the flag u"),
        ("(?x) a", "the flag x"),
        ("(?mi:a)", "the flag m"),
        ("a(?i)b", "is in the middle"),
        ("(?#a)", "does not begin a group"),
        ("(?<1>a)", "does not begin a group"),
        ("(?<n>a)(?<n>b)", "two groups are named n"),
        ("(?=a)b", "looks around or gives nothing back, which cannot be matched in time linear"),
        ("(?!a)b", "looks around"),
        ("(?<=a)b", "looks around"),
        ("(?<!a)b", "looks around"),
        ("(?>a|ab)c", "gives nothing back"),
        ("a++", "++ is possessive, which cannot be matched in time linear in a client's name"),
        ("a{2}+", "{2}+ is possessive"),
        (r"(a)\1", r"\1 is a back-reference, which cannot be matched in time linear"),
        (r"(?<n>a)\k<n>", r"\k is a back-reference"),
        ("a{1001}", "at most 1000"),
        ("(?:a{1000}){1000}", "cannot be matched in time linear in a client's name: "),
        (r"\x4", "not supported"),
        (r"\u12", "not supported"),
        (r"\uD83D\uDE00", "is not a character"),
        (r"\x{110000}", "is not a character"),
        (r"\cA", "not supported"),
        ("(" * 60 + ")" * 60, "groups within groups"),
    ],
)
def test_a_pattern_that_java_refuses_or_re2_reads_differently_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(JavaRegexError, match=re.escape(why)):
        compile_java(pattern)


PIECES = st.sampled_from([*r"ab01.^$|?*+()[]{}\-,&<>=!:#iswdQEpx", "(?", "(?<n>", "[^", r"\E", "{2}", "\r", "é", "😀"])


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=20).map("".join))
def test_any_text_is_a_pattern_or_a_java_regex_error(pattern: str) -> None:
    try:
        compiled = compile_java(pattern)
    except JavaRegexError as error:
        assert str(error)  # noqa: PT017 - either is right
    else:
        assert compiled.groups >= 0
