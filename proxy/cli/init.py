"""The ``kafka-quota-proxy init`` command, which writes a starter configuration file."""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.addresses import parse_addresses
from kafka_quota_proxy.config.errors import UnitError

_OUTPUT: Final = "-"
_FILE: Final = "kafka-quota-proxy.yaml"
_BOOTSTRAP_SERVERS: Final = "127.0.0.1:9092"
_BIND: Final = "127.0.0.1:9192"

_STARTER: Final = """\
# Configuration of kafka-quota-proxy. The proxy reads this file again when it changes, also for open connections.
# docs/reference/configuration.md describes all keys.

listeners:
  - name: clients                     # appears in logs and metrics
    bind: 127.0.0.1:9192              # where clients connect: their bootstrap.servers
    # advertised_host: proxy.example  # with bind 0.0.0.0:9192: the host name by which clients reach this machine
    # The brokers. The proxy opens a port for each of them: 9193 for node id 0, 9194 for node id 1, and so on.
    bootstrap_servers: {servers}

# respond: a client over its quota has to wait. observe: no client waits; metrics and the log show which ones would.
enforcement: respond
shaping: paced                        # even rates; sampled: Kafka's own windows, which allow bursts

# Limits at each broker, in bytes per second. The most specific rule that matches a client applies.
# To see it: kafka-quota-proxy explain FILE --client-id my-app
quotas:
  # Clients with this client.id. <default> stands for every user.
  - {{user: <default>, client-id: my-app, producer_byte_rate: 1MiB, consumer_byte_rate: 2MiB}}
  # All other clients of a user together. Without this rule they have no limit.
  # - {{user: <default>, producer_byte_rate: 10MiB, consumer_byte_rate: 20MiB}}

admin:
  bind: 127.0.0.1:9308                # http://127.0.0.1:9308/metrics, for Prometheus; /livez and /readyz, for probes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``init``."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default=_FILE, help=f"the file to write (default {_FILE}); - prints it"
    )
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT[,…]",
        type=_addresses,
        default=_BOOTSTRAP_SERVERS,
        help=f"the brokers of the cluster (default {_BOOTSTRAP_SERVERS})",
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")


def execute(args: argparse.Namespace) -> int:
    """Write the starter file and print the next commands. Return 1 if the file exists or cannot be written."""
    # JSON quotes the text, as YAML needs it for IPv6 addresses.
    text = _STARTER.format(servers=json.dumps(args.bootstrap_servers))
    if args.file == _OUTPUT:
        sys.stdout.write(text)
        return 0
    try:
        with Path(args.file).open("w" if args.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return _fail(f"{args.file} exists; choose another name, or overwrite it with --force")
    except OSError as error:
        return _fail(f"{args.file} cannot be written: {error.strerror or error}")
    name = shlex.quote(args.file)
    sys.stdout.write(
        f"Wrote {args.file}. Edit its quotas, then:\n\n"
        f"  kafka-quota-proxy check {name}\n"
        f"  kafka-quota-proxy run {name}\n\n"
        f"and give your clients bootstrap.servers={_BIND}\n"
    )
    return 0


def _addresses(text: str) -> str:
    try:
        return ",".join(map(str, parse_addresses(text)))
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _fail(message: str) -> int:
    sys.stderr.write(f"kafka-quota-proxy init: {message}\n")
    return 1
