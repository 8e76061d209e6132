"""``kafka-quota-pipeline import prometheus`` makes a usage log of the client metrics that Prometheus has."""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafka_quota_proxy.pipeline.client_metrics import Measured
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
from kafka_quota_proxy.pipeline.rate_samples import SampledBucket, SampleIntegrator, node_ids, throttle_times
from kafka_quota_proxy.pipeline.report import duration

_STEP_MS: Final = 60_000
_SAY_EVERY_S: Final = 5.0


def execute(args: argparse.Namespace) -> int:
    """Write the usage log, print its sums, and return the exit status."""
    own_names = dict(args.metric)
    integrator = SampleIntegrator(args.step or _STEP_MS)
    given = dict(args.broker)
    with imported_log(args.out) as log:
        if args.url:
            brokers, numbered = _from_server(args, own_names, given, integrator, log)
        elif args.from_ms is not None or args.until_ms is not None:
            raise UsageError("--from and --until: are for --url; a file is imported as a whole")
        else:
            brokers, numbered = _from_files(args.file, own_names, given, integrator, log)
        if not log.records:
            raise PipelineError("none of the clients sent or fetched anything in this time")
    for name in sorted(given.keys() - brokers.keys()):
        say(f"--broker {name}: there is no such instance")
    say_brokers(brokers, numbered)
    say_summary(log, integrator, args.out)
    return 0


def _from_server(
    args: argparse.Namespace,
    own_names: dict[str, Measured],
    given: dict[str, int],
    integrator: SampleIntegrator,
    log: ImportedLog,
) -> tuple[dict[str, int], set[str]]:
    """Import from a server. Return the node id of each instance, and the instances whose id is only a number."""
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
    brokers = node_ids(instances, given)
    seen: set[str] = set()
    labelled: set[str] = set()
    said_s = time.monotonic()
    times = {"from_ms": from_ms, "until_ms": until_ms, "step_ms": step_ms}
    for piece in server.pieces(names, args.match, own_names, **times):
        for answer in piece.answers:
            seen |= answer.brokers.keys()
            labelled |= _take_labels(answer, brokers, given)
        log.add(integrator.take(one for answer in piece.answers for one in answer.series), brokers)
        if time.monotonic() - said_s > _SAY_EVERY_S or piece.until_ms + step_ms > until_ms:
            said_s = time.monotonic()
            say(f"  up to {day_and_time(piece.until_ms)} UTC: {log.records:,} records")
    if integrator.usual_ms > 1.5 * step_ms:
        say(f"the samples are {duration(integrator.usual_ms)} apart, farther than --step, and so are the records")
    return {name: brokers[name] for name in seen}, seen - labelled - given.keys()


def _from_files(
    paths: list[str],
    own_names: dict[str, Measured],
    given: dict[str, int],
    integrator: SampleIntegrator,
    log: ImportedLog,
) -> tuple[dict[str, int], set[str]]:
    """Import from saved answers. Return the node id of each instance, and the instances whose id is only a number."""
    labels: dict[str, int | None] = {}
    waits: dict[tuple[SampledBucket, int], float] = {}
    # The throttle times may be in another answer than the rates, and are few.
    for _, answer in _answers(paths, own_names):
        labels = {**answer.brokers, **labels}
        waits |= throttle_times(answer.series)
    if not labels:
        raise PipelineError(f"{', '.join(paths)}: {NO_METRICS} (--metric takes other names)")
    known = {instance: node_id for instance, node_id in labels.items() if node_id is not None} | given
    brokers = node_ids(labels, known)
    for _, answer in _answers(paths, own_names):
        log.add(integrator.take(answer.series, waits), brokers)
    return {name: brokers[name] for name in labels}, labels.keys() - known.keys()


def _take_labels(answer: Answer, brokers: dict[str, int], given: dict[str, int]) -> set[str]:
    """Add the instances of an answer to ``brokers``, and return those with a label that contains the node id."""
    labelled = {name: node_id for name, node_id in answer.brokers.items() if node_id is not None and name not in given}
    brokers |= labelled
    brokers |= node_ids(answer.brokers, brokers)
    return set(labelled)


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
