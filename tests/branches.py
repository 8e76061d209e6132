"""Measures how many branches of the packages that decide are taken by the unit tests of these packages.

``make branches`` runs them, with further arguments for pytest, and fails if a test fails or if a package has too few.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_PACKAGES: Final = ("protocol", "proxy/quota", "proxy/session", "proxy/rules")
_LEAST_PERCENT: Final = 95
# These bound a time of the processor, of which the measurement takes most. They run compiled, in `make test-compiled`.
_TIMED: Final = (
    "tests/proxy/session/test_address_rewrite.py::test_the_brokers_of_5000_partitions_cost_under_a_tenth_of_a_millisecond",
    "tests/proxy/session/test_bounded_work.py::test_a_read_takes_a_hundredth_of_a_second",
)


def main(arguments: Sequence[str]) -> int:
    """Run the tests, print a row for each package, and return the exit status."""
    with TemporaryDirectory() as directory:
        settings, report = Path(directory, "coveragerc"), Path(directory, "report.json")
        lines = ["[run]", "branch = true", f"data_file = {directory}/data"]
        lines += ["parallel = true", "patch = subprocess"]  # each worker of pytest-xdist has a file of its own
        lines += ["source =", *(f"    kafka_quota_proxy.{package.replace('/', '.')}" for package in _PACKAGES)]
        settings.write_text("\n".join(lines), encoding="utf-8")
        tests = [f"tests/{package}" for package in _PACKAGES] + [f"--deselect={test}" for test in _TIMED]
        ran = _coverage(settings, "run", "-m", "pytest", "-n", "auto", "--dist", "loadgroup", *tests, *arguments)
        _coverage(settings, "combine", "--quiet", directory)
        _coverage(settings, "json", "--quiet", "-o", str(report))
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    percents = [_percent(files, package) for package in _PACKAGES]
    for package, percent in zip(_PACKAGES, percents, strict=True):
        print(f"{package:14} {percent:6.2f} % of its branches are taken, and {_LEAST_PERCENT} must be")  # noqa: T201
    return ran or int(min(percents) < _LEAST_PERCENT)


def _coverage(settings: Path, command: str, *arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "coverage", command, f"--rcfile={settings}", *arguments]).returncode


def _percent(files: dict[str, dict[str, dict[str, int]]], package: str) -> float:
    sums = [one["summary"] for path, one in files.items() if f"{package}/" in path]
    return 100 * sum(one["covered_branches"] for one in sums) / sum(one["num_branches"] for one in sums)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
