"""Reads the lines of a usage log from a Kafka topic, with Spark's connector.

Also reads the file of client properties that ``--kafka-config`` names. It has the format of the option
``--command-config`` of Kafka's tools. Spark reads topics with Kafka's own client, which accepts all of its
properties.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import javaproperties
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.errors import InputError, UsageError

# The settings that --usage gives, or that the program itself sets.
_OURS: Final = frozenset(
    {
        "bootstrap.servers", "group.id", "key.deserializer", "value.deserializer", "key.serializer", "value.serializer",
        "enable.auto.commit", "auto.offset.reset", "interceptor.classes", "transactional.id", "acks",
    }
)  # fmt: skip


def kafka_options(path: str) -> dict[str, str]:
    """Return the properties in a file as options of Spark's Kafka source. The values may be passwords.

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


# Spark releases it with each of its own versions.
_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
# Spark asks three times for the end of a topic. With Kafka's defaults each takes a silent minute.
_PATIENCE: Final = {"kafka.request.timeout.ms": "15000", "kafka.default.api.timeout.ms": "15000"}
_NO_OPTIONS: Final[Mapping[str, str]] = {}
_KAFKA_ERROR: Final = re.compile(r"org\.apache\.kafka\.common\.(?:\w+\.)?(\w+(?:Exception|Error)):? ?([^\n]*)")
_KAFKA_WORDS: Final = {
    "UnknownTopicOrPartitionException": "there is no such topic",
    "TimeoutException": "no broker answers",
    "SaslAuthenticationException": "the login was refused",
    "SslAuthenticationException": "the TLS handshake failed",
    "TopicAuthorizationException": "this user may not read it",
    "GroupAuthorizationException": "this user may not read it",
}


def topic(
    spark: SparkSession,
    place: str,
    *,
    kafka: Mapping[str, str] = _NO_OPTIONS,
) -> DataFrame:
    """Return the lines in the topic ``kafka://HOST:PORT/TOPIC``.

    The place of a line is its partition and offset. Raises UsageError if the address is wrong, or if Spark lacks its
    Kafka connector.
    """
    servers, name = kafka_place(place)
    options = {**_PATIENCE, **kafka, "kafka.bootstrap.servers": servers, "subscribe": name}
    options["startingOffsets"] = "earliest"
    try:
        rows = spark.read.format("kafka").options(**options).load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower():
            raise
        raise UsageError(
            "Spark needs its Kafka connector, which is not among its own jars: add "
            f"--conf spark.jars.packages={_CONNECTOR}:{spark.version}, "
            "or without a network --conf spark.jars=FILE,FILE…"
        ) from error
    return rows.select(
        F.col("value").cast("string").alias("value"),
        F.concat_ws("-", "topic", "partition").alias("source"),
        F.col("partition").cast("long").alias("block"),
        F.col("offset").alias("position"),
    )


def kafka_fault(stack: str) -> str | None:
    """Return a message about the innermost Kafka error in a Java stack trace, or None if there is none."""
    found = _KAFKA_ERROR.findall(stack)
    if not found:
        return None
    name, said = found[-1]
    return f"{_KAFKA_WORDS.get(name, name)}: {said.strip() or name}"


def kafka_place(place: str) -> tuple[str, str]:
    """Split ``kafka://HOST:PORT/TOPIC`` into the servers (separated by commas) and the topic.

    Raises UsageError if ``place``, the value of ``--usage``, is not such an address.
    """
    parts = urlsplit(place)
    name = parts.path.strip("/")
    if parts.scheme != "kafka" or not (parts.netloc and name):
        raise UsageError(f"--usage {place}: write kafka://HOST:PORT/TOPIC, with a comma between several HOST:PORT")
    return parts.netloc, name
