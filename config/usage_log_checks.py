"""Checks of ``usage_log``: keys that need each other, and settings that leave fields of the records empty."""

from typing import Final

from kafka_quota_proxy.config.document import Document
from kafka_quota_proxy.config.replication_checks import check_topic
from kafka_quota_proxy.config.unvalidated import Report, elements, mapping_at

_AT: Final = ("usage_log",)
_OF_FILES: Final = ("rotate_size", "rotate_interval", "retention_size")


def check_usage_log(document: Document, report: Report, warn: Report) -> None:
    """Report faults that concern more than one key."""
    section = mapping_at(document, *_AT)
    if section is None:
        return
    if "directory" not in section and "kafka" not in section:
        report(_AT, "goes nowhere; give directory for files, kafka for a topic, or both")
    for key in _OF_FILES:
        if key in section and "directory" not in section:
            report((*_AT, key), "is of files; give their directory, or remove this")
    if "retention_size" in section and not document.text((*_AT, "retention_size")):
        report((*_AT, "retention_size"), "has no value; write a size such as 10GiB, or null for no bound")
    check_topic(document, _AT, report)
    _warn_of_unknown_brokers(document, warn)


def _warn_of_unknown_brokers(document: Document, warn: Report) -> None:
    """Warn of missing node ids: without ``replication``, the proxy does not ask the cluster for them."""
    if mapping_at(document, "replication") is not None:
        return
    for index, listener in elements(document, "listeners"):
        if "upstream" in listener and "node_id" not in listener:
            message = "is missing, so that broker is null in the usage log; write the node id of the broker there"
            warn(("listeners", index, "node_id"), message)
