"""Bad lines of a stream, kept with their place: some of each batch, and of the last batches alone.

A stream may run for years, and whoever writes to its log may write nothing but bad lines: so there is a bound. What a
batch had comes with its progress, so that a line is read and looked at once. ``reading`` keeps all of a log that ends.

::

    DIR/batch-0000000017.jsonl   source, line (of a topic the offset; not known of a file), fault, text
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.files import Files

# A line's text is cut at 4,000 characters: all that is kept is 40 MB, or four times as much in other alphabets.
LINES: Final = 100
BATCHES: Final = 100


def bad_lines() -> Column:
    """Return an aggregate over rows of ``parsed``: those with a fault as JSON, null where there is none.

    Of more than ``LINES`` the last by their place.
    """
    place = F.struct("source", "position", "text")
    line = F.to_json(F.struct("source", F.col("position").alias("line"), "fault", "text"))
    return F.max_by(line, F.when(F.col("fault").isNotNull(), place), LINES)


class Quarantine:
    """A directory of bad lines, a file for each batch that had some.

    Args:
        files: where it lies.
        directory: made when there is something to put in.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.directory = directory.rstrip("/")

    def keep(self, batch: int, lines: Iterable[str] | None) -> None:
        """Write what ``bad_lines`` found in a batch; files of old batches go."""
        if lines is None:
            return
        self._files.make_directory(self.directory)
        name = f"batch-{batch:010}.jsonl"
        # Hidden until it is whole: a batch that is run again after a crash writes it again.
        beside, target = f"{self.directory}/.{name}", f"{self.directory}/{name}"
        self._files.write(beside, "".join(f"{line}\n" for line in sorted(lines)))
        self._files.delete(target)
        self._files.rename(beside, target)
        kept = [name for name in self._files.names(self.directory) if name.startswith("batch-")]
        for old in kept[:-BATCHES]:
            self._files.delete(f"{self.directory}/{old}")
