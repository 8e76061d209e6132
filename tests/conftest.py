"""What holds for all tests: ``HYPOTHESIS_PROFILE=deep`` has the property tests look for long, by chance."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kafka_quota_proxy.proxy.background.isolation import internal_errors

# Many processes import the same modules: the first of them writes down what it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples in each run: a red build has one cause, and it is in the change.
settings.register_profile("fast", derandomize=True, database=None, max_examples=100, deadline=None)
settings.register_profile(
    "deep", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture
def has_faults() -> None:
    """Ask for it where faults of the program are made on purpose."""


@pytest.fixture(autouse=True)
def _no_fault_is_hidden(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail what the program would go on after: an exception that nothing expects."""
    before = dict(internal_errors)
    yield
    if "has_faults" not in request.fixturenames:
        assert internal_errors == before, "internal errors; see the log"
    internal_errors.clear()
