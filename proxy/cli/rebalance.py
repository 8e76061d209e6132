"""The ``kafka-quota-proxy rebalance`` command, which shows the progress of a partition reassignment.

It shows how far the reassignment has got, and when it will end, if at all. The command never writes to the cluster.
"""

import argparse
import re
import sys
from datetime import datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import ConfigError, UnitError
from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.model import AdminClient
from kafka_quota_proxy.config.units import parse_duration_ms
from kafka_quota_proxy.proxy.cli.reassignment.progress import LEAST_SPAN_MS
from kafka_quota_proxy.proxy.cli.reassignment.watch import Clock, Plan, ReadingError, Watcher, read_snapshot
from kafka_quota_proxy.proxy.kafka_client.admin_client import ADMIN_ERRORS, ClusterClient
from kafka_quota_proxy.proxy.replication.cluster_view import servers_of

# A little longer than the window of Kafka's replication quotas, over which the rate of a follower evens out.
_EVERY: Final = "12s"
_TIME_OF_DAY: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rebalance``."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the YAML file, which names the cluster")
    parser.add_argument(
        "--by",
        metavar="TIME",
        type=_by,
        help="also say which throttle ends by TIME: 06:00 (local time), or 2h from now",
    )
    parser.add_argument("--watch", action="store_true", help="report until it ends (default: one report)")
    parser.add_argument(
        "--every",
        metavar="DURATION",
        type=_every_ms,
        default=_EVERY,
        help=f"the time before the first report, and between reports (default {_EVERY})",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line and report, in bytes and milliseconds"
    )


def execute(args: argparse.Namespace) -> int:
    """Print reports on the reassignment, and return the exit status."""
    try:
        config = load(args.config).config
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    clock = Clock()
    plan = Plan(
        every_ms=args.every,
        continues=args.watch,
        is_json=args.json,
        by=None if args.by is None else deadline(args.by.when, clock.local()),
        by_words="" if args.by is None else args.by.words,
    )
    settings = config.replication.admin_client if config.replication else AdminClient()
    watcher: Watcher | None = None
    try:
        with ClusterClient(settings, servers_of(config.listeners)) as admin:
            watcher = Watcher(
                lambda: read_snapshot(admin, clock_ms=clock.now_ms),
                failures=ADMIN_ERRORS, clock=clock, plan=plan, out=sys.stdout, errors=sys.stderr,
            )  # fmt: skip
            return watcher.run()
    except (*ADMIN_ERRORS, ReadingError) as error:
        sys.stderr.write(f"kafka-quota-proxy rebalance: {type(error).__name__}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 1 if watcher is None else watcher.status


def deadline(by: time_of_day | timedelta, now: datetime) -> datetime:
    """Return ``now`` plus ``by`` if ``by`` is a duration, or the next occurrence of ``by`` if it is a time of day."""
    if isinstance(by, timedelta):
        return now + by
    # The zone is added last, so that it has the offset of that day, which may be in summer time.
    today = datetime.combine(now.date(), by).astimezone()
    return today if today > now else datetime.combine(now.date() + timedelta(days=1), by).astimezone()


class _By(NamedTuple):
    when: time_of_day | timedelta
    words: str  # completes "to end ..."


def _by(text: str) -> _By:
    found = _TIME_OF_DAY.fullmatch(text)
    if found:
        return _By(time_of_day(int(found[1]), int(found[2])), f"by {text}")
    try:
        duration_ms = parse_duration_ms(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"{error}, or a time of day, such as 06:00") from None
    if not 0 < duration_ms <= 366 * 86_400_000:
        raise argparse.ArgumentTypeError("must be above 0 and at most a year")
    return _By(timedelta(milliseconds=duration_ms), f"within {text}")


def _every_ms(text: str) -> int:
    try:
        every_ms = parse_duration_ms(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if every_ms < LEAST_SPAN_MS:
        raise argparse.ArgumentTypeError(f"must be at least {LEAST_SPAN_MS // 1_000}s: a shorter time gives no rate")
    return every_ms
