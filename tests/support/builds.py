"""Marks tests that cannot run with compiled modules."""

from typing import Final

import pytest

from kafka_quota_proxy.proxy.runtime.build import is_compiled

# Compiled functions have no frames to trace. Their module's constants and methods cannot be replaced.
interpreted_only: Final = pytest.mark.skipif(is_compiled(), reason="traces or replaces what is compiled")
