"""Finds librdkafka in the wheel of confluent-kafka, so that ctypes can reach its mock cluster."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sysconfig
from pathlib import Path
from typing import Final

from kafka_quota_proxy.proxy.cli.demo.errors import LibraryError, MissingExtraError

INSTALL_HINT: Final = "pip install 'kafka-quota-proxy[demo]'"
_MAPS: Final = Path("/proc/self/maps")
# auditwheel (Linux) and delocate (macOS) put bundled libraries here, seen from the package's own directory.
_BUNDLED: Final = (
    ("../confluent_kafka.libs", "librdkafka*.so*"),
    (".dylibs", "librdkafka*.dylib"),
    ("../confluent_kafka.dylibs", "librdkafka*.dylib"),
)


def load_librdkafka() -> ctypes.CDLL:
    """Open the librdkafka that confluent-kafka itself uses.

    Raises:
        MissingExtraError: confluent-kafka is not installed.
        LibraryError: Its librdkafka was not found.
    """
    try:
        module = importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise MissingExtraError(missing_extra_message(error, soabi=_soabi())) from error
    # The loaded file first: confluent-kafka built from source uses a system library that no glob would find.
    maps = _MAPS.read_text() if _MAPS.exists() else ""
    path = library_in_maps(maps) or bundled_library(Path(str(module.__file__)).parent)
    if path is None:
        raise LibraryError(
            f"no librdkafka next to confluent-kafka in {Path(str(module.__file__)).parent}: reinstall it"
        )
    return ctypes.CDLL(path)


def library_in_maps(maps: str) -> str | None:
    """Return the path of librdkafka in the text of Linux' ``/proc/self/maps``, or ``None``."""
    for line in maps.splitlines():
        # address perms offset dev inode path; the path may hold spaces
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and Path(fields[5]).name.startswith("librdkafka"):
            return fields[5]
    return None


def bundled_library(package: Path) -> str | None:
    """Return the path of the librdkafka that came in the wheel whose package directory is given, or ``None``."""
    for directory, pattern in _BUNDLED:
        for path in sorted((package / directory).glob(pattern)):
            return str(path.resolve())
    return None


def missing_extra_message(error: ImportError, *, soabi: str) -> str:
    """Return a line with the missing package and the command that installs it.

    Args:
        error: from importing a package of the extra.
        soabi: Python's own ABI tag, such as ``cpython-311-x86_64-linux-musl``.
    """
    name = error.name or str(error)
    if "musl" in soabi and name.startswith("confluent_kafka"):
        return "the demo's broker (confluent-kafka) has no wheel for musl (Alpine): use a glibc system, such as Debian"
    return f"the demo needs {name}, which is not installed: {INSTALL_HINT}"


def _soabi() -> str:
    return str(sysconfig.get_config_var("SOABI") or "")


def require_extra(*names: str) -> None:
    """Check that the packages of the extra ``demo`` are installed, without importing them.

    Raises:
        MissingExtraError: One of them is not installed.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(missing_extra_message(ImportError(name=name), soabi=_soabi()))
