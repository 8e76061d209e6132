"""Keeps the classes that Java has loaded for Spark in a file, from which the next process loads them in less time.

Such a file is an archive for class data sharing (JEP 350). Java writes it when the process ends, and its first bytes at
the very end. Java uses an archive only if it fits the version of Java and the class path, and otherwise loads the
classes from Spark's jars.
"""

import contextlib
import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

import pyspark

_HOUR_S: Final = 3_600
_MONTH_S: Final = 30 * 24 * _HOUR_S


def java_options(java: str | None = None) -> str:
    """Return the options with which Java uses the archive, or writes one if there is none.

    Return an empty string if this is the first call on this machine, if another process is about to write the archive,
    if the user's directory of caches cannot be written, or if there is no Java. ``java`` is the program, by default the
    one that Spark starts.
    """
    program = shutil.which(java or _java_of_spark())
    if program is None:
        return ""
    try:
        archive = _directory() / f"{_key(Path(program).resolve())}.jsa"
        part = archive.with_suffix(".part")
        if _is_complete(part):
            part.replace(archive)
            _delete_unused(archive.parent)
        if _is_complete(archive):
            os.utime(archive)
            return _quiet(f"-XX:SharedArchiveFile={archive}")
        if not archive.parent.exists():
            # Writing an archive takes seconds. In a container that runs one command, nothing would use it.
            archive.parent.mkdir(parents=True)
            return ""
        if part.exists() and time.time() - part.stat().st_mtime > _HOUR_S:
            part.unlink()
        # Only one process creates the file, and Java replaces it.
        part.touch(exist_ok=False)
    except (OSError, RuntimeError):  # in a container, a user may have no home
        return ""
    return _quiet(f"-XX:ArchiveClassesAtExit={part}")


def _java_of_spark() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def _directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-quota-pipeline"


def _key(java: Path) -> str:
    """Return a name for what an archive has to fit: this Java, and this installation of Spark."""
    spark = Path(pyspark.__file__).parent
    parts = (java, java.stat().st_mtime_ns, spark, spark.stat().st_mtime_ns, pyspark.__version__)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _is_complete(archive: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), archive.open("rb") as file:
        return any(file.read(4))
    return False


def _delete_unused(directory: Path) -> None:
    for path in directory.iterdir():
        if time.time() - path.stat().st_mtime > _MONTH_S:
            path.unlink()


def _quiet(option: str) -> str:
    # Java writes its remarks on archives to stdout, where the results go.
    return f'"{option}" -Xlog:disable'
