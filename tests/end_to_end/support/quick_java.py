"""Speeds up the start of Java with class archives and compiled programs, which are kept in the cache."""

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

QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
# The C1 compiler alone halves the CPU time of short-lived tools, and the serial collector needs no threads.
_SHORT_LIVED: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
# Java ignores an archive that does not fit. Its warning must not appear in the output of tools.
_SILENT: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def run_java(main_class: str, *arguments: str | Path, classpath: str, timeout_s: float = 120) -> str:
    """Run a Java class or source file, and return its standard output. A source file must not declare a package."""
    options = reading(class_archive(classpath))
    if main_class.endswith(".java"):
        program = Path(main_class)
        classpath, main_class = f"{classpath}:{compiled(program, classpath)}", program.stem
    return run([java(), *_SHORT_LIVED, *options, QUIET, "-cp", classpath, main_class, *arguments], timeout_s=timeout_s)


def class_archive(classpath: str) -> Path:
    """Return the path of the archive of a broker's classes, for these jars and this Java."""
    jars = Path(classpath.partition("/*")[0])
    return cache_directory() / f"{jars.name}-{_digest(_identity(), _jars(classpath))}.jsa"


def reading(archive: Path) -> tuple[str, ...]:
    """Return the Java options that load an archive, or none if the archive does not exist."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT) if archive.exists() else ()


def writing(archive: Path) -> tuple[str, ...]:
    """Return the Java options that write an archive when Java ends."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)


def compiled(source: Path, classpath: str, *, among: Path | None = None) -> Path:
    """Return a directory with the classes of a program, compiled if necessary. Raises HarnessError if that fails.

    If the program uses other classes, their sources are in the directory ``among``.
    """
    files = [source] if among is None else sorted(among.rglob("*.java"))
    return _compiled(source, b"\0".join(file.read_bytes() for file in files), classpath, among)


@cache
def _compiled(source: Path, text: bytes, classpath: str, among: Path | None) -> Path:
    directory = cache_directory() / f"{source.stem}-{_digest(_identity(), _jars(classpath), text)}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{source.stem}-", dir=directory.parent))
        try:
            others = [] if among is None else ["-proc:none", "-sourcepath", str(among)]
            options = ["-J-XX:TieredStopAtLevel=1", *others, "-cp", classpath, "-d", str(draft / "classes")]
            run(["javac", *options, source], timeout_s=60)
            (draft / "classes").rename(directory)
        except OSError:
            if not directory.is_dir():  # otherwise another run has just put the same classes there
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return directory


@cache
def _identity() -> bytes:
    return subprocess.run([java(), "-Xinternalversion"], capture_output=True, check=True).stdout


@cache
def _jars(classpath: str) -> bytes:
    """Return the names, sizes and times of the jars, which Java compares with those of the archive."""
    jars = [jar for part in classpath.split(":") for jar in Path(part).parent.glob("*.jar") if part.endswith("/*")]
    return "".join(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n" for jar in jars).encode()


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
