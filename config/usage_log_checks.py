"""Checks the section ``usage_log`` for keys that require others, and warns if a field of its records would be null."""

from typing import Final

from kafka_quota_proxy.config.replication_checks import check_topic
from kafka_quota_proxy.config.unvalidated import UncheckedFile

_OF_FILES: Final = ("rotate_size", "rotate_interval", "retention_size")


def check_usage_log(file: UncheckedFile) -> None:
    """Report faults of the section ``usage_log`` that concern more than one key."""
    section = file.mapping_at("usage_log")
    if section is None:
        return
    if "directory" not in section and "kafka" not in section:
        file.error(("usage_log",), "has no destination; give directory for files, kafka for a topic, or both")
    for key in _OF_FILES:
        if key in section and "directory" not in section:
            file.error(("usage_log", key), "applies to files; give their directory, or remove this")
    check_topic(file, "usage_log")
    if file.mapping_at("replication") is None:  # without it, the proxy does not ask the cluster for node ids
        for at, listener in file.elements("listeners"):
            if "upstream" in listener and "node_id" not in listener:
                message = "is missing, so that broker is null in the usage log; write the node id of the broker there"
                file.warn((*at, "node_id"), message)
