"""Starts the programs with Kafka's and Hadoop's classes, each when a test first asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracles.hadoop import Hadoop, hadoop_program
from tests.oracles.kafka import Kafka, kafka_program


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("oracles"))  # one worker starts the programs


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with kafka_program() as program:
        yield Kafka(program)


@pytest.fixture(scope="session")
def hadoop() -> Iterator[Hadoop]:
    with hadoop_program() as program:
        yield Hadoop(program)
