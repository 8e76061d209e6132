"""Hadoop's file systems, as far as results need them: the same on a local disk, HDFS and object stores."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class Files:
    """Paths are texts, with a scheme or without."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001  (PySpark has no public way to them)
        self._conf: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        fs, at = self._at(path)
        return bool(fs.exists(at))

    def is_empty(self, path: str) -> bool:
        """Whether a directory has nothing in it."""
        fs, at = self._at(path)
        return len(fs.listStatus(at)) == 0

    def is_blank(self, path: str) -> bool:
        """Whether a file has no byte."""
        fs, at = self._at(path)
        return int(fs.getFileStatus(at).getLen()) == 0

    def absolute(self, path: str) -> str:
        """Return a path with its scheme, from the root."""
        fs, at = self._at(path)
        return str(fs.makeQualified(at).toString())

    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of a file, so many at a time."""
        fs, at = self._at(path)
        stream = fs.open(at)
        try:
            while chunk := bytes(stream.readNBytes(size)):
                yield chunk
        finally:
            stream.close()

    def delete(self, path: str) -> None:
        """Delete a file or a directory with all that is in it; nothing where there is none."""
        fs, at = self._at(path)
        fs.delete(at, True)

    def rename(self, source: str, target: str) -> None:
        """Move a file or a directory in one step; ``target`` must not be there."""
        fs, at = self._at(source)
        if not fs.rename(at, self._jvm.org.apache.hadoop.fs.Path(target)):
            raise OSError(f"{source} could not be renamed to {target}")

    def names(self, path: str) -> list[str]:
        """Return the names of what is in a directory, in order."""
        fs, at = self._at(path)
        return sorted(status.getPath().getName() for status in fs.listStatus(at))

    def read(self, path: str) -> str:
        """Return a small file of UTF-8."""
        fs, at = self._at(path)
        stream = fs.open(at)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it."""
        fs, at = self._at(path)
        fs.mkdirs(at)

    def make_private_directory(self, path: str) -> None:
        """Make a directory that nobody else may look into."""
        fs, at = self._at(path)
        fs.mkdirs(at, self._jvm.org.apache.hadoop.fs.permission.FsPermission("700"))

    def write(self, path: str, text: str) -> None:
        """Write a file of UTF-8; one that is there is replaced."""
        fs, at = self._at(path)
        stream = fs.create(at, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        # Beside each file of a local disk Hadoop puts one with its checksum.
        parent, _, name = path.rpartition("/")
        self.delete(f"{parent}/.{name}.crc" if parent else f".{name}.crc")

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        return at.getFileSystem(self._conf), at
