"""The checkpoint of a stream: Spark's own, and the job's id and settings.

::

    CHECKPOINT/job.json   the job's id, and the settings that have to stay as they are
    CHECKPOINT/spark/     Spark's: the read position, the watermark, open windows
"""

import json
import uuid
from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.files import Files

_FILE: Final = "job.json"


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
