"""``kafka-quota-proxy check``: every fault of a file, each at its line."""

import argparse
import sys
from pathlib import Path

from config.errors import ConfigError
from config.load import load
from config.model import QuotasFromBroker


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``check``."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the YAML file")


def execute(args: argparse.Namespace) -> int:
    """Print the faults; return 0 if the file can be used and 2 if not."""
    try:
        loaded = load(args.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for warning in loaded.warnings:
        sys.stderr.write(f"{warning}\n")
    config = loaded.config
    listeners, quotas = len(config.listeners), len(config.quotas) + len(config.ip_quotas)
    whose = "the brokers" if isinstance(config.quotas_from, QuotasFromBroker) else config.quotas_from
    if config.store is not None:  # and so no quotas_from
        whose = config.store.topic
    more = f", and those of {whose}" if whose else ""
    sys.stdout.write(f"{args.config}: valid, {_count(listeners, 'listener')}, {_count(quotas, 'quota')}{more}\n")
    return 0


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
