"""The command line: ``kafka-quota-pipeline COMMAND …``.

Results go to ``--out`` and their summary to stdout, progress and errors to stderr. Exit status: 0 done, 1 failed, 2
wrong usage or an input that is wrong, 141 no reader any more. Spark is imported when a command runs, so that ``--help``
comes at once.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafka_quota_proxy.pipeline.arguments import add_arguments

_PROGRAM: Final = "kafka-quota-pipeline"
# What a shell says of a program that SIGPIPE ended: 128 + 13. No result of a command looks like it.
_NOBODY_READS: Final = 141
_HOW_TO_INSTALL: Final = "it comes with the extra pipeline: in a checkout, make .venv/pipeline.installed"
_COMMON: Final = (
    "\n\nRuns on this machine (local[*]) unless --master or spark-submit says otherwise. The log (--usage) is a file,\n"
    "a directory or kafka://HOST:PORT/TOPIC; a bad line never stops the job: it is counted, and kept with\n"
    "its place in OUT/quarantine; by alerts in CHECKPOINT/quarantine (of each batch 100 at the most, of the last 100\n"
    "batches that had some). balance --follow has no place of its own: it counts them, and shows the partition and\n"
    "offset at which one stays in the topic."
)


class _Command(NamedTuple):
    summary: str
    example: str  # what --help shows at its end


_COMMANDS: Final = {
    "simulate": _Command(
        "make up a fleet's usage log, for trying and for scale",
        "example: kafka-quota-pipeline simulate --entities 20 --brokers 3 --days 14 --interval 1m --out usage\n\n"
        "The same seed gives the same log. Nobody in it has a limit yet.",
    ),
    "capacity": _Command(
        "suggest limits that are safe to switch on, and say what they would do",
        "example: kafka-quota-pipeline capacity --usage usage --out plan --capacities capacities.csv\n\n"
        "Writes report.html, quotas.yaml and the steps of ramp/ (for kafka-quota-proxy check and run),\n"
        "ramp.csv, and tables.\n"
        "A limit is the percentile of what an entity used on its busiest broker while it used it, times the headroom,\n"
        "and more where a replay of the log by the proxy's own arithmetic says that it would wait for longer than\n"
        "the rest of the time (1 % with --percentile 99).",
    ),
    "whatif": _Command(
        "replay the log under other quotas: who would have waited, for how long",
        "example: kafka-quota-pipeline whatif --usage usage --quotas proposed.yaml --out forecast\n\n"
        "The quotas are a proxy's configuration, or its quotas alone.",
    ),
    "chargeback": _Command(
        "add up bytes and cost for each owner",
        "example: kafka-quota-pipeline chargeback --usage usage --owners owners.csv --month 2026-10 --out bill\n\n"
        "owners.csv has the columns user, client_id, owner, from, until: an empty user or client_id is any, an empty\n"
        "date is no bound; the more specific line counts. What nobody owns is (nobody)'s: sums equal the log's.",
    ),
    "rebalance": _Command(
        "find the throttle that lets a reassignment end in a window",
        "example: kafka-quota-pipeline rebalance --usage usage --plan plan.json --sizes sizes.csv --window 6h\n\n"
        "Prints what each broker needs, and with --out DIR writes it as tables as well.\n"
        "sizes.csv has the columns topic, partition, leader, replicas (node ids, a space between), size_bytes,\n"
        "incoming_byte_rate. By KIP-73: to copy L bytes in W seconds while A a second come in takes L / W + A.",
    ),
    "balance": _Command(
        "divide cluster-wide limits over brokers by demand",
        "example: kafka-quota-pipeline balance --usage usage --limits cluster.yaml --out shares\n"
        "         kafka-quota-pipeline balance --follow --usage kafka://broker1:9092/kafka-quota-usage \\\n"
        "             --limits cluster.yaml --to kafka://broker1:9092/kafka-quota-store --proxies p1,p2,p3\n\n"
        "Writes a quotas.yaml for each proxy. Each broker gets a floor of each limit, the rest goes by demand.\n\n"
        "With --follow it goes on: what proxies log is added up, and what each may use of each limit goes to a topic\n"
        "that they follow (quotas_from). Together they never have more than a limit. A proxy that hears nothing for\n"
        "--lease has the limit divided by the number of proxies, as have all of them if this process ends; while some\n"
        "are cut off, that much for each of them may come on top. A load that moves to another broker has its limit\n"
        "there after --lease and a few seconds. SIGTERM and Ctrl-C end it. A second process\n"
        "that writes to the same topic ends with status 1 when it sees the first.",
    ),
    "alerts": _Command(
        "follow the log, and tell once who is over a limit or near it",
        "example: kafka-quota-pipeline alerts --usage kafka://broker1:9092/kafka-quota-usage \\\n"
        "             --to kafka://broker1:9092/kafka-quota-alerts --checkpoint /var/lib/alerts\n"
        "         kafka-quota-pipeline alerts --usage kafka://broker1:9092/kafka-quota-usage\n\n"
        "For each bucket and window of event time one alert at the most: over (it was throttled, or used more than\n"
        "the limit allows in the window) or near. It comes when a record is newer than the window by --late. What is\n"
        "older than the newest record by more than --late may be left out, and is counted.\n"
        "Killed at any moment it goes on from --checkpoint, and each alert is there once; readers of the topic need\n"
        "isolation.level=read_committed. SIGTERM and Ctrl-C end it.\n\n"
        "Without --to and --out alerts are printed as JSON Lines, of a topic those of what comes from now on (with\n"
        "--once of all that is there); nothing is remembered then, and --checkpoint not needed.",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            # Here and not at exit, where nobody could catch that the reader has gone.
            sys.stdout.flush()
    except BrokenPipeError:  # "kafka-quota-pipeline … | head"
        # Or the interpreter would try, and complain, once more. Of "2>&1 | head" the one is as broken as the other.
        for name in ("stdout", "stderr"):
            try:
                getattr(sys, name).flush()
            except BrokenPipeError:
                setattr(sys, name, None)
        return _NOBODY_READS


def _run(given: Sequence[str]) -> int:
    command = next((argument for argument in given if not argument.startswith("-")), None)
    args = parser(command).parse_args(given)
    try:
        errors = importlib.import_module("kafka_quota_proxy.pipeline.errors")
        module = importlib.import_module(f"kafka_quota_proxy.pipeline.commands.{args.command}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("kafka_quota_proxy"):
            raise
        sys.stderr.write(f"{_PROGRAM}: {error.name} is not installed; {_HOW_TO_INSTALL}\n")
        return 1
    try:
        status: int = module.execute(args)
    except (errors.UsageError, errors.InputError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except errors.PipelineError as error:
        sys.stderr.write(f"{_PROGRAM} {command}: {error}\n")
        return 1
    return status


def parser(chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; only the chosen command is filled in."""
    whole = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="From the usage log of kafka-quota-proxy to limits, forecasts, bills and throttles, with Spark.",
        epilog="example: kafka-quota-pipeline simulate --out usage\n"
        "         kafka-quota-pipeline capacity --usage usage --out plan\n\nCOMMAND --help tells more about each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in _COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=command.summary,
            description=f"{command.summary.capitalize()}.",
            epilog=command.example + _COMMON,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == chosen:
            add_arguments(subparser, name)
    return whole


if __name__ == "__main__":
    sys.exit(main())
