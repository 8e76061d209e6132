"""Tests the error if librdkafka is missing, and how fast the mock cluster obeys."""

import sys
import time

import pytest

from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster
from kafka_quota_proxy.proxy.cli.demo.workload import DemoError


def test_an_idle_mock_creates_and_deletes_topics_at_once() -> None:
    """It would wait for up to a second for each, and the relay with it."""
    with MockCluster() as mock:
        began_s = time.monotonic()
        for number in range(5):
            time.sleep(0.05)
            mock.create_topic(f"topic-{number}", 1)
            time.sleep(0.05)
            mock.delete_topic(f"topic-{number}")

        assert time.monotonic() - began_s < 3
    assert mock.topics == {}


def test_a_topic_that_exists_is_refused() -> None:
    with MockCluster(["topic"]) as mock, pytest.raises(DemoError, match="refuses topic topic: error 36"):
        mock.create_topic("topic", 1)


def test_the_error_of_a_missing_package_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.cimpl", None)

    with pytest.raises(DemoError) as caught:
        MockCluster()

    assert str(caught.value) == (
        "the demo needs confluent_kafka.cimpl, which is not installed: "
        "pip install '.[demo]' in a checkout of kafka-quota-proxy"
    )
