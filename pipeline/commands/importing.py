"""Provides what the sources of ``kafka-quota-pipeline import`` share: opening files, brokers, and the summary."""

import gzip
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TextIO

from kafka_quota_proxy.pipeline.errors import InputError, UsageError
from kafka_quota_proxy.pipeline.imported_log import ImportedLog
from kafka_quota_proxy.pipeline.rate_samples import SampleIntegrator
from kafka_quota_proxy.pipeline.report import duration, size

_SHOWN_BROKERS: Final = 50
NO_METRICS: Final = (
    "has no client metrics of Kafka. A broker exports them only while there is a quota of that kind, for any client, "
    "and JMX rules must let them pass"
)


def say(words: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


@contextmanager
def opened(path: str) -> Iterator[TextIO]:
    """Open a text file, also one that ends in .gz. Raises UsageError if that fails, and InputError if it is no text."""
    try:
        file = gzip.open(path, "rt", encoding="utf-8") if path.lower().endswith(".gz") else open(path, encoding="utf-8")  # noqa: PTH123, SIM115
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    with file:
        try:
            yield file
        except UnicodeDecodeError as error:
            raise InputError([f"{path}: is not text; unpack it, or compress it as .gz"]) from error


def say_brokers(brokers: Mapping[str, int], numbered: Iterable[str]) -> None:
    """Say which broker is which. ``numbered`` are the instances whose node id is only a number in their order."""
    guessed = set(numbered)
    for instance, node_id in sorted(brokers.items(), key=lambda one: (one[1], one[0]))[:_SHOWN_BROKERS]:
        words = f" (a number in the order of names; --broker {instance}=ID sets the node id)"
        say(f"broker {node_id} is {instance}{words if instance in guessed else ''}")
    if len(brokers) > _SHOWN_BROKERS:
        say(f"and {len(brokers) - _SHOWN_BROKERS} more")


def say_summary(log: ImportedLog, integrator: SampleIntegrator, out: str) -> None:
    """Write what was imported to stdout, and what is missing to stderr."""
    if integrator.gaps:
        say(f"{integrator.gaps:,} times a client had no sample for longer than usual; the log has no records there")
    if integrator.overlapping:
        say(f"{integrator.overlapping:,} samples are not newer than the ones before them and were left out")
    sums = [f"{size(amount)} of {kind}" for kind, amount in sorted(log.amounts.items()) if kind != "request"]
    distance = duration(integrator.usual_ms)
    sys.stdout.write(f"{', '.join([f'{log.records:,} records of {distance}', *sums])}\n{out}\n")


def day_and_time(time_ms: int) -> str:
    """Return a time as text, in UTC."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
