"""What holds for all tests: ``HYPOTHESIS_PROFILE=deep`` has the property tests look for long, by chance."""

import os

from hypothesis import HealthCheck, settings

# Many processes import the same modules: the first of them writes down what it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples in each run: a red build has one cause, and it is in the change.
settings.register_profile("fast", derandomize=True, database=None, max_examples=100, deadline=None)
settings.register_profile(
    "deep", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
