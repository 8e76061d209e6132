"""The metrics of quotas that are set through this proxy: how many there are, and whether they can be kept."""

from collections.abc import Iterator
from math import nan
from time import time
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.singles import Single, singles
from kafka_quota_proxy.proxy.client_quotas.manager import QuotaManager
from kafka_quota_proxy.proxy.client_quotas.storage.directory_store import DirectoryStore

_PREFIX: Final = "kafka_quota_proxy_quota_store"

_OF_ALL: Final[tuple[Single[QuotaManager], ...]] = (
    ("entities", "gauge", "Entities whose quotas were set through a proxy.", lambda manager: manager.entities),
    ("unknown_hosts", "gauge", "Hosts among them of which no address is known, so that their quotas do not hold.",
     lambda manager: manager.unknown_hosts),
)  # fmt: skip
_OF_DIRECTORIES: Final[tuple[Single[DirectoryStore], ...]] = (
    ("writable", "gauge", "Whether what was changed last could be written down.", lambda store: store.is_writable),
    ("write_failures_total", "counter", "Changes that could not be written down, and were refused.",
     lambda store: store.failures),
    ("last_write_failure_timestamp_seconds", "gauge", "When that was last so, Unix time; NaN: never.",
     lambda store: _or_nan(store.last_failure_s)),
    ("journal_bytes", "gauge", "Changes that are not in the database yet.", lambda store: store.database.log_bytes),
    ("snapshot_bytes", "gauge", "The database without the log.",
     lambda store: store.database.file_bytes),
    ("snapshot_age_seconds", "gauge", "Since the database was written, the log apart.",
     lambda store: time() - _or_nan(store.database.file_at_s)),
    ("damaged_files", "gauge", "Files that were found damaged when a change was written.",
     lambda store: store.database.damaged_files),
)  # fmt: skip


def families(manager: QuotaManager) -> Iterator[Family]:
    """Return them; nothing where no quota can be set."""
    if manager.store is None:
        return
    yield from singles(_PREFIX, _OF_ALL, manager)
    if isinstance(manager.store, DirectoryStore):
        yield from singles(_PREFIX, _OF_DIRECTORIES, manager.store)


def _or_nan(time_s: float | None) -> float:
    return nan if time_s is None else time_s
