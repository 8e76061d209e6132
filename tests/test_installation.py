"""The package installs like a library, from wheel, sdist and directory, on each Python that this machine has."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.pages import block
from tests.support.wheels import (
    REPOSITORY,
    built_sdist,
    built_wheel,
    copied_checkout,
    fresh_environment,
    outside_checkout,
    wheel_from,
)

pytestmark = pytest.mark.kafka

FOLDERS = ("config", "proxy", "protocol", "pipeline")
# Each import of these modules leaves a line with the id of the process.
MODULE = """\
import os
from pathlib import Path

OWNER = "the application"
with (Path(__file__).parents[{depth}] / "imports.txt").open("a") as file:
    file.write(f"{{os.getpid()}}\\n")
"""
OWN_TEST = """

import config
import proxy
import protocol


def test_modules_are_those_of_the_application():
    assert {config.OWNER, proxy.OWNER, protocol.OWNER} == {"the application"}
"""
TYPED_TEST = """\
from kafka_quota_proxy.testing import ThrottlingProxy


def test_times(kafka_throttle: ThrottlingProxy) -> None:
    kafka_throttle.next(throttle_time_ms=300)
    assert kafka_throttle.observed("app").throttle_time_ms == 300
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with only the wheel and pytest."""
    directory = tmp_path_factory.mktemp("environment")
    return fresh_environment(directory, [f"{wheel}[testing]", "pytest"])


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def application(directory: Path) -> Path:
    """Write an application whose modules have the names of this project's folders, with the first test of the page."""
    (directory / "proxy").mkdir(parents=True)
    for name, depth in (("config.py", 0), ("protocol.py", 0), ("proxy/__init__.py", 1)):
        (directory / name).write_text(MODULE.format(depth=depth))
    first = block("how-to/test-throttling.md", "python", holding="def test_producer_waits_and_loses_nothing")
    (directory / "test_throttling.py").write_text(first.text + OWN_TEST)
    (directory / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return directory


def test_twine_finds_no_fault(wheel: Path, sdist: Path) -> None:
    words = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    checked = subprocess.run(words, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("PASSED") == 2


def test_sdist_holds_what_the_wheel_is_built_from(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    top, below = {member.name.split("/")[1] for member in members}, {"/".join(m.name.split("/")[1:3]) for m in members}

    assert all(member.isfile() for member in members)
    assert top - set(FOLDERS) == {
        ".gitignore", "LICENSE", "PKG-INFO", "README.md", "hatch_build.py", "kafka_quota_proxy", "pyproject.toml"
    }  # fmt: skip
    assert {name for name in below if name.startswith("kafka_quota_proxy/")} == {
        f"kafka_quota_proxy/{name}" for name in ("__init__.py", "py.typed", "testing")
    }


@pytest.mark.parametrize("source", ["sdist", "directory"])
def test_same_wheel_is_built_from(source: str, wheel: Path, sdist: Path, tmp_path: Path) -> None:
    (rebuilt := tmp_path / "rebuilt").mkdir()

    assert contents(wheel_from(sdist if source == "sdist" else copied_checkout(tmp_path), rebuilt)) == contents(wheel)


def test_plugin_works_in_an_application_with_modules_of_our_names(environment: Path, tmp_path: Path) -> None:
    project = application(tmp_path / "application")
    variables = outside_checkout() | {"PYTHONPATH": str(project), "PYTEST_ADDOPTS": ""}

    tested = subprocess.run(
        [str(environment.parent / "pytest"), "-v"],
        cwd=project,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert f"rootdir: {project}" in tested.stdout
    assert "2 passed" in tested.stdout
    imports = (project / "imports.txt").read_text().split()
    assert (len(imports), len(set(imports))) == (3, 1)  # only by the process of pytest


def test_installed_package_is_typed(environment: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(environment), "test_times.py"]

    def checked(test: str) -> str:
        (tmp_path / "test_times.py").write_text(test)
        return subprocess.run(
            words, cwd=tmp_path, env=outside_checkout(), capture_output=True, text=True, check=False
        ).stdout

    assert checked(TYPED_TEST) == "Success: no issues found in 1 source file\n"
    assert 'incompatible type "str"; expected "int"' in checked(TYPED_TEST.replace("=300)", "='300')"))


@pytest.mark.parametrize(
    ("python", "platforms"),
    [
        ("3.11", ["macosx_14_0_x86_64"]),
        ("3.14", ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64"]),
    ],
)
def test_every_dependency_has_a_wheel_for(python: str, platforms: list[str], wheel: Path, tmp_path: Path) -> None:
    tags = [word for platform in platforms for word in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--disable-pip-version-check"]
    target = ["--target", str(tmp_path), "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    constraints = ["--constraint", str(REPOSITORY / "constraints.txt")]

    found = subprocess.run(
        [*pip, *target, *tags, *constraints, f"{wheel}[testing]", "pytest"], capture_output=True, text=True, check=False
    )

    assert found.returncode == 0, found.stderr
