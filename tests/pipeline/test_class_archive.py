"""Java writes an archive of Spark's classes once, uses it from then on, and starts in any case."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_quota_proxy.pipeline import class_archive
from tests.pipeline.support import record, write_log

WRITES, USES = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty directory for archives. Its path has a space."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my caches"))
    place = tmp_path / "my caches" / "kafka-quota-pipeline"
    place.mkdir(parents=True)
    return place


def java(options: str) -> str:
    """Run Java with options, and return what it writes to stdout, which is not its version."""
    command = ["java", *shlex.split(options), "-version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout


def only(directory: Path) -> Path:
    (file,) = directory.iterdir()
    return file


def test_java_writes_an_archive_once_and_then_uses_it(directory: Path) -> None:
    writing = class_archive.java_options()
    assert WRITES in writing
    assert class_archive.java_options() == ""  # another process, before the first has ended

    assert java(writing) == ""
    using = class_archive.java_options()
    assert USES in using
    assert only(directory).suffix == ".jsa"
    assert java(f"{using} -Xshare:on") == ""  # Java ends with an error if it cannot use the archive
    assert class_archive.java_options() == using


def test_java_starts_with_an_archive_of_another_version(directory: Path) -> None:
    java(class_archive.java_options())
    using = class_archive.java_options()
    archive = only(directory)
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(8)
        file.write(b"\xff" * 64)

    assert java(using) == ""
    with pytest.raises(subprocess.CalledProcessError):
        java(f"{using} -Xshare:on")


def test_an_archive_that_was_never_completed_is_written_again(directory: Path) -> None:
    class_archive.java_options()
    part = only(directory)
    part.write_bytes(bytes(4_096))  # the process was killed while Java wrote, before the header
    assert class_archive.java_options() == ""

    os.utime(part, (time.time() - 7_200,) * 2)
    assert WRITES in class_archive.java_options()


def test_a_used_archive_is_as_good_as_new(directory: Path) -> None:
    java(class_archive.java_options())
    class_archive.java_options()
    os.utime(only(directory), (0, 0))

    assert USES in class_archive.java_options()
    assert time.time() - only(directory).stat().st_mtime < 60


def test_archives_that_nobody_uses_are_deleted(directory: Path) -> None:
    old = directory / "0123456789abcdef.jsa"
    old.write_bytes(b"old")
    os.utime(old, (time.time() - 40 * 86_400,) * 2)
    java(class_archive.java_options())

    class_archive.java_options()
    assert only(directory) != old


def test_the_first_command_on_a_machine_writes_none(directory: Path) -> None:
    directory.rmdir()

    assert class_archive.java_options() == ""
    assert list(directory.iterdir()) == []
    assert WRITES in class_archive.java_options()


def test_there_is_no_archive_without_java_or_without_a_place_for_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_archive.java_options("no-such-java") == ""
    shutil.rmtree(directory)
    directory.parent.rmdir()
    directory.parent.write_text("a file", encoding="utf-8")
    assert class_archive.java_options() == ""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert class_archive.java_options() == ""


@pytest.mark.pipeline
@pytest.mark.timeout(300)
def test_spark_starts_from_the_archive_that_a_command_wrote(directory: Path, tmp_path: Path) -> None:
    write_log(tmp_path / "usage" / "a.jsonl", [record(at_s=at, amount=1_000_000) for at in range(100)])
    (tmp_path / "owners.csv").write_text("user,client_id,owner,from,until\nalice,,team a,,\n", encoding="utf-8")

    def bill(*options: str) -> str:
        words = ["chargeback", "--usage", "usage", "--owners", "owners.csv", "--out", "out", *options]
        command = [sys.executable, "-m", "kafka_quota_proxy.pipeline", *words]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=200)
        return ran.stdout

    written = bill()
    assert written.startswith("team a: 100 MB\n")
    assert written.endswith("out/bill\n")
    deadline = time.monotonic() + 60
    while not (using := class_archive.java_options()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert only(directory).stat().st_size > 50_000_000

    # With -Xshare:on, Java does not start without the archive.
    assert bill("--conf", f"spark.driver.extraJavaOptions={using} -XX:+UseSerialGC -Xshare:on") == written
