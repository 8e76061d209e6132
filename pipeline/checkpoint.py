"""What a stream remembers beside Spark's own checkpoint: which job it is, and with what it was begun.

::

    CHECKPOINT/job.json   the job's id, and the settings that have to stay as they are
    CHECKPOINT/spark/     Spark's: how far it has read, the watermark, windows that are still open
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
    """Return the id of the job that the checkpoint is of; it is made where there is none.

    Args:
        files: where it lies.
        checkpoint: the directory.
        settings: by the argument's name, what must not change once the job has begun.

    Raises:
        UsageError: the job was begun with others, or the directory is somebody else's.
    """
    root = checkpoint.rstrip("/")
    path = f"{root}/{_FILE}"
    if not files.exists(path):
        if files.exists(root) and set(files.names(root)) - {f"{_FILE}.tmp", f".{_FILE}.tmp.crc"}:
            raise UsageError(f"--checkpoint {checkpoint}: is there and has no {_FILE}; name a new directory")
        files.make_directory(root)
        # Appears as a whole: half of an id would be another one.
        files.write(f"{path}.tmp", json.dumps({"id": uuid.uuid4().hex[:12], "settings": dict(settings)}) + "\n")
        files.rename(f"{path}.tmp", path)
    job = json.loads(files.read(path))
    for name, value in settings.items():
        begun_with = job["settings"].get(name)
        if begun_with != value:
            raise UsageError(
                f"--checkpoint {checkpoint}: was begun with {name} {begun_with}, and goes on only so; "
                f"for {name} {value} name a new directory, from which all alerts are found anew"
            )
    return str(job["id"])
