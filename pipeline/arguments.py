"""Declares the command-line arguments of each command. Does not import Spark, so that ``--help`` is fast."""

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.units import parse_duration_ms

# Spark is imported only when a command runs, and so are the modules that need it.
_MOST_PRICE: Final = 10**12

_CLUSTER_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Declare the command-line arguments of the command with the name ``command``."""
    if command != "simulate":
        parser.add_argument(
            "--usage", required=True, metavar="PATH|kafka://HOST:PORT/TOPIC", help="the usage log, or a lake of it"
        )
    if command not in ("alerts", "rebalance", "ingest"):
        _out(parser)
    _OWN[command](parser)
    if command != "simulate":
        _part(parser, has_clusters=command != "ingest")
    if command != "simulate":
        parser.add_argument(
            "--kafka-config",
            metavar="FILE",
            help="a file of client properties for kafka:// (TLS, SASL), as for Kafka's tools",
        )
    spark = parser.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL", help="where Spark runs, such as local[2] or spark://HOST:7077")
    spark.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a Spark setting; may be repeated",
    )


def _out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="the directory of the results, which appear all at once"
    )


def _simulate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--entities", type=_count, default=20, metavar="N", help="clients (20)")
    parser.add_argument("--brokers", type=_count, default=3, metavar="N", help="brokers, each with a proxy (3)")
    parser.add_argument("--days", type=_above_0, default=7.0, metavar="D", help="the length of the log in days (7)")
    parser.add_argument(
        "--interval", type=duration, default=60_000, help="the interval of a record (1m); a proxy's default is 1s"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the seed of the random numbers (1)")
    parser.add_argument(
        "--format", choices=("json", "json.gz", "parquet"), default="json", help="the format of the files (json)"
    )


def _percentage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--percentile", type=_percentile, default=99.0, metavar="P", help="the percentile of rates, 50 to 99.99 (99)"
    )


def _part(parser: argparse.ArgumentParser, *, has_clusters: bool) -> None:
    part = parser.add_argument_group("read a part of the log")
    part.add_argument(
        "--from",
        dest="begin",
        type=_local_time,
        metavar="TIME",
        help="leave out records that start earlier: a day (2026-09-07) or a time (2026-09-07T08:00)",
    )
    part.add_argument(
        "--until", dest="end", type=_local_time, metavar="TIME", help="leave out records that start then or later"
    )
    part.add_argument(
        "--timezone",
        type=_timezone,
        default="UTC",
        metavar="ZONE",
        help="the time zone of --from and --until, and of hours in results, such as Europe/Berlin (UTC)",
    )
    if has_clusters:
        words = "read one cluster of a lake, or of a log the directories that are named cluster=NAME"
        part.add_argument("--cluster", type=_cluster, metavar="NAME", help=words)


def _comparison(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--owners", metavar="FILE", help="teams, for the report: CSV of user, client_id, owner, from, until"
    )
    parser.add_argument(
        "--max-delay", type=duration, default=30_000, metavar="TIME", help="the longest delay of a request (30s)"
    )


def _capacity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--headroom", type=_headroom, default=1.2, metavar="X", help="the factor above what a client needs (1.2)"
    )
    _percentage(parser)
    _comparison(parser)
    parser.add_argument(
        "--current", metavar="FILE", help="the quotas in force, to compare with (those that the log names)"
    )
    parser.add_argument(
        "--capacities",
        metavar="FILE",
        help="the capacity of brokers: CSV of broker, produce, fetch (bytes per second)",
    )
    parser.add_argument(
        "--shaping", choices=("sampled", "paced"), default="sampled", help="how the proxy measures rates (sampled)"
    )


def _whatif(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quotas", required=True, metavar="FILE", help="a configuration file, or its quotas alone")
    _comparison(parser)


def _chargeback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owners", required=True, metavar="FILE", help="CSV of user, client_id, owner, from, until")
    parser.add_argument("--month", type=_month, metavar="YYYY-MM", help="bill one month, UTC (the whole log)")
    parser.add_argument("--price", type=_price, default=Decimal(0), metavar="X", help="the price of 10^9 bytes (0)")


def _rebalance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", required=True, metavar="FILE", help="the JSON of kafka-reassign-partitions.sh")
    parser.add_argument(
        "--sizes", required=True, metavar="FILE", help="CSV: the sizes of partitions, and their brokers"
    )
    parser.add_argument(
        "--window", required=True, type=duration, metavar="TIME", help="the time within which it must end, such as 6h"
    )
    parser.add_argument("--capacities", metavar="FILE", help="the capacity of brokers, as for the command capacity")
    parser.add_argument("--out", metavar="DIR", help="also write tables to this directory")


def _balance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limits", required=True, metavar="FILE", help="a configuration file whose quotas are for the whole cluster"
    )
    parser.add_argument(
        "--floor", type=_share, default=0.1, metavar="X", help="the guaranteed part of an even share (0.1)"
    )


def _alerts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--near", type=_share, default=0.8, metavar="X", help="the part of a limit above which use is near it (0.8)"
    )
    parser.add_argument("--window", type=duration, default=60_000, metavar="TIME", help="the length of a window (1m)")
    parser.add_argument("--out", metavar="DIR", help="also write the alerts to this directory")


def _ingest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", required=True, metavar="DIR", help="the lake; created if it does not exist")
    parser.add_argument(
        "--cluster", dest="into", type=_cluster, default="default", metavar="NAME", help="its cluster (default)"
    )
    parser.set_defaults(cluster=None)
    parser.add_argument("--out", metavar="DIR", help="also keep bad lines, in this directory")


_OWN: Final[dict[str, Callable[[argparse.ArgumentParser], None]]] = {
    "simulate": _simulate,
    "capacity": _capacity,
    "whatif": _whatif,
    "chargeback": _chargeback,
    "rebalance": _rebalance,
    "balance": _balance,
    "alerts": _alerts,
    "ingest": _ingest,
}


def _setting(text: str) -> tuple[str, str]:
    key, is_there, value = text.partition("=")
    if not (key and is_there):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as spark.driver.memory=4g")
    return key, value


def _number(text: str, *, least: float, most: float, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return number


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def _above_0(text: str) -> float:
    return _number(text, least=1e-6, most=36_500, what="a number of days above 0")


def _percentile(text: str) -> float:
    return _number(text, least=50, most=99.99, what="a percentile from 50 to 99.99")


def _headroom(text: str) -> float:
    return _number(text, least=1, most=100, what="a factor of at least 1, such as 1.2")


def _timezone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time zone; write one such as Europe/Berlin") from None


def _share(text: str) -> float:
    return _number(text, least=0, most=1, what="a share from 0 to 1")


def _price(text: str) -> Decimal:
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal(-1)
    if not (price.is_finite() and 0 <= price <= _MOST_PRICE):
        raise argparse.ArgumentTypeError(f"{text!r} is not a price of 0 or more")
    return price


def duration(text: str) -> int:
    """Return a time such as 30s in milliseconds. Raises ArgumentTypeError if it is none, or 0."""
    try:
        duration_ms = parse_duration_ms(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not duration_ms:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0")
    return duration_ms


def _local_time(text: str) -> datetime:
    for form in ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"):
        with suppress(ValueError):
            return datetime.strptime(text, form)  # noqa: DTZ007  (--timezone names its zone)
    raise argparse.ArgumentTypeError(f"{text!r} is not a day or a time; write one such as 2026-09-07T08:00")


def _cluster(text: str) -> str:
    if not _CLUSTER_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a cluster: letters, digits, dots, _ and -")
    return text


def _month(text: str) -> str:
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).strftime("%Y-%m")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a month; write one such as 2026-10") from None
