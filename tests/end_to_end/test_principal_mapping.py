"""A certificate maps to the same user as by Kafka's own classes."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from kafka_quota_proxy.config.principal_mapping import MappingRuleError, parse_rules
from kafka_quota_proxy.protocol.errors import NoMatchingRule
from kafka_quota_proxy.proxy.server.tls.principal import map_name, user_of_certificate
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4, KAFKA_4_3, java, kafka_classpath
from tests.end_to_end.support.processes import run, scratch
from tests.support.certificates import Attribute, certificate_of, name
from tests.support.java_principals import MAPPINGS, SUBJECTS, Answer

PROGRAM = Path(__file__).parent / "java" / "Principals.java"


def _word(text: str | bytes) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text).decode()


def ask_java(version: str, questions: Iterable[str]) -> list[list[str]]:
    """Run ``Principals.java`` with the classes of a release, and return the words of each answer."""
    with scratch("principals") as directory:
        questions_file = directory / "questions"
        questions_file.write_text("".join(f"{question}\n" for question in questions), encoding="ascii")
        command: list[str | Path] = [
            java(),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            kafka_classpath(version),
            PROGRAM,
            questions_file,
        ]
        answers = run([*command, PROGRAM, questions_file], timeout_s=60).splitlines()
    return [answer.split(" ") for answer in answers[1:]]


def answer_of(words: list[str]) -> str | Answer:
    """Return the name of the user, or the kind of failure."""
    match words:
        case ["ok", word]:
            return base64.b64decode(word).decode()
        case ["invalid", _]:
            return Answer.INVALID
        case ["nomatch"]:
            return Answer.NO_MATCH
        case ["fails", _]:
            return Answer.FAILS
    raise AssertionError(words)


@pytest.mark.parametrize(
    "version", [*(pytest.param(version, marks=pytest.mark.long) for version in (KAFKA_3_9, KAFKA_4_3)), KAFKA_4]
)
def test_recorded_answers_are_still_those_of_kafka(version: str) -> None:
    """Unit tests use the recorded answers."""
    subjects = [f"certificate {_word(certificate_of(name(subject)))}" for subject, _ in SUBJECTS]
    mappings = [f"map {_word(rules)} {_word(text)}" for rules, text, _ in MAPPINGS]

    found = [answer_of(words) for words in ask_java(version, [*subjects, *mappings])]

    assert found == [text for _, text in SUBJECTS] + [answer for _, _, answer in MAPPINGS]


def _attributes(dice: random.Random) -> list[Attribute]:
    oids = [
        "2.5.4.3",
        "2.5.4.6",
        "2.5.4.10",
        "2.5.4.11",
        "0.9.2342.19200300.100.1.25",
        "1.2.840.113549.1.9.1",
        "2.5.4.5",
    ]
    tags = [0x0C, 0x0C, 0x0C, 0x13, 0x16, 0x1E, 0x14, 0x12, 0x04]
    pieces = [
        b"a",
        b"B",
        b",",
        b"+",
        b'"',
        b"\\",
        b"<",
        b";",
        b"=",
        b"#",
        b" ",
        b"  ",
        b"\r",
        b"\n",
        b"\0",
        b"\xc3\xa9",
    ]
    pieces += [b"\xf0\x9f\x98\x80", b"\xff", b"\xed\xa0\x80", b"\xe2\x82", b"/", b"$1", b"\xc2\xa0", b"\x7f"]
    return [
        (dice.choice(oids), dice.choice(tags), b"".join(dice.choices(pieces, k=dice.randrange(6))))
        for _ in range(dice.choice([1, 1, 1, 2, 3]))
    ]


def test_subjects_are_formatted_as_by_java() -> None:
    dice = random.Random(20260701)  # noqa: S311
    subjects = [[_attributes(dice) for _ in range(dice.randrange(1, 5))] for _ in range(1_500)]
    certificates = [certificate_of(name(subject)) for subject in subjects]

    answers = ask_java(KAFKA_4, [f"certificate {_word(der)}" for der in certificates])

    assert [user_of_certificate(der, parse_rules("DEFAULT")) for der in certificates] == [
        base64.b64decode(words[1]).decode() for words in answers
    ]


RULE_PIECES = (
    "CN=", "OU=", "(.*)", "(.*?)", "([a-z]+)", "(?:a|b)", "[^,]*", "[A-Z]", "\\w", "\\d", "\\.", "\\/", ",",
    ".", "^", "$", "a", "b", "x+", "y*", "(?<u>a*)", "a{1,2}", "|", "b?", "\\s", "[a-c&&b]",
    "[\\w.-]+", "(b|c)?", ".+?", "[--\\/@]", "[^\\d^]{1,}?", "\\W", "\\S*", "(?:x|y)*",
)  # fmt: skip
REPLACEMENT_PIECES = ("$1", "$2", "$0", "x", "\\$", "\\/", "@", "$11", "", "\\\\", ",")
NAME_PIECES = ("CN=", "OU=", "a", "b", "c", "ab", "A", ",", ".", "/", "x", "yy", "1", " ", "é", "\n", "@")


def test_accepted_rules_map_as_in_kafka() -> None:
    """The proxy refuses a random rule, or maps every name as Kafka does."""
    dice = random.Random(20260702)  # noqa: S311
    pairs = []
    for _ in range(6_000):
        rules = ",".join(
            f"RULE:{''.join(dice.choices(RULE_PIECES, k=dice.randrange(1, 6)))}"
            f"/{''.join(dice.choices(REPLACEMENT_PIECES, k=dice.randrange(3)))}/{dice.choice(['', 'L', 'U'])}"
            for _ in range(dice.choice([1, 1, 2]))
        ) + dice.choice(["", "", ",DEFAULT"])
        pairs.append((rules, "".join(dice.choices(NAME_PIECES, k=dice.randrange(1, 7)))))
    answers = ask_java(KAFKA_4, [f"map {_word(rules)} {_word(text)}" for rules, text in pairs])

    outcomes = {"same": 0, "refused": 0}
    for (rules, text), words in zip(pairs, answers, strict=True):
        try:
            taken = parse_rules(rules)
        except MappingRuleError:
            outcomes["refused"] += 1
            continue
        try:
            found: str | Answer = map_name(text, taken)
        except NoMatchingRule:
            found = Answer.NO_MATCH
        if found is Answer.NO_MATCH and "\n" in text:  # refused, because patterns differ from Java's there
            outcomes["refused"] += 1
            continue
        assert found == answer_of(words), (rules, text)
        outcomes["same"] += 1
    # Many rules must be accepted, or the test shows little.
    assert outcomes["same"] > len(pairs) / 3, outcomes
