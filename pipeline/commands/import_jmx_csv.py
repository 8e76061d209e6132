"""``kafka-quota-pipeline import jmx-csv`` makes a usage log of what Kafka's JmxTool printed."""

import argparse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from kafka_quota_proxy.pipeline.client_metrics import Measured
from kafka_quota_proxy.pipeline.commands.importing import NO_METRICS, opened, say_brokers, say_summary
from kafka_quota_proxy.pipeline.errors import InputError, PipelineError, UsageError
from kafka_quota_proxy.pipeline.imported_log import imported_log
from kafka_quota_proxy.pipeline.jmx_csv import FormatError, Reading, readings
from kafka_quota_proxy.pipeline.rate_samples import SampledBucket, SampleIntegrator, Series, node_ids

_SAMPLES_AT_ONCE: Final = 100_000
_LEAST_READINGS: Final = 2


def execute(args: argparse.Namespace) -> int:
    """Write the usage log, print its sums, and return the exit status."""
    given = {Path(name).name: node_id for name, node_id in args.broker}
    names = [Path(path).name for path in args.files]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise InputError([f"{name}: two files have this name, which is the proxy of their records" for name in doubled])
    if unknown := sorted(given.keys() - set(names)):
        raise UsageError(f"--broker {unknown[0]}: is none of the files")
    brokers = node_ids(names, given)
    integrator = SampleIntegrator(0)
    with imported_log(args.out) as log:
        for path, name in zip(args.files, names, strict=True):
            times = [reading.at_ms for reading in _readings(path) if reading.values]
            if len(times) < _LEAST_READINGS:
                raise PipelineError(f"{path}: {NO_METRICS}" if not times else f"{path}: has only one reading")
            integrator.usual_ms = round(median(later - earlier for earlier, later in pairwise(times)))
            for batch in _batches(path, name):
                log.add(integrator.take(batch), brokers)
        if not log.records:
            raise PipelineError("none of the clients sent or fetched anything in this time")
    say_brokers({name: brokers[name] for name in names}, set(names) - given.keys())
    say_summary(log, integrator, args.out)
    return 0


def _readings(path: str) -> Iterator[Reading]:
    with opened(path) as file:
        try:
            yield from readings(file)
        except FormatError as error:
            raise InputError([f"{path}:{error}"]) from error


def _batches(path: str, instance: str) -> Iterator[list[Series]]:
    """Yield the readings of a file as series of a bounded number of samples."""
    found: dict[tuple[SampledBucket, Measured], list[tuple[int, float]]] = {}
    count = 0
    for reading in _readings(path):
        for metric, value in reading.values:
            bucket = SampledBucket(instance, metric.measured.kind, metric.user, metric.client_id)
            found.setdefault((bucket, metric.measured), []).append((reading.at_ms, value))
        count += len(reading.values)
        if count >= _SAMPLES_AT_ONCE:
            yield [Series(*key, samples) for key, samples in found.items()]
            found, count = {}, 0
    yield [Series(*key, samples) for key, samples in found.items()]
