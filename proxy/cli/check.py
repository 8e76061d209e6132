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
from typing import Final

from kafka_quota_proxy.config.document import Document, fault_at, parse
from kafka_quota_proxy.config.errors import ConfigError, Fault, Severity
from kafka_quota_proxy.config.load import load_bytes, read
from kafka_quota_proxy.config.model import ProxyConfig, UsageFiles
from kafka_quota_proxy.proxy.rules.source import UnusableSourceError
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import read_store
from kafka_quota_proxy.proxy.runtime.disk_access import directory_fault, file_fault

_INPUT: Final = "-"
_INPUT_NAME: Final = "<stdin>"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``check``."""
    parser.add_argument("config", metavar="CONFIG", help=f"the YAML file; {_INPUT} reads standard input")
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    parser.add_argument("--json", action="store_true", help="print an object with the list of findings")


def execute(args: argparse.Namespace) -> int:
    """Check the configuration file and print its faults. Return 0 if the file can be used and 2 if not."""
    file, summary = _INPUT_NAME if args.config == _INPUT else args.config, ""
    try:
        data = sys.stdin.buffer.read() if args.config == _INPUT else read(args.config)
        loaded = load_bytes(data, file=file, reads_files=True)
    except ConfigError as error:
        found = list(error.faults)
    else:
        config = loaded.config
        found = [*loaded.warnings, *_disk_faults(config, parse(data.decode(), file=file))]
        listeners, quotas = len(config.listeners), len(config.quotas) + len(config.ip_quotas)
        summary = f"{_count(listeners, 'listener')}, {_count(quotas, 'quota')}"
    findings = sorted(found, key=lambda finding: finding.line)
    if args.strict:
        findings = [replace(finding, severity=Severity.ERROR) for finding in findings]
    is_valid = all(finding.severity is not Severity.ERROR for finding in findings)
    if args.json:
        fields = [
            {"severity": one.severity.value, "file": one.file, "line": one.line, "key": one.key, "message": one.message}
            for one in findings
        ]
        sys.stdout.write(f"{json.dumps({'file': file, 'valid': is_valid, 'findings': fields}, indent=2)}\n")
    else:
        sys.stderr.writelines(f"{finding}\n" for finding in findings)
        if is_valid:
            sys.stdout.write(f"{file}: valid, {summary}\n")
    return 0 if is_valid else 2


def _disk_faults(config: ProxyConfig, document: Document) -> Iterator[Fault]:
    """Yield a fault for each path in the configuration that the current user cannot use."""
    store, log = config.store, config.usage_log
    if store is not None and store.audit_log and (fault := file_fault(Path(store.audit_log))):
        yield fault_at(document, ("store", "audit_log"), fault)
    # The proxy starts even if the usage log cannot be written, and tries again later.
    if log and isinstance(log.to, UsageFiles) and (fault := directory_fault(Path(log.to.directory))):
        yield fault_at(document, ("usage_log", "directory"), fault, Severity.WARNING)
    if store is not None and store.directory is not None:
        for message in store_faults(Path(store.directory)):
            yield fault_at(document, ("store", "directory"), message)


def store_faults(path: Path) -> Iterator[str]:
    """Yield what is wrong with ``path``, the directory with the quotas that clients have set, and the remedy."""
    fault = directory_fault(path)
    if fault:
        yield fault
    try:
        if path.is_dir():
            read_store(path)
    except UnusableSourceError as error:
        yield str(error)
    except OSError as error:
        if not fault:
            yield f"{path} cannot be used: {error.strerror or error}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
