"""Reads, writes and renames files through Hadoop, in the same way on a local disk, HDFS and object stores."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class Files:
    """Gives access to the file systems that a Spark session can use. A path is a string with or without a scheme."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001  (PySpark has no public API for it)
        self._conf: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def exists(self, path: str) -> bool:
        """Return whether a file or a directory exists."""
        fs, at = self._at(path)
        return bool(fs.exists(at))

    def is_empty(self, path: str) -> bool:
        """Return whether a directory has no entries."""
        fs, at = self._at(path)
        return len(fs.listStatus(at)) == 0

    def is_blank(self, path: str) -> bool:
        """Return whether a file has 0 bytes."""
        fs, at = self._at(path)
        return int(fs.getFileStatus(at).getLen()) == 0

    def absolute(self, path: str) -> str:
        """Return the absolute form of a path, with its URI scheme."""
        fs, at = self._at(path)
        return str(fs.makeQualified(at).toString())

    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of a file in chunks of ``size`` bytes."""
        fs, at = self._at(path)
        stream = fs.open(at)
        try:
            while chunk := bytes(stream.readNBytes(size)):
                yield chunk
        finally:
            stream.close()

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its contents. Do nothing if ``path`` does not exist."""
        fs, at = self._at(path)
        fs.delete(at, True)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a directory atomically. ``target`` must not exist."""
        fs, at = self._at(source)
        if not fs.rename(at, self._jvm.org.apache.hadoop.fs.Path(target)):
            raise OSError(f"{source} could not be renamed to {target}")

    def names(self, path: str) -> list[str]:
        """Return the sorted names of a directory's entries."""
        fs, at = self._at(path)
        return sorted(status.getPath().getName() for status in fs.listStatus(at))

    def read(self, path: str) -> str:
        """Return the text of a small UTF-8 file."""
        fs, at = self._at(path)
        stream = fs.open(at)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents."""
        fs, at = self._at(path)
        fs.mkdirs(at)

    def make_private_directory(self, path: str) -> None:
        """Create a directory with mode 700."""
        fs, at = self._at(path)
        fs.mkdirs(at, self._jvm.org.apache.hadoop.fs.permission.FsPermission("700"))

    def write(self, path: str, text: str) -> None:
        """Write a UTF-8 file. An existing file is replaced."""
        fs, at = self._at(path)
        stream = fs.create(at, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        # On a local disk, Hadoop also writes a checksum file, which would only be in the way.
        parent, _, name = path.rpartition("/")
        self.delete(f"{parent}/.{name}.crc" if parent else f".{name}.crc")

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        return at.getFileSystem(self._conf), at
