"""The checkpoint of a stream: Spark's own, the job's id and settings, and bad lines.

::

    CHECKPOINT/job.json                            the job's id, and the settings that have to stay as they are
    CHECKPOINT/spark/                              Spark's: the read position, the watermark, open windows
    CHECKPOINT/quarantine/batch-0000000017.jsonl   source, line (a topic: the offset; a file: null), fault, text

A stream may run for years on a log of bad lines, so only some of each batch are kept, for the last batches. They come
with the progress of their batch, so that each line is read once. For a log that ends, ``usage_reader`` keeps all.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.files import Files

_FILE: Final = "job.json"
# With texts cut at 4,000 characters at most 40 MB are kept, or four times as much in other alphabets.
LINES: Final = 100
BATCHES: Final = 100


def spark_part(checkpoint: str) -> str:
    """Return Spark's part of the checkpoint."""
    return f"{checkpoint.rstrip('/')}/spark"


def job_of(files: Files, checkpoint: str, settings: Mapping[str, str]) -> str:
    """Return the id of the checkpoint's job; a new checkpoint is created.

    ``settings`` must not change during the job; they have the names of arguments.

    Raises:
        UsageError: the job has other settings, or the directory is no checkpoint.
    """
    root = checkpoint.rstrip("/")
    path = f"{root}/{_FILE}"
    if not files.exists(path):
        if files.exists(root) and set(files.names(root)) - {f"{_FILE}.tmp", f".{_FILE}.tmp.crc"}:
            raise UsageError(f"--checkpoint {checkpoint}: exists and has no {_FILE}; name a new directory")
        files.make_directory(root)
        # Renamed, so that it appears as a whole.
        files.write(f"{path}.tmp", json.dumps({"id": uuid.uuid4().hex[:12], "settings": dict(settings)}) + "\n")
        files.rename(f"{path}.tmp", path)
    job = json.loads(files.read(path))
    for name, value in settings.items():
        begun_with = job["settings"].get(name)
        if begun_with != value:
            raise UsageError(
                f"--checkpoint {checkpoint}: belongs to {name} {begun_with}; "
                f"for {name} {value} name a new directory, which reports all alerts again"
            )
    return str(job["id"])


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
