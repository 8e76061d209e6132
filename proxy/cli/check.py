"""``kafka-quota-proxy check`` reports all faults in a configuration file, with their line numbers.

The command also reads the directory in which the quotas that clients set are stored. It never writes to this directory,
because a running proxy may be using it.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.document import Document, fault_at, parse
from kafka_quota_proxy.config.errors import ConfigError, Fault, Severity
from kafka_quota_proxy.config.load import load_read, read
from kafka_quota_proxy.config.model import ProxyConfig, QuotasFromBroker, Store
from kafka_quota_proxy.proxy.cli.writable_paths import AUDIT_LOG, USAGE_LOG, audit_log_fault, usage_log_fault
from kafka_quota_proxy.proxy.rules.effective import EffectiveRules
from kafka_quota_proxy.proxy.rules.model import Change
from kafka_quota_proxy.proxy.rules.source import UnusableSourceError
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import read_store
from kafka_quota_proxy.proxy.runtime.disk_access import directory_fault

_INPUT: Final = "-"
_INPUT_NAME: Final = "<stdin>"


class _CheckResult(NamedTuple):
    """The faults found in a configuration file, in the order of its lines.

    ``summary`` says what a valid file configures. It is None if the file is invalid.
    """

    file: str
    findings: tuple[Fault, ...]
    summary: str | None

    @property
    def is_valid(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``check``."""
    parser.add_argument("config", metavar="CONFIG", help=f"the YAML file; {_INPUT} reads standard input")
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    parser.add_argument("--json", action="store_true", help="print an object with the list of findings")


def execute(args: argparse.Namespace) -> int:
    """Check the configuration file and print its faults. Return 0 if the file can be used and 2 if not."""
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


def _check(path: str) -> _CheckResult:
    file = _INPUT_NAME if path == _INPUT else path
    try:
        data = sys.stdin.buffer.read() if path == _INPUT else read(path)
        loaded = load_read(data, file=file)
    except ConfigError as error:
        return _CheckResult(file, error.faults, None)
    config = loaded.config
    store = config.store
    report = None if store is None or store.path is None else report_on(store, Path(store.path), config)
    document = parse(data.decode(), file=file)
    of_disk = tuple(_disk_faults(report, config, document))
    listeners, quotas = len(config.listeners), len(config.quotas) + len(config.ip_quotas)
    more = f"{_other_sources(config)}{_store_summary(config, report)}"
    return _CheckResult(
        file,
        tuple(sorted((*loaded.warnings, *of_disk), key=lambda finding: finding.line)),
        f"{_count(listeners, 'listener')}, {_count(quotas, 'quota')}{more}",
    )


def _as_json(checked: _CheckResult) -> dict[str, object]:
    findings = [
        {"severity": one.severity.value, "file": one.file, "line": one.line, "key": one.key, "message": one.message}
        for one in checked.findings
    ]
    return {"file": checked.file, "valid": checked.is_valid, "findings": findings}


class StoreReport(NamedTuple):
    """What ``check`` has found in the directory in which the quotas that clients set are stored."""

    quotas: int | None  # the number of entities with quotas, or None if unknown
    shadowed: tuple[str, ...] = ()  # the quotas that the configuration file overrides, with FILE:LINE
    warnings: tuple[str, ...] = ()  # faults that a proxy repairs or ignores, with the remedy
    errors: tuple[str, ...] = ()  # faults that keep a proxy from starting, with the remedy
    is_there: bool = True


def report_on(store: Store, path: Path, config: ProxyConfig) -> StoreReport:
    """Examine ``path``, the directory with the quotas that clients have set, and report what was found."""
    fault = directory_fault(path)
    errors = () if fault is None else (fault,)
    try:
        if not path.is_dir():
            is_there = path.exists()
            return StoreReport(None if is_there else 0, errors=errors, is_there=is_there)
        stored = read_store(path, is_copy=store.topic is not None)
    except UnusableSourceError as error:
        return StoreReport(None, errors=(*errors, str(error)))
    except OSError as error:
        return StoreReport(None, errors=errors or (f"{path} cannot be used: {error.strerror or error}",))
    warnings = [] if stored.damage is None else [f"{stored.damage}; the proxy will set it aside when it starts"]
    if stored.left_out is not None:
        warnings.append(stored.left_out)
    now_ms = time.time_ns() // 1_000_000
    effective = EffectiveRules(config, name=str(path), now_ms=now_ms)
    effective.change((Change(*one) for one in stored.rules.items()), now_ms=now_ms)
    return StoreReport(len(stored.rules), effective.doubles, tuple(warnings), errors)


def _disk_faults(report: StoreReport | None, config: ProxyConfig, document: Document) -> Iterator[Fault]:
    """Yield a fault for each unusable path in the configuration, and for each problem with the store.

    Each fault contains the line in the configuration file that it is about.
    """
    if fault := audit_log_fault(config):
        yield fault_at(document, AUDIT_LOG, fault)
    if fault := usage_log_fault(config):
        yield fault_at(document, USAGE_LOG, fault, Severity.WARNING)
    if report is None:
        return
    for message in report.errors:
        yield fault_at(document, ("store", "directory"), message)
    for message in report.warnings:
        yield fault_at(document, ("store", "directory"), message, Severity.WARNING)
    count = len(config.quotas) + len(config.ip_quotas)
    rules = {document.line(("quotas", index)): index for index in range(count)}
    for shadowed in report.shadowed:
        digits, _, message = shadowed.removeprefix(f"{document.file}:").partition(": ")
        line = int(digits)
        yield Fault(
            file=document.file, line=line, key=f"quotas[{rules[line]}]", message=message, severity=Severity.WARNING
        )


def _other_sources(config: ProxyConfig) -> str:
    """Return the part of the summary that names the sources of quotas which ``check`` does not read."""
    source = "the brokers" if isinstance(config.quotas_from, QuotasFromBroker) else config.quotas_from
    if config.store is not None:  # a configuration with a store has no quotas_from
        source = config.store.topic
    return f", and those of {source}" if source else ""


def _store_summary(config: ProxyConfig, report: StoreReport | None) -> str:
    """Return the part of the summary about quotas in a local directory, or "" if no directory is configured."""
    if config.store is None or report is None:
        return ""
    if not report.is_there:
        summary = f"those of {config.store.path}, which does not exist yet"
    elif report.quotas is None:
        summary = f"those of {config.store.path}, which cannot be read"
    else:
        summary = f"{report.quotas} of {config.store.path}"
    if report.shadowed:
        summary += f" ({len(report.shadowed)} of them set in this file, too)"
    # If the store is a topic, its directory is a copy that may be incomplete.
    return f"; last known: {summary}" if config.store.topic else f", and {summary}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
