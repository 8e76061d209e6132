"""Keeps bad lines of a stream with their places: some of each batch, for the last batches only.

A stream may run for years on a log of bad lines, so there is a bound. The bad lines of a batch come with its progress,
so that each line is read once. For a log that ends, ``usage_reader`` keeps all bad lines.

::

    DIR/batch-0000000017.jsonl   source, line (of a topic the offset; unknown for a file), fault, text
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.files import Files

# With texts cut at 4,000 characters at most 40 MB are kept, or four times as much in other alphabets.
LINES: Final = 100
BATCHES: Final = 100


def bad_lines() -> Column:
    """Return an aggregate over rows of ``parsed``: the rows with a fault as JSON, null if there are none.

    Of more than ``LINES`` it keeps the last by their place.
    """
    place = F.struct("source", "position", "text")
    line = F.to_json(F.struct("source", F.col("position").alias("line"), "fault", "text"))
    return F.max_by(line, F.when(F.col("fault").isNotNull(), place), LINES)


class Quarantine:
    """A directory of bad lines, a file for each batch that had some. It is created with the first file."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.directory = directory.rstrip("/")

    def keep(self, batch: int, lines: Iterable[str] | None) -> None:
        """Write the bad lines of a batch, and delete files of old batches."""
        if lines is None:
            return
        self._files.make_directory(self.directory)
        name = f"batch-{batch:010}.jsonl"
        # Hidden until it is whole: a batch that is repeated after a crash writes it again.
        hidden, target = f"{self.directory}/.{name}", f"{self.directory}/{name}"
        self._files.write(hidden, "".join(f"{line}\n" for line in sorted(lines)))
        self._files.delete(target)
        self._files.rename(hidden, target)
        kept = [name for name in self._files.names(self.directory) if name.startswith("batch-")]
        for old in kept[:-BATCHES]:
            self._files.delete(f"{self.directory}/{old}")
