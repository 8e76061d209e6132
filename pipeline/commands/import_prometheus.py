"""``kafka-quota-pipeline import prometheus`` makes a usage log of the client metrics that Prometheus has."""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafka_quota_proxy.pipeline.client_metrics import BROKER_LABELS, THROTTLE, Measured
from kafka_quota_proxy.pipeline.commands.importing import (
    NO_METRICS,
    day_and_time,
    opened,
    say,
    say_brokers,
    say_summary,
)
from kafka_quota_proxy.pipeline.errors import InputError, PipelineError, UsageError
from kafka_quota_proxy.pipeline.imported_log import ImportedLog, imported_log
from kafka_quota_proxy.pipeline.prometheus_answer import Answer, AnswerError, answer_of
from kafka_quota_proxy.pipeline.prometheus_api import Prometheus
from kafka_quota_proxy.pipeline.rate_samples import SampleIntegrator, throttle_times
from kafka_quota_proxy.pipeline.report import duration
from kafka_quota_proxy.pipeline.scraped_brokers import ScrapedBrokers, ScrapedSeries

_STEP_MS: Final = 60_000
_SAY_EVERY_S: Final = 5.0


def execute(args: argparse.Namespace) -> int:
    """Write the usage log, print its sums, and return the exit status."""
    integrator = SampleIntegrator(args.step or _STEP_MS)
    with imported_log(args.out) as log:
        if args.url:
            brokers = _from_server(args, integrator, log)
        elif args.from_ms is not None or args.until_ms is not None:
            raise UsageError("--from and --until: are for --url; a file is imported as a whole")
        else:
            brokers = _from_files(args, integrator, log)
        if not log.records:
            raise PipelineError("none of the clients sent or fetched anything in this time")
    for name in sorted(dict(args.broker).keys() - brokers.node_ids.keys() - brokers.telling.keys()):
        say(f"--broker {name}: there is no such instance")
    say_brokers(brokers.node_ids, brokers.numbered)
    for instance, telling in sorted(brokers.telling.items()):
        if labels := sorted(telling.difference(BROKER_LABELS)):
            words = " ".join(f"--replica-label {label}" for label in labels)
            say(
                f"{instance}: series of one client differ in {', '.join(labels)}, so they are counted as several "
                f"brokers; if they are one broker, measured twice, add {words}"
            )
    say_summary(log, integrator, args.out)
    return 0


def _from_server(args: argparse.Namespace, integrator: SampleIntegrator, log: ImportedLog) -> ScrapedBrokers:
    """Import from a server. Return the brokers that it knows."""
    own_names = dict(args.metric)
    step_ms = args.step or _STEP_MS
    from_ms, until_ms = args.from_ms, args.until_ms or int(time.time() * 1_000)
    if from_ms is None or until_ms < from_ms + step_ms:
        raise UsageError("--from: is needed with --url, and --until must be later by one --step at least")
    server = Prometheus(args.url, token=_token(args.bearer_token_file))
    names = sorted({*server.metric_names(args.match, from_ms, until_ms), *own_names})
    instances = server.instances(names, args.match, from_ms, until_ms)
    if not names:
        raise PipelineError(f"{server.url}: {NO_METRICS} (--metric takes other names)")
    say(f"reading {', '.join(names)} of {len(instances)} {'instance' if len(instances) == 1 else 'instances'}")
    brokers = ScrapedBrokers(dict(args.broker), instances=instances, replica_labels=args.replica_label)
    said_s = time.monotonic()
    times = {"from_ms": from_ms, "until_ms": until_ms, "step_ms": step_ms}
    for piece in server.pieces(names, args.match, own_names, **times):
        every = [one for answer in piece.answers for one in answer.series]
        brokers.learn(every)
        brokers.number()
        log.add(integrator.take(brokers.series(every)), brokers.node_ids)
        if time.monotonic() - said_s > _SAY_EVERY_S or piece.until_ms + step_ms > until_ms:
            said_s = time.monotonic()
            say(f"  up to {day_and_time(piece.until_ms)} UTC: {log.records:,} records")
    if integrator.usual_ms > 1.5 * step_ms:
        say(f"the samples are {duration(integrator.usual_ms)} apart, farther than --step, and so are the records")
    return brokers


def _from_files(args: argparse.Namespace, integrator: SampleIntegrator, log: ImportedLog) -> ScrapedBrokers:
    """Import from saved answers. Return the brokers that they contain."""
    own_names = dict(args.metric)
    brokers = ScrapedBrokers(dict(args.broker), replica_labels=args.replica_label)
    # The throttle times may be in another answer than the rates, and are few.
    throttled: list[ScrapedSeries] = []
    for _, answer in _answers(args.file, own_names):
        brokers.learn(answer.series)
        throttled += (
            one._replace(samples=[sample for sample in one.samples if sample[1] > 0])
            for one in answer.series
            if one.metric.measured.quantity == THROTTLE
        )
    brokers.number()
    if not brokers.node_ids:
        raise PipelineError(f"{', '.join(args.file)}: {NO_METRICS} (--metric takes other names)")
    waits = throttle_times(brokers.series(throttled))
    for _, answer in _answers(args.file, own_names):
        log.add(integrator.take(brokers.series(answer.series), waits), brokers.node_ids)
    return brokers


def _answers(paths: list[str], own_names: dict[str, Measured]) -> Iterator[tuple[str, Answer]]:
    for path in paths:
        for place, document in _documents(path):
            try:
                yield place, answer_of(document, own_names)
            except AnswerError as error:
                raise InputError([f"{place}: {error}"]) from error


def _documents(path: str) -> Iterator[tuple[str, Any]]:
    """Yield the JSON documents of a file, either one in each line or one in all lines, with their places."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                document = json.loads(line) if line.strip() else None
            except ValueError as error:
                if number > 1:
                    raise InputError([f"{path}:{number}: is not JSON: {error}"]) from error
                break
            if document is not None:
                yield f"{path}:{number}", document
        else:
            return
    with opened(path) as file:
        try:
            yield path, json.load(file)
        except ValueError as error:
            raise InputError([f"{path}: is not JSON: {error}"]) from error


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"--bearer-token-file {path}: cannot be read: {error}") from error
    if not token or not token.isprintable():
        raise UsageError(f"--bearer-token-file {path}: has no token")
    return token
