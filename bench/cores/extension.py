"""Compiles the extension with Cython and the C compiler, and loads it."""

import subprocess
import sys
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from bench.cores.shared_buckets import Buckets

_SOURCE = Path(__file__).with_name("shared_buckets.pyx")


def compiled(folder: Path) -> Path:
    """Compile the extension into ``folder``, and return its file. Warnings of the C compiler are errors."""
    c_file, library = folder / "shared_buckets.c", folder / "shared_buckets.so"
    subprocess.run([sys.executable, "-m", "cython", "-3", str(_SOURCE), "-o", str(c_file)], check=True)
    include = sysconfig.get_paths()["include"]
    # Kafka's formulas have an addition after a multiplication, which must not become one operation.
    options = ["-O2", "-Wall", "-Werror", "-ffp-contract=off", "-shared", "-fPIC", "-pthread", f"-I{include}"]
    subprocess.run(["cc", *options, str(c_file), "-o", str(library)], check=True)
    return library


def loaded(library: Path) -> "type[Buckets]":
    """Return the class of the buckets."""
    spec = spec_from_file_location("shared_buckets", library)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - for the type checker
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("type[Buckets]", module.Buckets)
