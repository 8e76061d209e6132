"""``kafka-quota-pipeline import prometheus`` makes a usage log of the client metrics that Prometheus has."""

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.imported_log import ImportedLog, imported_log
from kafka_quota_proxy.pipeline.prometheus_api import Prometheus
from kafka_quota_proxy.pipeline.rate_samples import SampleIntegrator, node_ids
from kafka_quota_proxy.pipeline.report import duration, size

_SAY_EVERY_S: Final = 5.0
_SHOWN_BROKERS: Final = 50
_NO_METRICS: Final = (
    "has no client metrics of Kafka. A broker exports them only while there is a quota of that kind, for any client, "
    "and JMX rules must let them pass (--metric takes other names)"
)


def execute(args: argparse.Namespace) -> int:
    """Write the usage log, print its sums, and return the exit status."""
    integrator = SampleIntegrator(args.step)
    with imported_log(args.out) as log:
        _import(args, integrator, log)
        if not log.records:
            raise PipelineError("none of the clients sent or fetched anything in this time")
    if integrator.usual_ms > 1.5 * args.step:
        _say(f"the samples are {duration(integrator.usual_ms)} apart, farther than --step, and so are the records")
    if integrator.gaps:
        _say(f"{integrator.gaps:,} times a client had no sample for longer than usual; the log has no records there")
    sums = [f"{size(amount)} of {kind}" for kind, amount in sorted(log.amounts.items()) if kind != "request"]
    records = f"{log.records:,} records of {duration(integrator.usual_ms)}"
    sys.stdout.write(f"{', '.join([records, *sums])}\n{args.out}\n")
    return 0


def _import(args: argparse.Namespace, integrator: SampleIntegrator, log: ImportedLog) -> None:
    """Add the samples of the server to the log, and say which broker is which."""
    own_names, given, step_ms = dict(args.metric), dict(args.broker), args.step
    from_ms, until_ms = args.from_ms, args.until_ms or int(time.time() * 1_000)
    if until_ms < from_ms + step_ms:
        raise UsageError("--until: must be later than --from by one --step at least")
    server = Prometheus(args.url, token=_token(args.bearer_token_file))
    names = sorted({*server.metric_names(args.match, from_ms, until_ms), *own_names})
    instances = server.instances(names, args.match, from_ms, until_ms)
    if not names:
        raise PipelineError(f"{server.url}: {_NO_METRICS}")
    _say(f"reading {', '.join(names)} of {len(instances)} {'instance' if len(instances) == 1 else 'instances'}")
    brokers, labelled, unlabelled = node_ids(instances, given), set[str](), set[str]()
    said_s = time.monotonic()
    times = {"from_ms": from_ms, "until_ms": until_ms, "step_ms": step_ms}
    for piece in server.pieces(names, args.match, own_names, **times):
        for one in piece.series:
            (unlabelled if one.bucket.broker is None else labelled).add(one.bucket.instance)
        log.add(integrator.take(piece.series), brokers)
        if time.monotonic() - said_s > _SAY_EVERY_S or piece.until_ms + step_ms > until_ms:
            said_s = time.monotonic()
            at = datetime.fromtimestamp(piece.until_ms / 1_000, UTC)
            _say(f"  up to {at:%Y-%m-%d %H:%M:%S} UTC: {log.records:,} records")
    for name in sorted(given.keys() - unlabelled):
        _say(f"--broker {name}: there is no such instance without a label for its broker")
    for name in sorted(unlabelled, key=lambda name: (brokers[name], name))[:_SHOWN_BROKERS]:
        words = "" if name in given else f" (a number in the order of names; --broker {name}=ID sets the node id)"
        _say(f"broker {brokers[name]} is {name}{words}")
    if labelled:
        _say(f"a label names the brokers of {len(labelled)} instances")


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


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
