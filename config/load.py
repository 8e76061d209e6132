"""Load the operator's file: a valid configuration, or an error with every fault."""

import gc
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from kafka_quota_proxy.config.addresses import default_broker_ports
from kafka_quota_proxy.config.cluster_schema import QuotasFromSection, ReplicationSection, StoreSection, UsageLogSection
from kafka_quota_proxy.config.document import Document, parse
from kafka_quota_proxy.config.errors import ConfigError, Fault, InvalidConfigError, Severity, UnreadableFileError
from kafka_quota_proxy.config.fair_call_queue_checks import check_identity_functions
from kafka_quota_proxy.config.fair_call_queue_options import settings
from kafka_quota_proxy.config.fair_call_queue_schema import FairCallQueueSection
from kafka_quota_proxy.config.file_checks import check
from kafka_quota_proxy.config.listener_schema import ListenerSection
from kafka_quota_proxy.config.model import (
    Admin,
    AdminClient,
    Cluster,
    IpRule,
    KafkaSettings,
    Listener,
    Log,
    ProxyConfig,
    QuotaRule,
    QuotasFrom,
    QuotasFromBroker,
    Replication,
    ReplicationPath,
    Store,
    UsageFiles,
    UsageLog,
    UsageTopic,
)
from kafka_quota_proxy.config.principals import Fold, Principals
from kafka_quota_proxy.config.quota_schema import KafkaSection, PrincipalsSection
from kafka_quota_proxy.config.schema import FileSection
from kafka_quota_proxy.config.schema_faults import faults_of
from kafka_quota_proxy.config.schema_fields import Section
from kafka_quota_proxy.config.security import ClientTls, Sasl, UpstreamTls
from kafka_quota_proxy.config.tls_files import ADMIN_CLIENT_FILE_KEYS, FILE_KEYS, check_admin_client_files, check_files
from kafka_quota_proxy.config.token_file import check_token_file

_PATHS: Final = (*FILE_KEYS, *ADMIN_CLIENT_FILE_KEYS, "directory", "audit_log", "quotas_token_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A valid file. ``hash`` is the first 16 hexadecimal digits of the SHA-256 of its bytes."""

    config: ProxyConfig
    warnings: tuple[Fault, ...]
    hash: str
    kafka_sources: Mapping[str, str]  # FILE:LINE of each key under kafka


def load(path: str | Path, *, reads_files: bool = True) -> Loaded:
    """Read and check a file: about 0.4 s for 10,000 rules, so not in an event loop's thread.

    It also reads the certificates and keys that the file names, and looks for the packages that it needs, unless
    ``reads_files`` is false.

    Raises:
        ConfigError: With every fault of the file, warnings among them.
    """
    return load_read(read(path), file=str(path), reads_files=reads_files)


def read(path: str | Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        UnreadableFileError: The file cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}; give the path of a YAML file"
        raise UnreadableFileError([Fault(file=str(path), line=1, key="(file)", message=message)]) from error


def load_read(data: bytes, *, file: str, reads_files: bool = True) -> Loaded:
    """Check bytes as ``load`` does. Relative paths start from the directory of ``file``.

    Raises:
        ConfigError: As for ``load``.
    """
    with _without_cyclic_gc():
        return _load(data, file=file, reads_files=reads_files, now=datetime.now(UTC))


def load_bytes(data: bytes, *, file: str) -> Loaded:
    """Check bytes without I/O or a clock: files that the configuration names may not exist.

    Raises:
        ConfigError: With every fault of the file, warnings among them.
    """
    return _load(data, file=file, reads_files=False, now=None)


def _load(data: bytes, *, file: str, reads_files: bool, now: datetime | None) -> Loaded:
    document = parse(_decoded(data, file), file=file)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else f"is {document.kind(())}"
        message = f"{what}; a configuration is a mapping that has listeners at least"
        raise InvalidConfigError([*document.faults, Fault(file=file, line=1, key="(file)", message=message)])
    section: FileSection | None = None
    faults = [*document.faults, *check(document, now_ms=None if now is None else int(now.timestamp() * 1_000))]
    if reads_files and now is not None:
        faults += check_files(document, Path(file).parent, now=now)
        faults += check_admin_client_files(document, Path(file).parent)
        faults += check_token_file(document, Path(file).parent)
        faults += check_identity_functions(document)
    try:
        section = FileSection.model_validate(document.data)
    except ValidationError as error:
        faults += faults_of(error.errors(include_url=False), document)
    if section is None or any(fault.severity is Severity.ERROR for fault in faults):
        raise InvalidConfigError(faults)
    return Loaded(
        config=_config(section, document),
        warnings=tuple(sorted(faults, key=lambda fault: fault.line)),
        hash=hashlib.sha256(data).hexdigest()[:16],
        kafka_sources=_kafka_sources(document),
    )


@contextmanager
def _without_cyclic_gc() -> Iterator[None]:
    """Pause the garbage collector, which would walk the growing tree many times with all threads stopped.

    With 10,000 rules that was 0.25 s of 0.65 s. The tree has no cycles: it goes with its last reference.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decoded(data: bytes, file: str) -> str:
    try:
        return data.decode()  # PyYAML itself skips a byte order mark
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        raise UnreadableFileError([Fault(file=file, line=line, key="(file)", message=message)]) from error


def _config(section: FileSection, document: Document) -> ProxyConfig:
    """Return the model. Keys that the file leaves out have the model's defaults."""
    given = section.given()
    for_all = given.pop("fair_call_queue", None)
    principals = _principals(section.principals)
    given["listeners"] = tuple(
        _listener(listener, Path(document.file).parent, for_all, principals.fold) for listener in section.listeners
    )
    lines = document.element_lines("quotas")
    rules = [(rule.given(), f"{document.file}:{line}") for rule, line in zip(section.quotas, lines, strict=True)]
    given["quotas"] = tuple(QuotaRule(**rule, source=source) for rule, source in rules if "ip" not in rule)
    given["ip_quotas"] = tuple(IpRule(**rule, source=source) for rule, source in rules if "ip" in rule)
    given["kafka"] = _kafka(section.kafka)
    given["principals"] = principals
    if "replication" in given:
        given["replication"] = _replication(section.replication, document)
    if "usage_log" in given:
        given["usage_log"] = _usage_log(section.usage_log, Path(document.file).parent)
    if "quotas_from" in given:
        given["quotas_from"] = _quotas_from(section.quotas_from, Path(document.file).parent)
    if "store" in given:
        given["store"] = _store(section.store, Path(document.file).parent)
    given["admin"] = Admin(**_with_paths(section.admin, Path(document.file).parent)) if section.admin else None
    given["log"] = Log(**section.log.given()) if section.log else Log()
    return ProxyConfig(**given)


def _listener(
    section: ListenerSection, directory: Path, for_all: FairCallQueueSection | None, fold: tuple[Fold, ...]
) -> Listener:
    given = section.given()
    queue = given.get("fair_call_queue", for_all)
    given["fair_call_queue"] = settings({**queue.given(), "fold": fold}) if queue else None
    servers = given.pop("bootstrap_servers", None)
    host = given.pop("advertised_host", section.bind.host)
    first, last = given.pop("broker_ports", default_broker_ports(section.bind))
    if servers:
        given["cluster"] = Cluster(bootstrap_servers=servers, advertised_host=host, first_port=first, last_port=last)
    given["sasl"] = Sasl(**section.sasl.given()) if section.sasl else Sasl()
    if "client_tls" in given:
        files = _with_paths(section.client_tls, directory)
        if "principal_mapping_rules" in files:
            files["principal_mapping_rules"] = tuple(chain.from_iterable(files["principal_mapping_rules"]))
        given["client_tls"] = ClientTls(**files)
    if "upstream_tls" in given:
        given["upstream_tls"] = UpstreamTls(**_with_paths(section.upstream_tls, directory))
    return Listener(**given)


def _replication(section: ReplicationSection, document: Document) -> Replication:
    given = section.given()
    if "both_replicas" in given:
        given["leader_replicas"] = given["follower_replicas"] = given.pop("both_replicas")
    given["paths"] = tuple(
        ReplicationPath(**path.given(), source=f"{document.file}:{document.line(('replication', 'paths', index))}")
        for index, path in enumerate(section.paths)
    )
    if "admin_client" in given:
        given["admin_client"] = AdminClient(**_with_paths(section.admin_client, Path(document.file).parent))
    return Replication(**given)


def _usage_log(section: UsageLogSection, directory: Path) -> UsageLog:
    given = section.given()
    files = {name: given.pop(name) for name in UsageFiles.__dataclass_fields__ if name in given}
    if "directory" in files:
        given["files"] = UsageFiles(**files | {"directory": str(directory / files["directory"])})
    if "kafka" in given:
        given["topic"] = UsageTopic(**_topic(given.pop("kafka"), directory))
    return UsageLog(**given)


def _quotas_from(section: QuotasFromSection, directory: Path) -> QuotasFrom | QuotasFromBroker:
    if "broker" not in section.given():
        return QuotasFrom(**_topic(section.kafka, directory))
    client = _with_paths(section.broker, directory)
    every = {"every_ms": client.pop("every_ms")} if "every_ms" in client else {}
    return QuotasFromBroker(**every, client=AdminClient(**client))


def _store(section: StoreSection, directory: Path) -> Store:
    given = _with_paths(section, directory)
    topic = given.pop("kafka", None)
    return Store(**given, topic=None if topic is None else QuotasFrom(**_topic(topic, directory)))


def _topic(section: Section, directory: Path) -> dict[str, Any]:
    """Return the client of a topic's cluster, and the topic's name if it is given."""
    client = _with_paths(section, directory)
    topic = {"topic": client.pop("topic")} if "topic" in client else {}
    return {**topic, "client": AdminClient(**client)}


def _with_paths(section: Section, directory: Path) -> dict[str, Any]:
    """Return the given fields, with paths made relative to the configuration's directory."""
    given = section.given()
    return given | {key: str(directory / given[key]) for key in _PATHS if key in given}


def _kafka(section: KafkaSection | None) -> KafkaSettings:
    given = section.given() if section else {}
    return KafkaSettings(**{name: given[name] for name in given if name in KafkaSettings.__dataclass_fields__})


def _principals(section: PrincipalsSection | None) -> Principals:
    if section is None:
        return Principals()
    return Principals(
        fold=tuple(Fold(**fold.given()) for fold in section.fold),
        exempt=frozenset(section.exempt),
        brokers=frozenset(section.brokers),
        admins=frozenset(section.admins),
        forward_quota_requests=section.forward_quota_requests,
    )


def _kafka_sources(document: Document) -> dict[str, str]:
    kafka = document.data.get("kafka") if isinstance(document.data, dict) else None
    return {key: f"{document.file}:{document.line(('kafka', key))}" for key in kafka or ()}


__all__ = ["ConfigError", "Loaded", "load", "load_bytes", "load_read", "read"]
