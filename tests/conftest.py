"""Fixtures and settings of all tests. With ``HYPOTHESIS_PROFILE=deep``, property tests search long and at random."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kafka_quota_proxy.proxy.runtime.isolation import internal_errors

# Many processes import the same modules, so bytecode must be cached.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples in each run, so that a failure is caused by the change.
settings.register_profile("fast", derandomize=True, database=None, max_examples=100, deadline=None)
settings.register_profile(
    "deep", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture
def has_faults() -> None:
    """Request this fixture in tests that cause internal errors on purpose."""


@pytest.fixture(autouse=True)
def _no_fault_is_hidden(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the program has counted an unexpected exception."""
    before = dict(internal_errors)
    yield
    if "has_faults" not in request.fixturenames:
        assert internal_errors == before, "internal errors; see the log"
    internal_errors.clear()
