"""Runs promtool, which ``tests/ensure_promtool.sh`` installs."""

import os
import shutil
import subprocess
from pathlib import Path


def promtool(*arguments: str | Path) -> None:
    """Run promtool, and fail with its output if it finds a fault."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    ours = Path(os.environ.get("KAFKA_QUOTA_PROXY_CACHE") or Path(cache) / "kafka-quota-proxy") / "promtool"
    tool = shutil.which("promtool") or (ours if ours.exists() else None)
    assert tool is not None, "there is no promtool; run tests/ensure_promtool.sh"
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
