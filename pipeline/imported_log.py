"""Writes imported records as a usage log, a Parquet file in a local directory, without Spark.

The directory appears complete or not at all, and a second import replaces it, as in ``staging``.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.file_system import staged_directory
from kafka_quota_proxy.pipeline.rate_samples import ImportedRecord

# The columns of ``record.RECORD``, which would load Spark.
SCHEMA: Final = pa.schema(
    [
        ("start_ms", pa.int64()),
        ("interval_ms", pa.int64()),
        ("proxy", pa.string()),
        ("broker", pa.int32()),
        ("kind", pa.string()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("listener", pa.string()),
        ("rule_user", pa.string()),
        ("rule_client_id", pa.string()),
        ("limit", pa.float64()),
        ("amount", pa.int64()),
        ("requests", pa.int64()),
        ("throttled_requests", pa.int64()),
        ("throttle_time_ms", pa.int64()),
        ("enforced", pa.bool_()),
        ("connections", pa.int64()),
        ("resolution_ms", pa.int64()),
    ]
)
# A group of rows is in memory until it is written.
_ROWS_AT_ONCE: Final = 100_000


class ImportedLog:
    """The file of one import. ``records`` is how many records it has, and ``amounts`` contains their sums by kind."""

    def __init__(self, file: pq.ParquetWriter) -> None:
        self.records = 0
        self.amounts: dict[str, int] = {}
        self._rows: list[dict[str, object]] = []
        self._file = file

    def add(self, records: Iterable[ImportedRecord], brokers: Mapping[str, int]) -> None:
        """Add records. ``brokers`` contains the node id of each instance."""
        for one in records:
            self._rows.append(_row(one, brokers[one.bucket.instance]))
            self.records += 1
            self.amounts[one.bucket.kind] = self.amounts.get(one.bucket.kind, 0) + one.amount
            if len(self._rows) == _ROWS_AT_ONCE:
                self.flush()

    def flush(self) -> None:
        """Write the records that were added."""
        if self._rows:
            self._file.write_table(pa.Table.from_pylist(self._rows, SCHEMA))
            self._rows = []


@contextmanager
def imported_log(out: str) -> Iterator[ImportedLog]:
    """Yield a log that becomes the directory ``out`` if the block succeeds, and is deleted otherwise.

    Raises UsageError if ``out`` is not a local path, or has files that this program did not write.
    """
    if "://" in out:
        raise UsageError(f"--out {out}: import writes to a local directory; copy it from there")
    with (
        staged_directory(file_system.absolute(out)) as staging,
        pq.ParquetWriter(f"{staging}/usage.parquet", SCHEMA) as file,
    ):
        log = ImportedLog(file)
        yield log
        log.flush()


def _row(record: ImportedRecord, broker: int) -> dict[str, object]:
    is_throttled = int(record.throttle_time_ms > 0)
    return {
        "start_ms": record.start_ms,
        "interval_ms": record.interval_ms,
        "proxy": record.bucket.instance,
        "broker": broker,
        "kind": record.bucket.kind,
        "user": record.bucket.user,
        "client_id": record.bucket.client_id,
        "amount": record.amount,
        # How many there were is unknown: at least one, if the throttle time is above 0.
        "requests": is_throttled,
        "throttled_requests": is_throttled,
        "throttle_time_ms": record.throttle_time_ms,
        "enforced": True,
        "resolution_ms": record.resolution_ms,
    }
