"""The test on the page about throttling tests works as written."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "test-throttling.md"
TESTS = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_first_test_of_the_page_passes(pytester: pytest.Pytester) -> None:
    first, _ = TESTS.findall(PAGE.read_text(encoding="utf-8"))
    pytester.makepyfile(test_throttling=first)

    pytester.runpytest_subprocess().assert_outcomes(passed=1)
