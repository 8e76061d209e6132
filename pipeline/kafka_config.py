"""Reads a file of Kafka client properties, which ``--kafka-config`` names and which applies to ``kafka://`` addresses.

The file has the same format as for the option ``--command-config`` of Kafka's tools. Spark reads and writes topics with
Kafka's own client, which accepts all of its properties.
"""

from pathlib import Path
from typing import Final

import javaproperties

from kafka_quota_proxy.pipeline.errors import InputError

# The settings that --usage and --to give, or that the program itself sets.
_OURS: Final = frozenset(
    {
        "bootstrap.servers", "group.id", "key.deserializer", "value.deserializer", "key.serializer", "value.serializer",
        "enable.auto.commit", "auto.offset.reset", "interceptor.classes", "transactional.id", "acks",
    }
)  # fmt: skip


def kafka_options(path: str) -> dict[str, str]:
    """Return the properties in a file as options of Spark's Kafka source and sink. The values may be passwords.

    Raises InputError if the file is unreadable or faulty, or if it contains a property that the program sets itself.
    """
    try:
        properties = javaproperties.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise InputError([f"{path}: byte {error.object[error.start]:#04x} is not UTF-8"]) from error
    except javaproperties.InvalidUEscapeError as error:
        raise InputError([f"{path}: {error}"]) from error
    if faults := [f"{path}: {key}: is set by this program; remove it" for key in sorted(_OURS & properties.keys())]:
        raise InputError(faults)
    return {f"kafka.{key}": value for key, value in properties.items()}
