"""Manages the checkpoint directory of a stream: its id and settings, Spark's own checkpoint, and bad lines.

::

    CHECKPOINT/job.json                            the id of the job, and the settings that have to stay the same
    CHECKPOINT/spark/                              Spark's read position, watermark and open windows
    CHECKPOINT/quarantine/batch-0000000017.jsonl   source, line (for a topic the offset, for a file null), fault, text

A stream may run for years on a log with bad lines, so only some bad lines of the last batches are kept. They are taken
from Spark's progress report on their batch, which saves a second read of the log.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import UsageError

_FILE: Final = "job.json"
# Texts are cut at 4,000 characters. So at most 40 MB are kept, or four times as much in non-Latin scripts.
LINES: Final = 100
BATCHES: Final = 100


def spark_part(checkpoint: str) -> str:
    """Return the path of Spark's own checkpoint, which is inside the checkpoint directory."""
    return f"{checkpoint.rstrip('/')}/spark"


def job_of(checkpoint: str, settings: Mapping[str, str]) -> str:
    """Return the id of the job to which a checkpoint directory belongs. A job is one stream, with all its restarts.

    If the directory does not exist, it is created with a new id. Raises UsageError if the job has other settings than
    ``settings``, which must stay the same as long as the job exists, or if the directory is not a checkpoint.
    """
    root = checkpoint.rstrip("/")
    path = f"{root}/{_FILE}"
    if not file_system.exists(path):
        if file_system.exists(root) and set(file_system.names(root)) - {f"{_FILE}.tmp"}:
            raise UsageError(f"--checkpoint {checkpoint}: exists and has no {_FILE}; name a new directory")
        # The file is renamed, so that it appears only when it is complete.
        file_system.write(f"{path}.tmp", json.dumps({"id": uuid.uuid4().hex[:12], "settings": dict(settings)}) + "\n")
        file_system.rename(f"{path}.tmp", path)
    job = json.loads(file_system.read(path))
    for name, value in settings.items():
        begun_with = job["settings"].get(name)
        if begun_with != value:
            raise UsageError(
                f"--checkpoint {checkpoint}: belongs to {name} {begun_with}; "
                f"for {name} {value} name a new directory, which reports all alerts again"
            )
    return str(job["id"])


def bad_lines() -> Column:
    """Return a Spark aggregation over the rows of ``parsing.parsed`` that collects lines which could not be parsed.

    Its value is the last ``LINES`` (a number) of these lines as JSON, or null if there are none.
    """
    place = F.struct("source", "position", "text")
    line = F.to_json(F.struct("source", F.col("position").alias("line"), "fault", "text"))
    return F.max_by(line, F.when(F.col("fault").isNotNull(), place), LINES)


class Quarantine:
    """Keeps lines of the usage log that a stream could not parse, in a directory with a file for each batch.

    Only the files of the last batches with such lines are kept. The directory is created together with its first file.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory.rstrip("/")

    def keep(self, batch: int, lines: Iterable[str] | None) -> None:
        """Write the bad lines of a batch, and delete the files of old batches."""
        if lines is None:
            return
        name = f"batch-{batch:010}.jsonl"
        # The file is hidden until it is complete. A batch that is repeated after a crash writes it again.
        hidden, target = f"{self.directory}/.{name}", f"{self.directory}/{name}"
        file_system.write(hidden, "".join(f"{line}\n" for line in sorted(lines)))
        file_system.delete(target)
        file_system.rename(hidden, target)
        kept = [name for name in file_system.names(self.directory) if name.startswith("batch-")]
        for old in kept[:-BATCHES]:
            file_system.delete(f"{self.directory}/{old}")
