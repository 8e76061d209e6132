"""The metrics of changed quotas: what became of those that were asked for, and whether they are audited."""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, labels
from kafka_quota_proxy.proxy.client_quotas.audit.log import COUNTED, ChangeLog

_PREFIX: Final = "kafka_quota_proxy_quota"


def families(change_log: ChangeLog | None) -> Iterator[Family]:
    """Return them; nothing where there is no store."""
    if change_log is None:
        return
    help_ = "Entities whose quotas were to be changed, by what became of it."
    samples = [(labels(result=result), float(change_log.counts[result])) for result in COUNTED]
    yield Family(f"{_PREFIX}_changes_total", "counter", help_, samples)
    if change_log.is_audited:
        help_ = "Lines of the audit log that could not be written, and are lost."
        yield Family(f"{_PREFIX}_audit_lost_lines_total", "counter", help_, [("", float(change_log.lost))])
