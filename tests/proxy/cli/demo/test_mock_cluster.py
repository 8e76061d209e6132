"""Tests the error if librdkafka is missing, and how fast the mock cluster obeys."""

import sys

import pytest

from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster
from kafka_quota_proxy.proxy.cli.demo.workload import DemoError


def test_a_topic_that_exists_is_refused() -> None:
    with MockCluster(["topic"]) as mock, pytest.raises(DemoError, match="refuses topic topic: error 36"):
        mock.create_topic("topic", [1])


def test_the_error_of_a_missing_package_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.cimpl", None)

    with pytest.raises(DemoError) as caught:
        MockCluster()

    assert str(caught.value) == (
        "the demo needs confluent_kafka.cimpl, which is not installed: "
        "pip install '.[demo]' in a checkout of kafka-quota-proxy"
    )
