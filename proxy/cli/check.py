"""``kafka-quota-proxy check``: every fault of a file, each at its line."""

import argparse
import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.document import Document, Location, fault_at, parse
from kafka_quota_proxy.config.errors import ConfigError, Fault, Severity
from kafka_quota_proxy.config.load import load_read, read
from kafka_quota_proxy.config.model import ProxyConfig, QuotasFromBroker
from kafka_quota_proxy.config.one_broker_checks import check_one_broker, hosts_to_find
from kafka_quota_proxy.proxy.cli.checked_places import AUDIT_LOG, USAGE_LOG, audit_log_fault, usage_log_fault
from kafka_quota_proxy.proxy.cli.checked_store import StoreReport, report_on

_INPUT: Final = "-"
_INPUT_NAME: Final = "<stdin>"


class _Checked(NamedTuple):
    """What was found in a file, in the order of lines; ``summary`` is None where the file cannot be used."""

    file: str
    findings: tuple[Fault, ...]
    summary: str | None

    @property
    def is_valid(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``check``."""
    parser.add_argument("config", metavar="CONFIG", help=f"the YAML file; {_INPUT} reads standard input")
    parser.add_argument("--strict", action="store_true", help="take warnings for errors")
    parser.add_argument("--json", action="store_true", help="print an object with the list of findings")


def execute(args: argparse.Namespace) -> int:
    """Print the findings; return 0 if the file can be used and 2 if not."""
    checked = _check(args.config)
    if args.strict:
        errors = (replace(finding, severity=Severity.ERROR) for finding in checked.findings)
        checked = checked._replace(findings=tuple(errors))
    if args.json:
        sys.stdout.write(f"{json.dumps(_as_json(checked), indent=2)}\n")
    else:
        sys.stderr.writelines(f"{finding}\n" for finding in checked.findings)
        if checked.is_valid:
            sys.stdout.write(f"{checked.file}: valid, {checked.summary}\n")
    return 0 if checked.is_valid else 2


def _check(path: str) -> _Checked:
    file = _INPUT_NAME if path == _INPUT else path
    try:
        data = sys.stdin.buffer.read() if path == _INPUT else read(path)
        loaded = load_read(data, file=file)
    except ConfigError as error:
        return _Checked(file, error.faults, None)
    config = loaded.config
    store = config.store
    report = None if store is None or store.path is None else report_on(store, Path(store.path), config)
    document = parse(data.decode(), file=file)
    of_disk = tuple(_of_disk(report, config, document))
    listeners, quotas = len(config.listeners), len(config.quotas) + len(config.ip_quotas)
    more = f"{_elsewhere(config)}{_stored(config, report)}"
    return _Checked(
        file,
        tuple(sorted((*loaded.warnings, *of_disk, *_of_names(document)), key=lambda finding: finding.line)),
        f"{_count(listeners, 'listener')}, {_count(quotas, 'quota')}{more}",
    )


def _as_json(checked: _Checked) -> dict[str, object]:
    findings = [
        {
            "severity": finding.severity.value,
            "file": finding.file,
            "line": finding.line,
            "key": finding.key,
            "message": finding.message,
        }
        for finding in checked.findings
    ]
    return {"file": checked.file, "valid": checked.is_valid, "findings": findings}


def _of_disk(report: StoreReport | None, config: ProxyConfig, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with places on the disk, at the lines that name them, and the rules that a store has too."""
    if told := audit_log_fault(config):
        yield fault_at(document, AUDIT_LOG, told)
    if told := usage_log_fault(config):
        yield fault_at(document, USAGE_LOG, told, Severity.WARNING)
    if report is None:
        return
    for message in report.errors:
        yield fault_at(document, ("store", "directory"), message)
    for message in report.warnings:
        yield fault_at(document, ("store", "directory"), message, Severity.WARNING)
    rules = {rule_line: index for index, rule_line in enumerate(document.element_lines("quotas"))}
    for shadowed in report.shadowed:
        digits, _, message = shadowed.removeprefix(f"{document.file}:").partition(": ")
        line = int(digits)
        yield Fault(
            file=document.file, line=line, key=f"quotas[{rules[line]}]", message=message, severity=Severity.WARNING
        )


def _of_names(document: Document) -> list[Fault]:
    """Return what the addresses of hosts tell, which are looked up where two names may be one broker's."""
    hosts = {name: found for name in hosts_to_find(document) if (found := _addresses_of(name))}
    faults: list[Fault] = []

    def warn(location: Location, message: str) -> None:
        faults.append(fault_at(document, location, message, Severity.WARNING))

    check_one_broker(document, warn, hosts=hosts)
    return faults


def _addresses_of(host: str) -> frozenset[str]:
    try:
        return frozenset(str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return frozenset()


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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
