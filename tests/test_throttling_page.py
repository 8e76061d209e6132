"""The tests on the page about throttling tests work as written."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "test-throttling.md"
TESTS = re.compile(r"```python\n(.*?)```", re.DOTALL)


# In this folder, each partition has another leader.
SPREAD = """
import pytest
from confluent_kafka.admin import AdminClient, NewTopic


@pytest.fixture(autouse=True, scope="session")
def spread(kafka_throttle_session):
    admin = AdminClient({"bootstrap.servers": kafka_throttle_session.bootstrap_servers})
    topic = NewTopic("orders", 4, replica_assignment=[[1], [2], [3], [1]])
    admin.create_topics([topic])["orders"].result(20)
"""


def test_tests_of_the_page_pass_wherever_the_leaders_of_partitions_are(pytester: pytest.Pytester) -> None:
    blocks = [block for block in TESTS.findall(PAGE.read_text(encoding="utf-8")) if "def test_" in block]
    assert len(blocks) >= 2
    (spread := pytester.path / "where_spread").mkdir()
    (spread / "conftest.py").write_text(SPREAD)
    for number, block in enumerate(blocks):
        (pytester.path / f"test_page_{number}.py").write_text(block)
        (spread / f"test_spread_{number}.py").write_text(block)

    pytester.runpytest_subprocess().assert_outcomes(passed=2 * len(blocks))
