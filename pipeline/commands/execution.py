"""Provides what all commands share: starting Spark, writing results, reading the usage log, and progress on stderr."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.kafka_source import kafka_options
from kafka_quota_proxy.pipeline.lake import is_lake, settings, stored
from kafka_quota_proxy.pipeline.log_files import log_root
from kafka_quota_proxy.pipeline.session import fit, fitted, session
from kafka_quota_proxy.pipeline.time_span import TimeSpan
from kafka_quota_proxy.pipeline.usage_reader import Usage, read, stored_usage
from kafka_quota_proxy.pipeline.writing import Output, passing, staged

# The largest log, as JSON Lines, of which a command needs seconds. Compressed files have these factors.
QUICK_BYTES: Final = 64 << 20
_COMPRESSED: Final = {".parquet": 25, ".gz": 10}


@contextmanager
def running(args: argparse.Namespace) -> Iterator[tuple[SparkSession, Output]]:
    """Yield the Spark session and the ``Output`` to which a command writes its results.

    If ``--out`` is given and the command succeeds, the results become the directory ``--out`` at the end of the block.
    Otherwise they are deleted.
    """
    if "usage" in args and args.out is not None:
        check_apart(args.usage, "--out", args.out)
    # A place that cannot be reached is an error before Spark has started.
    has_lake = args.command == "ingest" or ("usage" in args and is_lake(args.usage))
    spark = session(
        master=args.master,
        conf=settings(dict(args.conf)) if has_lake else dict(args.conf),
        is_short_lived="usage" in args and is_quickly_read(args.usage),
    )
    place = passing() if args.out is None else staged(args.out)
    with fitted(spark), place as output:
        yield spark, output


def is_quickly_read(usage: str) -> bool:
    """Return whether a usage log is on this machine and so small that a command ends within seconds."""
    total = 0
    for name, size in file_system.local_sizes(usage):
        total += size * next((factor for ending, factor in _COMPRESSED.items() if name.lower().endswith(ending)), 1)
        if total > QUICK_BYTES:
            return False
    return total > 0


def usage_of(args: argparse.Namespace, spark: SparkSession, output: Output, *, span: TimeSpan | None = None) -> Usage:
    """Read the usage log that ``--usage`` names, and report on stderr what was left out.

    Only records that start within ``span`` are returned, which is ``span_of(args)`` by default.
    """
    say(f"reading {args.usage}")
    span = span_of(args) if span is None else span
    if is_lake(args.usage):
        # A lake has no bad lines and no duplicates.
        usage = stored_usage(stored(spark, args.usage, span, args.cluster))
        fit(spark, usage.count)
        for words in usage.words():
            say(words)
        return usage
    check_cluster(args)
    usage = read(spark, args.usage, output, kafka=kafka_options_of(args), cluster=args.cluster)
    for words in usage.words():
        say(words)
    if args.out is None and (usage.bad_lines or usage.broken_files):
        say("quarantine/ is kept with --out DIR")
    return usage if span.is_all else replace(usage, records=usage.records.where(span.starts_within()))


def span_of(args: argparse.Namespace) -> TimeSpan:
    """Return the time span that ``--from`` and ``--until`` name. Raises UsageError if it is empty."""
    span = TimeSpan.local(args.begin, args.end, args.timezone)
    if span.from_ms is not None and span.until_ms is not None and span.until_ms <= span.from_ms:
        raise UsageError(f"--until {args.end.isoformat()}: is not after --from {args.begin.isoformat()}")
    return span


def check_apart(usage: str, argument: str, place: str) -> None:
    """Check that a command does not write into the usage log, where its results would be read as a part of the log.

    ``argument`` is the command-line option that names the directory ``place``. Raises UsageError if this directory is
    in the log ``usage``.
    """
    if usage.startswith("kafka://"):
        return
    root, at = log_root(usage).rstrip("/"), file_system.absolute(place)
    if f"{at}/".startswith(f"{root}/"):
        raise UsageError(f"{argument} {place}: is inside --usage {usage}, the log itself; use another directory")


def check_cluster(args: argparse.Namespace) -> None:
    """Check that ``--cluster`` can be told from ``--usage``, which is no lake. Raises UsageError if it cannot."""
    if args.cluster is not None and args.usage.startswith("kafka://"):
        raise UsageError(
            f"--cluster {args.cluster}: the records of a topic do not name their cluster; name the topic of this "
            "cluster, or bring each topic into a lake with: ingest --usage kafka://… --lake DIR --cluster NAME"
        )


def kafka_options_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the properties in the file that ``--kafka-config`` names as options of Spark's Kafka source."""
    return kafka_options(args.kafka_config) if args.kafka_config else {}


def say(words: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
