"""The command line ``kafka-quota-pipeline COMMAND …``, whose commands evaluate the usage log of the proxies.

Results go to ``--out``, a summary to stdout, and progress and errors to stderr. The exit status is 0 for success, 1 for
a failure, 2 for invalid arguments or input, and 141 if the reader of stdout is gone. Spark is imported only when a
command runs, so that ``--help`` is fast.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafka_quota_proxy.pipeline.arguments import add_arguments
from kafka_quota_proxy.pipeline.import_arguments import add_import_arguments

_PROGRAM: Final = "kafka-quota-pipeline"
# The status that a shell reports for SIGPIPE: 128 + 13.
_READER_GONE: Final = 141
_HOW_TO_INSTALL: Final = (
    "it comes with the extra pipeline: pip install '.[pipeline]' in a checkout of kafka-quota-proxy"
)
_COMMON: Final = (
    "\n\nSpark runs on this machine (local[*]) unless --master or spark-submit says otherwise. The log (--usage) is a\n"
    "file, a directory or kafka://HOST:PORT/TOPIC. A bad line never stops the job: it is counted and kept with its\n"
    "place in OUT/quarantine."
)


class _Command(NamedTuple):
    summary: str
    example: str  # the text that --help shows at its end


_COMMANDS: Final = {
    "simulate": _Command(
        "generate the usage log of many proxies, for trials and for tests of scale",
        "example: kafka-quota-pipeline simulate --entities 20 --brokers 3 --days 14 --interval 1m --out usage\n\n"
        "The same seed gives the same log. No client in it has a limit.",
    ),
    "import": _Command(
        "make a usage log of Kafka's own client metrics, while there is no proxy",
        "example: kafka-quota-pipeline import prometheus --url http://prometheus:9090 --from 2026-11-01 --out usage\n\n"
        "import prometheus --help explains it. It does not need Spark.",
    ),
    "capacity": _Command(
        "suggest limits that are safe to enforce, and forecast their effect",
        "example: kafka-quota-pipeline capacity --usage usage --out plan --capacities capacities.csv\n\n"
        "Writes report.html, quotas.yaml (for kafka-quota-proxy check and run) and tables.\n"
        "A limit is what an entity needs, times the headroom. It needs the percentile of its rates on its busiest\n"
        "broker while it was active, or more: a replay of the log with the proxy's own arithmetic must not throttle\n"
        "it for longer than the rest of the time (1 % with --percentile 99), nor delay a request by more than\n"
        "--max-delay. With --capacities, the output names each broker that cannot bear what its clients need.\n"
        "decided_by in suggestions.csv names the bound that decided each limit.",
    ),
    "whatif": _Command(
        "replay the log under other quotas: which clients would be throttled, and for how long",
        "example: kafka-quota-pipeline whatif --usage usage --quotas proposed.yaml --out forecast\n\n"
        "The quotas are a proxy's configuration file, or its quotas alone. Writes report.html and tables.",
    ),
    "chargeback": _Command(
        "add up bytes and cost for each owner",
        "example: kafka-quota-pipeline chargeback --usage usage --owners owners.csv --month 2026-10 --out bill\n\n"
        "owners.csv has the columns user, client_id, owner, from, until: an empty user or client_id is any, an empty\n"
        "date is no bound; the more specific line counts. Bytes without an owner go to (nobody): sums equal the log's.",
    ),
    "rebalance": _Command(
        "find the throttle that lets a reassignment end in a window",
        "example: kafka-quota-pipeline rebalance --usage usage --plan plan.json --sizes sizes.csv --window 6h\n\n"
        "Prints the throttle that each broker needs, and the hours in which clients use least (--timezone); --out DIR\n"
        "also writes tables.\n"
        "sizes.csv has the columns topic, partition, leader, replicas (node ids, a space between), size_bytes,\n"
        "incoming_byte_rate. By KIP-73, copying L bytes in W seconds while A bytes a second arrive needs a\n"
        "throttle of L / W + A.",
    ),
    "balance": _Command(
        "divide cluster-wide limits over brokers by demand",
        "example: kafka-quota-pipeline balance --usage usage --limits cluster.yaml --out shares\n\n"
        "Writes a quotas.yaml for each proxy. Each broker gets a floor of each limit, the rest goes by demand.",
    ),
    "alerts": _Command(
        "print each bucket that was over a limit or near it, for each minute of the log",
        "example: kafka-quota-pipeline alerts --usage usage --from 2026-09-07T08:00\n"
        "         kafka-quota-pipeline alerts --usage kafka://broker1:9092/kafka-quota-usage --window 10s\n\n"
        "Prints JSON Lines in the order of time. Each bucket and window has at most one alert: over (it was\n"
        "throttled, or used more than the limit allows in the window) or near.",
    ),
    "ingest": _Command(
        "add the log of a cluster to a lake: a table by day, without duplicates and bad lines",
        "example: kafka-quota-pipeline ingest --usage usage --lake lake\n"
        "         kafka-quota-pipeline ingest --usage kafka://broker1:9092/kafka-quota-usage --from 2026-09-07 \\\n"
        "             --lake hdfs:///kafka-quota-lake --cluster orders\n"
        "         kafka-quota-pipeline capacity --usage lake --from 2026-09-01 --until 2026-10-01 --out plan\n\n"
        "Run it from a scheduler. Each record gets into the lake once, even if its file is read again. The lake is a\n"
        "table of Delta Lake, which Spark downloads.",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            # stdout is flushed here, since at exit a BrokenPipeError could not be caught.
            sys.stdout.flush()
    except BrokenPipeError:  # "kafka-quota-pipeline … | head"
        # The interpreter would flush a broken stream again at exit and print an error. After "2>&1 | head", both
        # streams are broken.
        for name in ("stdout", "stderr"):
            try:
                getattr(sys, name).flush()
            except BrokenPipeError:
                setattr(sys, name, None)
        return _READER_GONE


def _run(given: Sequence[str]) -> int:
    command = next((argument for argument in given if not argument.startswith("-")), None)
    args = parser(command).parse_args(given)
    module_name = getattr(args, "module", args.command)
    try:
        errors = importlib.import_module("kafka_quota_proxy.pipeline.errors")
        module = importlib.import_module(f"kafka_quota_proxy.pipeline.commands.{module_name}")
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
    except BrokenPipeError:
        raise
    except (errors.PipelineError, OSError) as error:  # such as a full disk, or a store that does not answer
        sys.stderr.write(f"{_PROGRAM} {command}: {error}\n")
        return 1
    return status


def parser(chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser for the whole command line. Only the command ``chosen`` has its own arguments in it."""
    whole = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="From the usage log of kafka-quota-proxy to limits, forecasts, bills and throttles, with Spark.",
        epilog="example: kafka-quota-pipeline simulate --out usage\n"
        "         kafka-quota-pipeline capacity --usage usage --out plan\n\nCOMMAND --help explains each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in _COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=command.summary,
            description=f"{command.summary.capitalize()}.",
            epilog=command.example + ("" if name == "import" else _COMMON),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == chosen == "import":
            add_import_arguments(subparser)
        elif name == chosen:
            add_arguments(subparser, name)
    return whole


if __name__ == "__main__":
    sys.exit(main())
