"""The tests on the page about throttling tests work as written."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "test-throttling.md"
TESTS = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    blocks = [block for block in TESTS.findall(PAGE.read_text(encoding="utf-8")) if "def test_" in block]
    assert blocks
    for number, block in enumerate(blocks):
        (pytester.path / f"test_page_{number}.py").write_text(block)

    pytester.runpytest_subprocess().assert_outcomes(passed=len(blocks))
