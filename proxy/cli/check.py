"""``kafka-quota-proxy check`` reports all faults in a configuration file, with their line numbers.

The command also reads the directory in which the quotas that clients set are stored. It never writes to this directory,
because a running proxy may be using it.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.document import Document, fault_at, parse
from kafka_quota_proxy.config.errors import ConfigError, Fault, Severity
from kafka_quota_proxy.config.load import load_read, read
from kafka_quota_proxy.config.model import ProxyConfig, Store
from kafka_quota_proxy.proxy.rules.source import UnusableSourceError
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import read_store
from kafka_quota_proxy.proxy.runtime.disk_access import directory_fault, file_fault

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
    of_disk = _disk_faults(config, parse(data.decode(), file=file))
    listeners, quotas = len(config.listeners), len(config.quotas) + len(config.ip_quotas)
    return _CheckResult(
        file,
        tuple(sorted((*loaded.warnings, *of_disk), key=lambda finding: finding.line)),
        f"{_count(listeners, 'listener')}, {_count(quotas, 'quota')}",
    )


def _as_json(checked: _CheckResult) -> dict[str, object]:
    findings = [
        {"severity": one.severity.value, "file": one.file, "line": one.line, "key": one.key, "message": one.message}
        for one in checked.findings
    ]
    return {"file": checked.file, "valid": checked.is_valid, "findings": findings}


def _disk_faults(config: ProxyConfig, document: Document) -> Iterator[Fault]:
    """Yield a fault for each path in the configuration that the current user cannot use."""
    store, files = config.store, config.usage_log.files if config.usage_log else None
    if store is not None and store.audit_log and (fault := file_fault(Path(store.audit_log))):
        yield fault_at(document, ("store", "audit_log"), fault)
    # The proxy starts even if the usage log cannot be written, and tries again later.
    if files is not None and (fault := directory_fault(Path(files.directory))):
        yield fault_at(document, ("usage_log", "directory"), fault, Severity.WARNING)
    if store is not None and store.path is not None:
        for message, severity in store_faults(store, Path(store.path)):
            yield fault_at(document, ("store", "directory"), message, severity)


def store_faults(store: Store, path: Path) -> Iterator[tuple[str, Severity]]:
    """Yield what is wrong with ``path``, the directory with the quotas that clients have set, and the remedy.

    With an error a proxy does not start. What a warning is about, it repairs or ignores.
    """
    fault = directory_fault(path)
    if fault:
        yield fault, Severity.ERROR
    try:
        stored = read_store(path, is_copy=store.topic is not None) if path.is_dir() else None
    except UnusableSourceError as error:
        yield str(error), Severity.ERROR
    except OSError as error:
        if not fault:
            yield f"{path} cannot be used: {error.strerror or error}", Severity.ERROR
    else:
        if stored is not None and stored.damage is not None:
            yield f"{stored.damage}; the proxy will set it aside when it starts", Severity.WARNING
        if stored is not None and stored.left_out is not None:
            yield stored.left_out, Severity.WARNING


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
