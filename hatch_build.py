"""Compiles the modules that decide on each request, if ``KQP_COMPILE=1``: the build hook of this project's wheel.

The compiler is mypyc, which translates typed Python to C. The modules stay in the wheel as source beside their
extension modules, so that tracebacks show it. ``make compiled`` unpacks such a wheel.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = "kafka_quota_proxy"
FOLDERS: Final = ("config", "protocol", "proxy", "pipeline")
# What runs for each request or response. It is one group, so that calls between modules are calls between C functions.
COMPILED: Final = (
    *(f"protocol/{name}.py" for name in ("codec", "header", "partial_frame", "primitives")),
    *(
        f"protocol/{name}.py"
        for name in ("api_versions", "fetch", "fetched_batches", "produce", "record_batches", "throttle_time")
    ),
    "protocol/replica_fetch/*.py",
    "proxy/quota/*.py",
    "proxy/session/**/*.py",
    "proxy/server/clients/connection.py",
    "proxy/server/clients/latency.py",
    "proxy/server/clients/relay.py",
    "proxy/server/tls/record_bounds.py",
    "proxy/server/tls/transport.py",
    "proxy/server/clients/transport_pair.py",
)
# These use what a compiled class does not have, or, for words about limits, the unit that a number was written in.
INTERPRETED: Final = ("__init__.py", "kafka_rates.py", "rule_phrases.py")
# System calls without Python's own overhead. They are those of Linux.
IN_C: Final = ("proxy/server/clients/native_sockets.pyx",) if sys.platform == "linux" else ()
# types-PyYAML is for the type checker, which the compiler runs first: config reads YAML.
REQUIREMENTS: Final = ["mypy[mypyc]==2.4.*", "cython==3.2.*", "setuptools>=77", "types-PyYAML>=6.0.12"]


class CompileHook(BuildHookInterface[Any]):
    """Adds the extension modules to the wheel if ``KQP_COMPILE=1``, and does nothing otherwise."""

    def dependencies(self) -> list[str]:
        """Return what the build needs in addition to hatchling."""
        return REQUIREMENTS if is_asked_for() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this Python and platform."""
        if version == "editable" or not is_asked_for():
            return
        self._folder = tempfile.TemporaryDirectory()
        built = Path(self._folder.name)
        compile_into(built, Path(self.root))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(path): str(path.relative_to(built)) for path in extensions(built)})


def is_asked_for() -> bool:
    """Return whether the environment asks for a compiled wheel."""
    return os.environ.get("KQP_COMPILE", "") not in {"", "0"}


def extensions(folder: Path) -> list[Path]:
    """Return the extension modules below ``folder``."""
    return sorted(folder.rglob("*.so")) + sorted(folder.rglob("*.pyd"))


def compile_into(folder: Path, repository: Path) -> None:
    """Copy the package into ``folder`` and compile its modules there, beside their sources."""
    from Cython.Build import cythonize
    from mypyc.build import mypycify
    from setuptools import Distribution

    package = folder / PACKAGE
    package.mkdir(parents=True)
    shutil.copy(repository / PACKAGE / "__init__.py", package)
    for name in FOLDERS:
        shutil.copytree(repository / name, package / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    modules = sorted(
        path.relative_to(folder).as_posix()
        for pattern in COMPILED
        for path in package.glob(pattern)
        if path.name not in INTERPRETED
    )
    with _inside(folder):
        options = ["--config-file", str(repository / "pyproject.toml")]
        ext_modules = mypycify([*options, *modules], group_name=PACKAGE, opt_level="3")
        ext_modules += cythonize([f"{PACKAGE}/{name}" for name in IN_C], quiet=True)  # type: ignore[no-untyped-call]
        distribution = Distribution({"name": PACKAGE, "ext_modules": ext_modules})
        command = distribution.get_command_obj("build_ext")
        command.inplace = True
        command.ensure_finalized()
        command.run()
    shutil.rmtree(folder / "build")


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in ``folder``, because mypyc takes modules' names from relative paths."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
