"""The ``kafka-quota-proxy rebalance`` command, which shows the progress of a partition reassignment.

It shows how far the reassignment has got, when it will end, and whether its throttle lets it end at all. The command
never writes to the cluster.
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
from kafka_quota_proxy.config.model import AdminClient, ProxyConfig
from kafka_quota_proxy.config.units import parse_duration_ms, parse_rate
from kafka_quota_proxy.proxy.background.admin_client import ADMIN_ERRORS, ClusterClient
from kafka_quota_proxy.proxy.cli.reassignment.cluster_snapshot import ReadingError, SnapshotReader
from kafka_quota_proxy.proxy.cli.reassignment.display import Display, JsonDisplay, LiveDisplay, PlainDisplay
from kafka_quota_proxy.proxy.cli.reassignment.progress import LEAST_SPAN_MS
from kafka_quota_proxy.proxy.cli.reassignment.watch import Clock, Plan, Watcher
from kafka_quota_proxy.proxy.replication.cluster_view import servers_of

_REFRESH_MS: Final = 1_000
# A little longer than the window of Kafka's replication quotas, over which the rate of a follower evens out.
_EVERY: Final = "12s"
_TIME_OF_DAY: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rebalance``."""
    parser.add_argument(
        "config", metavar="CONFIG", type=Path, help="the YAML file, which names the cluster and its throttles"
    )
    parser.add_argument(
        "--throttle", metavar="R", type=_rate, help="also say when it would end with a throttle of R, such as 50MB"
    )
    parser.add_argument(
        "--by",
        metavar="TIME",
        type=_by,
        help="also say which throttle ends by TIME: 06:00 (local time), or 2h from now",
    )
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--watch", action="store_true", help="report until it ends (default on a terminal)")
    how_long.add_argument("--once", action="store_true", help="print one report (default elsewhere, and with --json)")
    parser.add_argument(
        "--every",
        metavar="DURATION",
        type=_every_ms,
        default=_EVERY,
        help=f"the time before the first report, and between reports (default {_EVERY}); on a terminal it reports each "
        "second",
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
    is_live = not args.json and not args.once and sys.stdout.isatty()
    plan = Plan(
        first_ms=0 if is_live else args.every,
        every_ms=_REFRESH_MS if is_live else args.every,
        continues=is_live or args.watch,
        throttle=args.throttle,
        by=None if args.by is None else deadline(args.by.when, clock.local()),
        by_words="" if args.by is None else args.by.words,
    )
    display_type = JsonDisplay if args.json else LiveDisplay if is_live else PlainDisplay
    display = display_type(sys.stdout, sys.stderr)
    try:
        return _watch(config, clock=clock, display=display, plan=plan)
    except (*ADMIN_ERRORS, ReadingError) as error:
        sys.stderr.write(f"kafka-quota-proxy rebalance: {type(error).__name__}: {error}\n")
        return 1
    except KeyboardInterrupt:  # before the first report
        return 1


def _watch(config: ProxyConfig, *, clock: Clock, display: Display, plan: Plan) -> int:
    settings = config.replication.admin_client if config.replication else AdminClient()
    with ClusterClient(settings, servers_of(config.listeners)) as admin:
        reader = SnapshotReader(admin, config, clock_ms=clock.now_ms)
        watcher = Watcher(reader.read, failures=ADMIN_ERRORS, clock=clock, display=display, plan=plan)
        try:
            return watcher.run()
        except KeyboardInterrupt:
            return watcher.status


def deadline(by: time_of_day | timedelta, now: datetime) -> datetime:
    """Return ``now`` plus ``by`` if ``by`` is a duration, or the next occurrence of ``by`` if it is a time of day."""
    if isinstance(by, timedelta):
        return now + by
    # The zone is added last, so that it has the offset of that day, which may be in summer time.
    today = datetime.combine(now.date(), by).astimezone()
    return today if today > now else datetime.combine(now.date() + timedelta(days=1), by).astimezone()


def _rate(text: str) -> float:
    try:
        return parse_rate(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
