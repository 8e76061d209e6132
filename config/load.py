"""Loads the configuration file. The result is a valid configuration, or an error that lists every fault."""

import gc
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafka_quota_proxy.config import (
    cluster_checks,
    fair_call_queue_checks,
    listener_checks,
    replication_checks,
    rule_reach_checks,
    weak_limit_checks,
)
from kafka_quota_proxy.config.addresses import default_broker_ports
from kafka_quota_proxy.config.document import Document, Finding, fault_at, parse
from kafka_quota_proxy.config.errors import ConfigError, Fault, Severity
from kafka_quota_proxy.config.fair_call_queue_options import settings
from kafka_quota_proxy.config.model import Address, Cluster, IpRule, Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.principals import Fold, Principals
from kafka_quota_proxy.config.schema import FILE
from kafka_quota_proxy.config.sections import Part, SectionReader
from kafka_quota_proxy.config.tls_files import check_files
from kafka_quota_proxy.config.token_file import check_token_file

# Takes what the file says and the document, which has the line of each key.
Check = Callable[[Part, Document], Iterator[Finding]]

CHECKS: Final[tuple[Check, ...]] = (
    *listener_checks.CHECKS,
    *rule_reach_checks.CHECKS,
    *replication_checks.CHECKS,
    *fair_call_queue_checks.CHECKS,
    *cluster_checks.CHECKS,
    *weak_limit_checks.CHECKS,
)
# These read other files.
CHECKS_OF_FILES: Final[tuple[Check, ...]] = (
    check_files,
    check_token_file,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A valid configuration with the warnings about it.

    ``hash`` is the first 16 hexadecimal digits of the SHA-256 of the file's bytes.
    """

    config: ProxyConfig
    warnings: tuple[Fault, ...]
    hash: str
    kafka_sources: Mapping[str, str]  # FILE:LINE of each key in the section kafka


@contextmanager
def _without_cyclic_gc() -> Iterator[None]:
    """Pause the cyclic garbage collector, which takes 0.25 s of 0.65 s for 10,000 rules and finds no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load(path: str | Path, *, reads_files: bool = True) -> Loaded:
    """Read and check a configuration file. Raises ConfigError with all faults if the file is not valid.

    This takes about 0.4 s for 10,000 rules, so do not call it in the thread of an event loop. If ``reads_files``, the
    certificates, keys and token that the file names are checked as well.
    """
    return load_bytes(read(path), file=str(path), reads_files=reads_files)


def read(path: str | Path) -> bytes:
    """Return the bytes of a configuration file. Raises ConfigError if the file cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}; use the path of a YAML file"
        raise ConfigError([Fault(file=str(path), line=1, key="(file)", message=message)]) from error


@_without_cyclic_gc()
def load_bytes(data: bytes, *, file: str, reads_files: bool = False) -> Loaded:
    """Check the bytes of a configuration file as ``load`` does. Relative paths start from the directory of ``file``."""
    document = parse(_decoded(data, file), file=file)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else f"is {document.kind(())}"
        message = f"{what}; a configuration is a mapping with at least the key listeners"
        raise ConfigError([*document.faults, Fault(file=file, line=1, key="(file)", message=message)])
    reader = SectionReader(document, FILE)
    top = reader.read()
    checks = CHECKS + (CHECKS_OF_FILES if reads_files else ())
    try:
        found = [fault_at(document, *finding) for check in checks for finding in check(top, document)]
        faults = [*document.faults, *found, *reader.faults]
        if any(fault.severity is Severity.ERROR for fault in faults):
            raise ConfigError(faults)
        return Loaded(
            config=_config(top.made),
            warnings=tuple(sorted(faults, key=lambda fault: fault.line)),
            hash=hashlib.sha256(data).hexdigest()[:16],
            kafka_sources={key: f"{file}:{document.line(('kafka', key))}" for key in top.find("kafka") or ()},
        )
    finally:
        document.release(top)


def _decoded(data: bytes, file: str) -> str:
    try:
        return data.decode()  # PyYAML itself skips a byte order mark
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        raise ConfigError([Fault(file=file, line=line, key="(file)", message=message)]) from error


def _config(given: dict[str, Any]) -> ProxyConfig:
    """Create the configuration from the validated values of the top-level keys, with defaults for missing keys."""
    for_all = given.pop("fair_call_queue", None)
    rules = given.pop("quotas", ())
    principals = given.pop("principals", Principals())
    return ProxyConfig(
        **given | {"listeners": tuple(_listener(each, for_all, principals.fold) for each in given["listeners"])},
        principals=principals,
        quotas=tuple(rule for rule in rules if isinstance(rule, QuotaRule)),
        ip_quotas=tuple(rule for rule in rules if isinstance(rule, IpRule)),
    )


def _listener(given: dict[str, Any], for_all: dict[str, Any] | None, fold: tuple[Fold, ...]) -> Listener:
    queue = given.pop("fair_call_queue", for_all)
    bind: Address = given["bind"]
    servers = given.pop("bootstrap_servers", None)
    host = given.pop("advertised_host", bind.host)
    first, last = given.pop("broker_ports", default_broker_ports(bind))
    if servers:
        given["cluster"] = Cluster(bootstrap_servers=servers, advertised_host=host, first_port=first, last_port=last)
    return Listener(**given, fair_call_queue=None if queue is None else settings({**queue, "fold": fold}))
