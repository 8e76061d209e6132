"""The metrics of quotas that are set through this proxy: how many there are, and whether they can be kept."""

from collections.abc import Iterator
from math import nan
from time import time
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.singles import Single, singles
from kafka_quota_proxy.proxy.client_quotas.manager import QuotaDesk
from kafka_quota_proxy.proxy.client_quotas.storage.directory_keeper import DirectoryKeeper

_PREFIX: Final = "kafka_quota_proxy_quota_store"

_OF_ALL: Final[tuple[Single[QuotaDesk], ...]] = (
    ("entities", "gauge", "Entities whose quotas were set through a proxy.", lambda desk: desk.entities),
    ("unknown_hosts", "gauge", "Hosts among them of which no address is known, so that their quotas do not hold.",
     lambda desk: desk.unknown_hosts),
)  # fmt: skip
_OF_DIRECTORIES: Final[tuple[Single[DirectoryKeeper], ...]] = (
    ("writable", "gauge", "Whether what was changed last could be written down.", lambda keeper: keeper.is_writable),
    ("write_failures_total", "counter", "Changes that could not be written down, and were refused.",
     lambda keeper: keeper.failures),
    ("last_write_failure_timestamp_seconds", "gauge", "When that was last so, Unix time; NaN: never.",
     lambda keeper: _or_nan(keeper.last_failure_s)),
    ("journal_bytes", "gauge", "Of the journal that is being written.", lambda keeper: keeper.store.journal_bytes),
    ("snapshot_bytes", "gauge", "Of the newest snapshot; 0: there is none.",
     lambda keeper: keeper.store.snapshot_bytes),
    ("snapshot_age_seconds", "gauge", "Since that was written; NaN: there is none.",
     lambda keeper: time() - _or_nan(keeper.store.snapshot_at_s)),
    ("damaged_files", "gauge", "Files that were set aside at the start, for they were not as they had been written.",
     lambda keeper: keeper.store.damaged_files),
)  # fmt: skip


def families(desk: QuotaDesk) -> Iterator[Family]:
    """Return them; nothing where no quota can be set."""
    if desk.keeper is None:
        return
    yield from singles(_PREFIX, _OF_ALL, desk)
    if isinstance(desk.keeper, DirectoryKeeper):
        yield from singles(_PREFIX, _OF_DIRECTORIES, desk.keeper)


def _or_nan(time_s: float | None) -> float:
    return nan if time_s is None else time_s
