"""Tests the fixture in test runs of its own, as an application has them."""

import time

import pytest

from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports

pytest_plugins = ["pytester"]

TESTS = """
import confluent_kafka
import pytest


def produce(address):
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "client.id": "app"})
    producer.produce("topic", b"value")
    assert producer.flush(20) == 0


@pytest.mark.parametrize("number", range(3))
def test_throttled_once(kafka_throttle, number):
    assert kafka_throttle.observed().throttle_time_ms == 0
    kafka_throttle.next(1, api="Produce", throttle_time_ms=200, client_id="app")
    produce(kafka_throttle.bootstrap_servers)
    assert kafka_throttle.observed("app").throttle_time_ms == 200


async def test_works_in_async_tests(kafka_throttle, kafka_throttle_session):
    assert kafka_throttle is kafka_throttle_session


def test_that_fails(kafka_throttle):
    kafka_throttle.next(1, api="Produce", throttle_time_ms=123)
    produce(kafka_throttle.bootstrap_servers)
    assert kafka_throttle.observed("app").throttle_time_ms == 0
"""
ASYNC = ("-o", "asyncio_mode=auto")


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_fixture_throttles_and_reports(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makepyfile(TESTS)

    result = pytester.runpytest_subprocess(*ASYNC, *workers)

    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*<1 throttled responses, 123 ms in all>*",
            "*throttled responses*",
            "after_ms  api*client_id  broker*",
            "0         Produce*app        1       123*testing*",
            "*clients that were seen*",
            "client_id='app' user='ANONYMOUS': 1 Produce, * Metadata, * ApiVersions*",
        ]
    )


def test_a_kafka_that_is_not_there_fails_the_tests_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(kafka_throttle):\n    pass\n\n\ndef test_two(kafka_throttle):\n    pass\n")
    (port,) = adjacent_ports(1)

    began_s = time.monotonic()
    result = pytester.runpytest_subprocess(f"--kafka-bootstrap-servers=127.0.0.1:{port}")

    assert time.monotonic() - began_s < 15
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines([f"kafka_throttle: no Kafka answers at 127.0.0.1:{port}: Connection refused. *"])
    assert result.stdout.str().count("throttling_proxy.py") == 0


def test_kafka_of_the_option_and_of_the_file_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kafka_throttle):\n    raise AssertionError\n")

    result = pytester.runpytest_subprocess("--kafka-bootstrap-servers", "no address")
    result.stdout.fnmatch_lines(["*bootstrap_servers*"])
    pytester.makeini("[pytest]\nkafka_bootstrap_servers = also none\n")
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*bootstrap_servers*also none*"])
