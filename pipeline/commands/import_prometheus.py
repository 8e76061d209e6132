"""``kafka-quota-pipeline import prometheus`` makes a usage log of the client metrics that Prometheus has."""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kafka_quota_proxy.pipeline.client_metrics import BROKER_LABELS
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.imported_log import ImportedLog, imported_log
from kafka_quota_proxy.pipeline.prometheus_api import Prometheus
from kafka_quota_proxy.pipeline.rate_samples import SampleIntegrator
from kafka_quota_proxy.pipeline.report import duration, size
from kafka_quota_proxy.pipeline.scraped_brokers import ScrapedBrokers

_SAY_EVERY_S: Final = 5.0
_SHOWN_BROKERS: Final = 50
_NO_METRICS: Final = (
    "has no client metrics of Kafka. A broker exports them only while there is a quota of that kind, for any client, "
    "and JMX rules must let them pass"
)


def execute(args: argparse.Namespace) -> int:
    """Write the usage log, print its sums, and return the exit status."""
    integrator = SampleIntegrator(args.step)
    with imported_log(args.out) as log:
        brokers = _read(args, integrator, log)
        if not log.records:
            raise PipelineError("none of the clients sent or fetched anything in this time")
    for name in sorted(dict(args.broker).keys() - brokers.node_ids.keys() - brokers.telling.keys()):
        _say(f"--broker {name}: there is no such instance")
    _say_brokers(brokers.node_ids, brokers.numbered)
    for instance, telling in sorted(brokers.telling.items()):
        if labels := sorted(telling.difference(BROKER_LABELS)):
            words = " ".join(f"--replica-label {label}" for label in labels)
            _say(
                f"{instance}: series of one client differ in {', '.join(labels)}, so they are counted as several "
                f"brokers; if they are one broker, measured twice, add {words}"
            )
    _say_summary(log, integrator, args.out)
    return 0


def _read(args: argparse.Namespace, integrator: SampleIntegrator, log: ImportedLog) -> ScrapedBrokers:
    """Import from the server. Return the brokers that it knows."""
    own_names = dict(args.metric)
    from_ms, until_ms, step_ms = args.from_ms, args.until_ms or int(time.time() * 1_000), args.step
    if until_ms < from_ms + step_ms:
        raise UsageError("--until: must be later than --from by one --step at least")
    server = Prometheus(args.url, token=_token(args.bearer_token_file))
    names = sorted({*server.metric_names(args.match, from_ms, until_ms), *own_names})
    if not names:
        raise PipelineError(f"{server.url}: {_NO_METRICS} (--metric takes other names)")
    _say(f"reading {', '.join(names)}")
    brokers = ScrapedBrokers(dict(args.broker), replica_labels=args.replica_label)
    said_s = time.monotonic()
    times = {"from_ms": from_ms, "until_ms": until_ms, "step_ms": step_ms}
    for piece in server.pieces(names, args.match, own_names, **times):
        every = [one for answer in piece.answers for one in answer.series]
        brokers.learn(every)
        brokers.number()
        log.add(integrator.take(brokers.series(every)), brokers.node_ids)
        if time.monotonic() - said_s > _SAY_EVERY_S or piece.until_ms + step_ms > until_ms:
            said_s = time.monotonic()
            _say(f"  up to {_day_and_time(piece.until_ms)} UTC: {log.records:,} records")
    if integrator.usual_ms > 1.5 * step_ms:
        _say(f"the samples are {duration(integrator.usual_ms)} apart, farther than --step, and so are the records")
    return brokers


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


def _say_brokers(brokers: Mapping[str, int], numbered: Iterable[str]) -> None:
    """Say which broker is which. ``numbered`` are the instances whose node id is only a number in their order."""
    guessed = set(numbered)
    for instance, node_id in sorted(brokers.items(), key=lambda one: (one[1], one[0]))[:_SHOWN_BROKERS]:
        words = f" (a number in the order of names; --broker {instance}=ID sets the node id)"
        _say(f"broker {node_id} is {instance}{words if instance in guessed else ''}")
    if len(brokers) > _SHOWN_BROKERS:
        _say(f"and {len(brokers) - _SHOWN_BROKERS} more")


def _say_summary(log: ImportedLog, integrator: SampleIntegrator, out: str) -> None:
    """Write what was imported to stdout, and what is missing to stderr."""
    if integrator.gaps:
        _say(f"{integrator.gaps:,} times a client had no sample for longer than usual; the log has no records there")
    sums = [f"{size(amount)} of {kind}" for kind, amount in sorted(log.amounts.items()) if kind != "request"]
    distance = duration(integrator.usual_ms)
    sys.stdout.write(f"{', '.join([f'{log.records:,} records of {distance}', *sums])}\n{out}\n")


def _day_and_time(time_ms: int) -> str:
    """Return a time as text, in UTC."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
