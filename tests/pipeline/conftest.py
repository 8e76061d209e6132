"""Fixtures. All tests share one Spark session, because its start takes longer than most tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.session import session
from kafka_quota_proxy.pipeline.writing import Output
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED

CONF = {
    JAVA_OPTIONS: SHORT_LIVED,
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "2",
    "spark.driver.memory": "1g",
    "spark.ui.showConsoleProgress": "false",
    # Compiling each of many small plans takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests with Spark to ``make test-kafka``, where one worker runs them, so that one session is started."""
    for item in items:
        if isinstance(item, pytest.Function) and "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("pipeline") is None:
                item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session(master="local[2]", conf=CONF)
    yield spark
    spark.stop()


@pytest.fixture
def output(spark: SparkSession, tmp_path: Path) -> Output:
    """Return an output that leaves its results in a scratch directory."""
    directory = tmp_path / "output"
    directory.mkdir()
    return Output(str(directory))
