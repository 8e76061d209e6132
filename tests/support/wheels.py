"""Builds the wheel and the sdist of this checkout, and environments of Python in which tests install them."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def built_wheel(directory: Path) -> Path:
    """Build the wheel into a directory, and return its path."""
    return _built("wheel", directory, "*.whl")


def built_sdist(directory: Path) -> Path:
    """Build the sdist into a directory, and return its path."""
    return _built("sdist", directory, "*.tar.gz")


def copied_checkout(directory: Path) -> Path:
    """Copy what belongs to the repository into ``directory``, and return the path of the copy."""
    unrelated = shutil.ignore_patterns(
        ".*cache", ".venv", ".git", "__pycache__", "build", "dist", "site", ".hypothesis"
    )
    return shutil.copytree(REPOSITORY, directory / "checkout", symlinks=True, ignore=unrelated)


def wheel_from(source: Path, directory: Path) -> Path:
    """Let pip build the wheel that an installation of ``source`` installs, and return its path."""
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", str(source)]
    subprocess.run([*words, "--wheel-dir", str(directory)], check=True)
    (built,) = directory.glob("*.whl")
    return built


def fresh_environment(directory: Path, requirements: list[str]) -> Path:
    """Create an environment with the packages ``requirements`` and what these need, in versions of constraints.txt.

    Return the path of the environment's interpreter.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    created = directory / "bin" / "python"
    words = [*_pip(created), "install", "--quiet", "--only-binary=:all:"]
    subprocess.run([*words, "--constraint", str(REPOSITORY / "constraints.txt"), *requirements], check=True)
    return created


def _built(target: str, directory: Path, pattern: str) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    subprocess.run(words, cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = directory.glob(pattern)
    return built


def _pip(python: Path) -> list[str]:
    return [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]


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
    subprocess.run([*_pip(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True)


def outside_checkout() -> dict[str, str]:
    """Return the environment variables without PYTHONPATH, so that Python does not find the checkout."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
