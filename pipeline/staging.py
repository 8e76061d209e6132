"""Makes a directory of results appear complete or not at all, without Spark.

Results are written to a staging directory next to their place, which is renamed when they are complete. A file marks
each directory that this program wrote and may replace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import UsageError

_MARK: Final = "_kafka_quota_pipeline"
_OF_LOG: Final = "a usage log, "
_BY: Final = "written by kafka-quota-pipeline; replaced as a whole when it runs again\n"


@contextmanager
def staged_directory(out: str, *, is_log: bool = False) -> Iterator[str]:
    """Yield a new directory that becomes ``out`` if the block succeeds, and is deleted otherwise.

    With ``is_log``, the result is a usage log, which is also read as a part of a larger log. Old results are set aside
    until the new results are in their place. If the process is killed in between, the next run restores them. On object
    stores the replacement is not atomic. Raises UsageError if ``out`` has files that this program did not write.
    """
    out = out.rstrip("/") or "/"
    parent, _, name = out.rpartition("/")
    directory = f"{parent}/" if parent or out.startswith("/") else ""
    staging, previous = f"{directory}.{name}.staging", f"{directory}.{name}.previous"
    if file_system.exists(previous) and not file_system.exists(out):
        file_system.rename(previous, out)
    if file_system.exists(out) and not file_system.exists(f"{out}/{_MARK}") and not file_system.is_empty(out):
        raise UsageError(f"--out {out}: exists and was not written by this program; name a new directory")
    file_system.delete(staging)
    file_system.make_directory(staging)
    try:
        yield staging
        file_system.write(f"{staging}/{_MARK}", _OF_LOG + _BY if is_log else _BY)
        _replace(out, by=staging, aside=previous)
    finally:
        file_system.delete(staging)


def is_results(directory: str) -> bool:
    """Return whether a directory contains results of a command, other than a usage log."""
    mark = f"{directory}/{_MARK}"
    return file_system.exists(mark) and not file_system.read(mark).startswith(_OF_LOG)


def _replace(out: str, *, by: str, aside: str) -> None:
    file_system.delete(aside)
    is_there = file_system.exists(out)
    if is_there:
        file_system.rename(out, aside)
    try:
        file_system.rename(by, out)
    except BaseException:
        if is_there:
            file_system.rename(aside, out)
        raise
    file_system.delete(aside)
