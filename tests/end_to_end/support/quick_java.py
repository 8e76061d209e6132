"""Class archives and compiled programs that speed up Java's start, kept in the cache with the jars.

A test run starts many Javas, most of them for seconds. With an archive of the classes that a broker loads (class data
sharing) a broker starts in three quarters of the time and a tool in two thirds. A compiled program of ours takes a
third.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tests.end_to_end.support.artifacts import cache_directory, java
from tests.end_to_end.support.processes import run

# Java ignores an archive that does not fit; its warning must not appear in the output of tools.
_SILENT: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def class_archive(classpath: str) -> Path:
    """Return the path of the archive of a broker's classes, for these jars and this Java."""
    jars = Path(classpath.partition("/*")[0])
    return cache_directory() / f"{jars.name}-{_digest(_identity(), _jars(classpath))}.jsa"


def reading(archive: Path) -> tuple[str, ...]:
    """Return options for a Java whose class path begins with that of the archive; none without an archive."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT) if archive.exists() else ()


def writing(archive: Path) -> tuple[str, ...]:
    """Return options for a Java that writes the archive at its end."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)


def compiled(source: Path, classpath: str) -> Path:
    """Return a directory with the classes of a program, compiled if the cache has none.

    Classes appear in the cache by one rename, so an interrupted run leaves nothing that looks complete.

    Raises:
        HarnessError: The program does not compile.
    """
    return _compiled(source, source.read_bytes(), classpath)


@cache
def _compiled(source: Path, text: bytes, classpath: str) -> Path:
    directory = cache_directory() / f"{source.stem}-{_digest(_identity(), _jars(classpath), text)}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{source.stem}-", dir=directory.parent))
        try:
            run(["javac", "-J-XX:TieredStopAtLevel=1", "-cp", classpath, "-d", draft / "classes", source], timeout_s=60)
            (draft / "classes").rename(directory)
        except OSError:
            if not directory.is_dir():  # otherwise another run was faster, and its classes are equal
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return directory


@cache
def _identity() -> bytes:
    return subprocess.run([java(), "-Xinternalversion"], capture_output=True, check=True).stdout


@cache
def _jars(classpath: str) -> bytes:
    """Return what Java compares before it reads an archive: names, sizes and times of the jars, in order."""
    jars = [jar for part in classpath.split(":") for jar in Path(part).parent.glob("*.jar") if part.endswith("/*")]
    return "".join(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n" for jar in jars).encode()


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
