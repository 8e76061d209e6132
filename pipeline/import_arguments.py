"""Declares the command-line arguments of ``import``, which has a source as its subcommand."""

import argparse
import re
from datetime import UTC, datetime
from typing import Final

from kafka_quota_proxy.pipeline.arguments import duration
from kafka_quota_proxy.pipeline.client_metrics import OPTIONS, Measured
from kafka_quota_proxy.pipeline.scraped_brokers import REPLICA_LABELS

_PROMETHEUS: Final = (
    "example: kafka-quota-pipeline import prometheus --url http://prometheus:9090 --from 2026-11-01 "
    "--until 2026-11-08 --out usage\n"
    "         kafka-quota-pipeline capacity --usage usage --out plan\n\n"
    "Reads byte-rate, request-time and throttle-time of each client, which Kafka exports while it has any quota of\n"
    "that kind. Each record is the mean rate of one step, and resolution_ms says so. The metrics have the names that\n"
    "the JMX exporter gives them without rules, with its example for Kafka or with those of jmx-monitoring-stacks;\n"
    "--metric takes others. The proxy of a record is the label instance. Its broker is a label such as broker or\n"
    "broker_id, or what --broker says, or a number in the order of the instances, which stderr shows. If series of\n"
    "one client and instance differ in a label, they are several brokers, and the proxy has this label, too. Series\n"
    f"that differ only in a replica label ({', '.join(REPLICA_LABELS[:3])}\n"
    f"{', '.join(REPLICA_LABELS[3:])}, or a --replica-label) are one broker, measured twice."
)


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the source of ``import`` with its arguments. ``module`` is the module that runs it."""
    sources = parser.add_subparsers(dest="source", metavar="SOURCE", required=True)
    summary = "Kafka's client metrics from a Prometheus server"
    prometheus = sources.add_parser(
        "prometheus",
        help=summary,
        description=f"Import {summary} as a usage log.",
        epilog=_PROMETHEUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    prometheus.set_defaults(module="import_prometheus")
    prometheus.add_argument("--url", required=True, metavar="URL", help="the server; may contain USER:PASSWORD@")
    prometheus.add_argument(
        "--from", dest="from_ms", required=True, type=_time, metavar="TIME", help="such as 2026-11-01T08:00 (UTC)"
    )
    prometheus.add_argument("--until", dest="until_ms", type=_time, metavar="TIME", help="the end (now)")
    prometheus.add_argument("--step", type=duration, default=60_000, metavar="TIME", help="the length of a record (1m)")
    prometheus.add_argument(
        "--match", default="", metavar="LABELS", help="only series with these labels, such as 'cluster=\"a\"'"
    )
    prometheus.add_argument(
        "--metric",
        action="append",
        default=[],
        type=_metric,
        metavar="WHAT=NAME",
        help=f"the name of a metric under own rules; WHAT is one of {', '.join(OPTIONS)}; may be repeated",
    )
    prometheus.add_argument(
        "--replica-label",
        action="append",
        default=[],
        metavar="LABEL",
        help="a label in which only the replicas of your Prometheus differ; may be repeated",
    )
    prometheus.add_argument("--bearer-token-file", metavar="FILE", help="a file with the token for the server")
    prometheus.add_argument(
        "--broker",
        action="append",
        default=[],
        type=_node,
        metavar="INSTANCE=ID",
        help="the node id of the broker of this instance; may be repeated",
    )
    prometheus.add_argument(
        "--out", required=True, metavar="DIR", help="the directory of the log, which appears all at once"
    )


def _metric(text: str) -> tuple[str, Measured]:
    what, _, name = text.partition("=")
    if what not in OPTIONS or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not WHAT=NAME, such as produce_rate=my_produce_byte_rate")
    return name, OPTIONS[what]


def _node(text: str) -> tuple[str, int]:
    name, _, node_id = text.rpartition("=")
    if not name or not re.fullmatch(r"[0-9]{1,9}", node_id):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in =ID, such as =1")
    return name, int(node_id)


def _time(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write one such as 2026-11-01T08:00") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
