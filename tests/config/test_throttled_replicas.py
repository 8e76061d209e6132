"""Tests that lists of throttled replicas are read if Kafka's validator accepts them, and refused otherwise."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.throttled_replicas import ALL_REPLICAS, ThrottledReplicas, parse, read
from tests.support.cases import each_case

NOBODY = ThrottledReplicas(is_all=False, partitions={})


def replicas(*pairs: tuple[int, int]) -> ThrottledReplicas:
    """Return the throttled replicas for these pairs of partition and broker."""
    brokers = {broker for _, broker in pairs}
    return ThrottledReplicas(
        is_all=False, partitions={broker: frozenset(p for p, b in pairs if b == broker) for broker in brokers}
    )


@each_case(
    "text, expected",
    [
        ("*", ALL_REPLICAS),
        ("* ", ALL_REPLICAS),
        ("", NOBODY),
        (" ", NOBODY),
        ("100:10", replicas((100, 10))),
        ("100:10,12:10", replicas((100, 10), (12, 10))),
        ("100:10,12:10,15:1", replicas((100, 10), (12, 10), (15, 1))),
        ("100:10,12:10,15:1  ", replicas((100, 10), (12, 10), (15, 1))),
        ("100:0,", replicas((100, 0))),
    ],
)
def test_a_list_that_kafka_accepts_is_read(text: str, expected: ThrottledReplicas) -> None:
    """Source: Kafka's LogConfigTest.shouldValidateThrottledReplicasConfig (V41)."""
    assert parse(text) == expected


@each_case(
    "text",
    [
        "100",
        "100:",
        "100:0,10",
        "100:0,10:",
        "100:0,10:   ",
        "100 :0,10:   ",
        "100: 0,10:   ",
        "100:0,10 :   ",
        "*,100:10",
        "* ,100:10",
        "none",
        "*,*",
    ],
)
def test_a_list_that_kafka_refuses_is_refused(text: str) -> None:
    """Source: Kafka's LogConfigTest.shouldValidateThrottledReplicasConfig (V41)."""
    with pytest.raises(UnitError, match=re.escape('write "*" for all, or PARTITION:BROKER')):
        parse(text)


@each_case(
    "text, of_102",
    [
        ("0:101,0:102,1:101,1:102", {0, 1}),
        ("", set()),
        (" ", set()),
        ("6:102", {6}),
        ("6:102 ", {6}),
        (" 6:102", {6}),
    ],
)
def test_a_broker_keeps_the_partitions_that_are_listed_with_it(text: str, of_102: set[int]) -> None:
    """Source: Kafka's DynamicConfigChangeTest (V42)."""
    found = parse(text)

    assert {partition for partition in range(10) if found.holds(partition, 102)} == of_102
    assert not any(found.holds(partition, 103) for partition in range(10))


def test_a_star_is_every_partition_of_every_broker() -> None:
    """Source: Kafka's DynamicConfigChangeTest (V42)."""
    assert parse("* ").holds(7, 102)
    assert parse("*").holds(0, 103)


@each_case(
    "text, expected",
    [
        (",1:1", replicas((1, 1))),
        ("1:1,,2:2", replicas((1, 1), (2, 2))),
        ("*,", ALL_REPLICAS),
        ("1:1, 2:1", replicas((1, 1), (2, 1))),
        ("\t1:1\n,\x002:1 ", replicas((1, 1), (2, 1))),
    ],
)
def test_a_list_that_only_kafkas_validator_accepts_is_read(text: str, expected: ThrottledReplicas) -> None:
    """This is case V43 of ``proxy/quota/test_vectors``."""
    assert parse(text) == expected
    assert read(text) == (expected, ())


def test_the_spelling_of_kip_73_is_read_as_well() -> None:
    assert parse("0-101,0-102,1:101") == replicas((0, 101), (0, 102), (1, 101))


def test_a_number_that_is_no_int32_names_no_replica() -> None:
    with pytest.raises(UnitError, match="'2147483648:1' is not a replica"):
        parse("2147483648:1")
    assert read("2147483647:2147483647,1:2147483648") == (replicas((2147483647, 2147483647)), ("1:2147483648",))


def test_the_lenient_reader_skips_invalid_items() -> None:
    assert read("none,0:1, 7 ,2-3") == (replicas((0, 1), (2, 3)), ("none", "7"))
    assert read("*,0:1,x") == (ALL_REPLICAS, ("x",))


@given(st.text(alphabet="0123456789:-,* x\t"))
def test_the_lenient_reader_agrees_with_the_parser(text: str) -> None:
    found, unread = read(text)

    try:
        assert parse(text) == found
    except UnitError:
        assert unread or found.is_all
    else:
        assert not unread


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))))
def test_exactly_the_listed_replicas_are_throttled(pairs: list[tuple[int, int]]) -> None:
    found = parse(",".join(f"{partition}:{broker}" for partition, broker in pairs))

    assert {(p, b) for b, partitions in found.partitions.items() for p in partitions} == set(pairs)
    assert all(found.holds(partition, broker) for partition, broker in pairs)
