"""Starts the Apache Kafka brokers that the end-to-end tests share, each when a test first asks for it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from kafka_quota_proxy.testing.control import Control
from tests.end_to_end.support import greedy
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4
from tests.end_to_end.support.kafka import QUICK_TO_RETURN, Kafka
from tests.end_to_end.support.processes import free_port, remove_scratch_of_dead_runs
from tests.end_to_end.support.proxy import Proxy


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python 3.0 uses an API that is deprecated in Python 3.11 and 3.12.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)  # so that fixtures and atexit hooks run, as on an interrupt

    signal.signal(signal.SIGTERM, leave)
    remove_scratch_of_dead_runs()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.end_to_end)
            if not any(item.get_closest_marker(name) for name in ("proof", "long", "rebalance", "pipeline")):
                item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def kafka_39() -> Iterator[Kafka]:
    with Kafka(KAFKA_3_9) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka_4() -> Iterator[Kafka]:
    with Kafka(KAFKA_4) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def slow_kafka() -> Iterator[Kafka]:
    """A broker with one I/O thread, which each write occupies for 5 ms."""
    with greedy.slow_kafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def testing_proxy(kafka_4: Kafka) -> Iterator[Proxy]:
    """A proxy in front of ``kafka_4`` that takes orders of tests."""
    with Proxy({"testing": True, "admin": {"bind": f"127.0.0.1:{free_port()}"}}, kafka_4) as proxy:
        yield proxy


@pytest.fixture
def control(testing_proxy: Proxy) -> Iterator[Control]:
    """Sends orders to ``testing_proxy``. All are removed after the test."""
    control = Control(testing_proxy.admin_address)
    yield control
    control.reset()


@pytest.fixture(scope="module")
def mortal_kafka() -> Iterator[Kafka]:
    """A broker for a single test module, which may kill the broker."""
    with Kafka(KAFKA_4, config=QUICK_TO_RETURN) as kafka:
        yield kafka
