"""Reads, writes and renames files in the same way on a local disk, HDFS and object stores, with Arrow's file systems.

A path is a local path or a URI such as ``s3://BUCKET/DIRECTORY``. Arrow takes the credentials of an object store from
the environment, and not from Hadoop's settings.

The results of a command appear complete or not at all: they are written to a staging directory next to their place,
which is renamed when they are complete. A file marks each directory that this program wrote and may replace.
"""

import contextlib
import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

from pyarrow import fs

from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError

# Hadoop has another name for this scheme.
_SCHEMES: Final = {"s3a://": "s3://", "s3n://": "s3://"}
_LOCAL: Final = re.compile(r"^file:(//)?")
# These can rename a directory. An object store has no directories, so that each file has to be copied.
_RENAME: Final = (fs.LocalFileSystem, fs.HadoopFileSystem)


def exists(path: str) -> bool:
    """Return whether a file or a directory exists."""
    store, at = _at(path)
    return bool(store.get_file_info(at).type != fs.FileType.NotFound)


def is_empty(path: str) -> bool:
    """Return whether a path is a directory without entries."""
    store, at = _at(path)
    return bool(store.get_file_info(at).type == fs.FileType.Directory) and not names(path)


def absolute(path: str) -> str:
    """Return the absolute form of a path. A local path has no scheme then."""
    if "://" in path and not path.startswith("file:"):
        return path
    return os.path.abspath(_LOCAL.sub("", path))  # noqa: PTH100  (a URI is not a Path)


def plain(path: str) -> str:
    """Convert the path of a file from the form in which Spark lists it: without ``file:`` and URL escapes."""
    return _LOCAL.sub("", unquote(path))


def local_sizes(pattern: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the bytes of each file that a local path or pattern names, also in its directories.

    There are none if the path is not local. A file that is removed meanwhile is left out.
    """
    for path in glob.iglob(_LOCAL.sub("", pattern)):  # noqa: PTH207  (the pattern may be absolute)
        files = [path] if os.path.isfile(path) else (f"{at}/{name}" for at, _, names in os.walk(path) for name in names)  # noqa: PTH113
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                yield file, os.path.getsize(file)  # noqa: PTH202


def delete(path: str) -> None:
    """Delete a file, or a directory with its contents. Do nothing if ``path`` does not exist."""
    store, at = _at(path)
    match store.get_file_info(at).type:
        case fs.FileType.Directory:
            store.delete_dir(at)
        case fs.FileType.File:
            store.delete_file(at)


def rename(source: str, target: str) -> None:
    """Rename a file or a directory. ``target`` must not exist. On object stores this is not atomic."""
    store, at = _at(source)
    _, to = _at(target)
    if isinstance(store, _RENAME) or store.get_file_info(at).type == fs.FileType.File:
        store.move(at, to)
    else:
        fs.copy_files(at, to, source_filesystem=store, destination_filesystem=store)
        store.delete_dir(at)


def names(path: str) -> list[str]:
    """Return the sorted names of a directory's entries."""
    store, at = _at(path)
    return sorted(entry.base_name for entry in store.get_file_info(fs.FileSelector(at)))


def make_directory(path: str) -> None:
    """Create a directory and its parents."""
    store, at = _at(path)
    store.create_dir(at, recursive=True)


def write(path: str, text: str) -> None:
    """Write a UTF-8 file, and the directories above it. An existing file is replaced."""
    store, at = _at(path)
    store.create_dir(at.rpartition("/")[0], recursive=True)
    with store.open_output_stream(at) as stream:
        stream.write(text.encode())


def _at(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path, and the path in it."""
    path = absolute(path)
    if path.startswith("/"):
        return fs.LocalFileSystem(), path.rstrip("/") or "/"
    for scheme, of_arrow in _SCHEMES.items():
        if path.startswith(scheme):
            path = of_arrow + path.removeprefix(scheme)
    try:
        store, at = fs.FileSystem.from_uri(path)
    except (OSError, ValueError) as error:
        words = str(error).strip().splitlines()[-1]
        raise PipelineError(
            f"{path}: Arrow, which looks for results and lakes there, cannot reach it: {words}"
        ) from error
    return store, at.rstrip("/")


_MARK: Final = "_kafka_quota_pipeline"
_BY: Final = "written by kafka-quota-pipeline; replaced as a whole when it runs again\n"


@contextmanager
def staged_directory(out: str) -> Iterator[str]:
    """Yield a new directory that becomes ``out`` if the block succeeds, and is deleted otherwise.

    Old results are set aside until the new results are in their place. If the process is killed in between, the next
    run restores them. On object stores the replacement is not atomic. Raises UsageError if ``out`` has files that this
    program did not write.
    """
    out = out.rstrip("/") or "/"
    parent, _, name = out.rpartition("/")
    directory = f"{parent}/" if parent or out.startswith("/") else ""
    staging, previous = f"{directory}.{name}.staging", f"{directory}.{name}.previous"
    if exists(previous) and not exists(out):
        rename(previous, out)
    if exists(out) and not exists(f"{out}/{_MARK}") and not is_empty(out):
        raise UsageError(f"--out {out}: exists and was not written by this program; name a new directory")
    delete(staging)
    make_directory(staging)
    try:
        yield staging
        write(f"{staging}/{_MARK}", _BY)
        _replace(out, by=staging, aside=previous)
    finally:
        delete(staging)


def _replace(out: str, *, by: str, aside: str) -> None:
    delete(aside)
    is_there = exists(out)
    if is_there:
        rename(out, aside)
    try:
        rename(by, out)
    except BaseException:
        if is_there:
            rename(aside, out)
        raise
    delete(aside)
