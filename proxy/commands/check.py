"""``kafka-quota-proxy check``: every fault of a file, each at its line."""

import argparse
import sys
from pathlib import Path

from config.document import parse
from config.errors import ConfigError, Fault, Severity
from config.load import load
from config.model import ProxyConfig, QuotasFromBroker
from proxy.commands.checked_store import StoreReport, report_on


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
    config = loaded.config
    store = config.store
    report = None if store is None or store.path is None else report_on(store, Path(store.path), config)
    for warning in (*loaded.warnings, *_warnings(report, args.config)):
        sys.stderr.write(f"{warning}\n")
    for shadowed in report.shadowed if report else ():
        sys.stderr.write(f"{shadowed}\n")
    listeners, quotas = len(config.listeners), len(config.quotas) + len(config.ip_quotas)
    more = f"{_elsewhere(config)}{_stored(config, report)}"
    sys.stdout.write(f"{args.config}: valid, {_count(listeners, 'listener')}, {_count(quotas, 'quota')}{more}\n")
    return 0


def _elsewhere(config: ProxyConfig) -> str:
    """Say whose quotas hold, too, and are not looked at."""
    whose = "the brokers" if isinstance(config.quotas_from, QuotasFromBroker) else config.quotas_from
    if config.store is not None:  # and so no quotas_from
        whose = config.store.topic
    return f", and those of {whose}" if whose else ""


def _stored(config: ProxyConfig, report: StoreReport | None) -> str:
    """Say what is in the directory of the store."""
    if config.store is None or report is None:
        return ""
    if not report.is_there:
        told = f"those of {config.store.path}, which is not there yet"
    elif report.quotas is None:
        told = f"those of {config.store.path}, which cannot be read"
    else:
        told = f"{report.quotas} of {config.store.path}"
    if report.shadowed:
        told += f" ({len(report.shadowed)} of them set in this file, too)"
    # A topic has more than what is known of it here.
    return f"; known last: {told}" if config.store.topic else f", and {told}"


def _warnings(report: StoreReport | None, file: Path) -> tuple[Fault, ...]:
    """Return what is wrong with the directory, at the line where the file names it."""
    if report is None or not report.warnings:
        return ()
    line = parse(file.read_text(encoding="utf-8"), file=str(file)).line(("store", "directory"))
    return tuple(
        Fault(file=str(file), line=line, key="store.directory", message=message, severity=Severity.WARNING)
        for message in report.warnings
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
