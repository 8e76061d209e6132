"""Runs promtool, and finds prometheus. ``tests/ensure_promtool.sh`` installs both."""

import os
import shutil
import subprocess
from pathlib import Path


def promtool(*arguments: str | Path) -> None:
    """Run promtool, and fail with its output if it finds a fault."""
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def program(name: str) -> str | Path:
    """Return the path of promtool or of prometheus."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    ours = Path(os.environ.get("KAFKA_QUOTA_PROXY_CACHE") or Path(cache) / "kafka-quota-proxy") / name
    found = shutil.which(name) or (ours if ours.exists() else None)
    assert found is not None, f"there is no {name}; run tests/ensure_promtool.sh"
    return found
