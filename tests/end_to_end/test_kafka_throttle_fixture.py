"""The fixture ``kafka_throttle`` in test runs of its own: in front of a real cluster, and from its start on."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kafka_quota_proxy.testing import ThrottlingProxy
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.support.pages import block

_START_S: Final = 2.0  # of a processor, because other programs may have it for a while


@pytest.fixture(scope="module")
def cluster() -> Iterator[Kafka]:
    with Kafka(KAFKA_4, nodes=2, proxied=()) as kafka:
        yield kafka


@pytest.mark.long
def test_tests_of_the_page_pass_in_front_of_a_cluster(cluster: Kafka, pytester: pytest.Pytester) -> None:
    topic = create_topic(cluster, partitions=3)
    first = block("how-to/test-throttling.md", "python", holding="def test_producer_waits_and_loses_nothing").text
    for number in range(7):
        (pytester.path / f"test_page_{number}.py").write_text(first.replace('"orders"', repr(topic)))

    result = pytester.runpytest_subprocess(f"--kafka-bootstrap-servers={cluster.bootstrap_servers}")

    result.assert_outcomes(passed=7)


@pytest.mark.proof
def test_proxy_and_embedded_broker_start_and_end_in_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.dont_write_bytecode:  # an installation compiles a package once
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    used_s = []
    for _ in range(2):  # the first start compiles the modules
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with ThrottlingProxy():
            pass
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert used_s[-1] < _START_S, used_s
