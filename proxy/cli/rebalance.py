"""The ``kafka-quota-proxy rebalance`` command, which shows the progress of a partition reassignment.

It shows how far the reassignment has got, and when it will end, if at all. The command never writes to the cluster.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.errors import ConfigError, UnitError
from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.model import AdminClient
from kafka_quota_proxy.config.units import parse_duration_ms
from kafka_quota_proxy.proxy.cli.reassignment.as_text import as_json, lines
from kafka_quota_proxy.proxy.cli.reassignment.cluster_snapshot import ReadingError, read_snapshot
from kafka_quota_proxy.proxy.cli.reassignment.progress import Sample, report_of
from kafka_quota_proxy.proxy.kafka_client.admin_client import ADMIN_ERRORS, ClusterClient
from kafka_quota_proxy.proxy.replication.cluster_view import servers_of

# A little longer than the window of Kafka's replication quotas, over which the rate of a follower evens out.
_WATCHED_MS: Final = 12_000
# Half a second is short enough to see the steps of Kafka's own throttle, which come once a second.
_SAMPLE_S: Final = 0.5
_TIME_OF_DAY: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_INTERRUPTED: Final = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rebalance``."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the YAML file, which names the cluster")
    parser.add_argument(
        "--by",
        metavar="TIME",
        type=_by,
        help="also say which throttle ends by TIME: 06:00 (local time), or 2h from now",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object, in bytes and milliseconds")


def execute(args: argparse.Namespace) -> int:
    """Print a report on the reassignment, and return the exit status: 1 if it never ends or waits for brokers."""
    try:
        config = load(args.config).config
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    settings = config.replication.admin_client if config.replication else AdminClient()
    try:
        with ClusterClient(settings, servers_of(config.listeners)) as admin:
            samples = _samples(lambda: read_snapshot(admin, clock_ms=_now_ms))
    except (*ADMIN_ERRORS, ReadingError) as error:
        sys.stderr.write(f"kafka-quota-proxy rebalance: {type(error).__name__}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    now = _local()
    if not samples:
        none = {"time_ms": round(now.timestamp() * 1_000), "state": "none", "moves": []}
        sys.stdout.write(f"{json.dumps(none) if args.json else 'no reassignment in progress'}\n")
        return 0
    report, by = report_of(samples), None if args.by is None else deadline(args.by, now)
    if args.json:
        sys.stdout.write(f"{json.dumps(as_json(report, now=now, by=by))}\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in (f"{now:%Y-%m-%d %H:%M:%S}", *lines(report, now=now, by=by)))
    return 1 if report.never_ends or report.waiting else 0


def _samples(read: Callable[[], Sample]) -> list[Sample]:
    """Return samples of the cluster over ``_WATCHED_MS``, or none if nothing moves any more."""
    samples: list[Sample] = []
    while not samples or samples[-1].time_ms - samples[0].time_ms < _WATCHED_MS:
        if samples:
            time.sleep(_SAMPLE_S)
        samples.append(read())
        if not samples[-1].moves and not samples[-1].waiting:
            return []
    return samples


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _local() -> datetime:
    return datetime.now(UTC).astimezone()


def deadline(by: time_of_day | timedelta, now: datetime) -> datetime:
    """Return ``now`` plus ``by`` if ``by`` is a duration, or the next occurrence of ``by`` if it is a time of day."""
    if isinstance(by, timedelta):
        return now + by
    # The zone is added last, so that it has the offset of that day, which may be in summer time.
    today = datetime.combine(now.date(), by).astimezone()
    return today if today > now else datetime.combine(now.date() + timedelta(days=1), by).astimezone()


def _by(text: str) -> time_of_day | timedelta:
    found = _TIME_OF_DAY.fullmatch(text)
    if found:
        return time_of_day(int(found[1]), int(found[2]))
    try:
        duration_ms = parse_duration_ms(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"{error}, or a time of day, such as 06:00") from None
    if not 0 < duration_ms <= 366 * 86_400_000:
        raise argparse.ArgumentTypeError("must be above 0 and at most a year")
    return timedelta(milliseconds=duration_ms)
