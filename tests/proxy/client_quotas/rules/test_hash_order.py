"""Tests that keys are in the order in which a Java ``HashMap`` (OpenJDK 17) returns them."""

import time

import pytest

from kafka_quota_proxy.proxy.client_quotas.rules.hash_order import hash_order

CRAB = "\U0001f980"


@pytest.mark.parametrize(
    ("capacity", "put", "order"),
    [
        (16, "bad,Aa,connection_creation_rate", "Aa,connection_creation_rate,bad"),
        (
            4,
            "consumer_byte_rate,bad,BBBB,connection_creation_rate",
            "connection_creation_rate,consumer_byte_rate,bad,BBBB",
        ),
        (3, "producer_byte_rate,AaBB,BB", "BB,producer_byte_rate,AaBB"),
        (16, "controller_mutation_rate,BB,Aa,user,", "BB,Aa,,user,controller_mutation_rate"),
        (5, f"BB,{CRAB},AaBB,AaAa,BBBB", f"BB,{CRAB},AaBB,AaAa,BBBB"),
        (2, "AaBB,controller_mutation_rate", "controller_mutation_rate,AaBB"),
        (
            16,
            f"AaBB,AaAa,Ünknown,consumer_byte_rate,ip,{CRAB},producer_byte_rate,client-id,a.b,controller_mutation_rate",
            f"a.b,Ünknown,ip,{CRAB},producer_byte_rate,consumer_byte_rate,client-id,controller_mutation_rate,AaBB,AaAa",
        ),
        (
            7,
            f"Ünknown,request_percentage,consumer_byte_rate,{CRAB},BBBB,BB,bad",
            f"BB,bad,Ünknown,request_percentage,{CRAB},consumer_byte_rate,BBBB",
        ),
        (
            8,
            f"consumer_byte_rate,BB,ip,,{CRAB},AaAa,user,request_percentage",
            f"BB,,ip,request_percentage,{CRAB},consumer_byte_rate,user,AaAa",
        ),
        (2, "user,client-id", "client-id,user"),
        (2, "ip,user", "user,ip"),
    ],
)
def test_keys_come_in_the_order_of_java(capacity: int, put: str, order: str) -> None:
    assert hash_order(put.split(","), capacity) == order.split(",")


def test_a_key_that_is_put_twice_stays_where_it_was() -> None:
    # Aa and BB have the same hash code in Java.
    assert hash_order(["Aa", "BB", "Aa"], 3) == ["Aa", "BB"]
    assert hash_order([], 0) == []


def test_long_keys_take_no_time() -> None:
    keys = [f"{number}{'x' * 32_000}" for number in range(3_000)]
    began = time.process_time()

    assert hash_order(keys, len(keys)) == keys

    # Hashing all characters of the keys takes 3 ms.
    assert time.process_time() - began < 2
