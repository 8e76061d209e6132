"""Builds the wheel of this checkout, and environments of Python in which tests install the wheel."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def built_wheel(directory: Path) -> Path:
    """Build the wheel into a directory, and return its path."""
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(words, cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built


def bare_environment(directory: Path) -> Path:
    """Create an environment with all installed packages except this project. Return the path of its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        # The .pth file of an editable installation would lead to the checkout.
        if entry.suffix != ".pth" and not entry.name.startswith(("_editable_impl", "kafka_quota_proxy", "__pycache__")):
            (packages / entry.name).symlink_to(entry)
    return directory / "bin" / "python"


def install(wheel: Path, python: Path) -> None:
    """Install a wheel into the environment of an interpreter."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True)


def outside_checkout() -> dict[str, str]:
    """Return the environment variables without PYTHONPATH, so that Python does not find the checkout."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
