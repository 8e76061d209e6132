"""Writes imported records as a usage log of Parquet files in a local directory, without Spark.

The directory appears complete or not at all, and a second import replaces it, as in ``staging``.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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
_ROWS_IN_A_FILE: Final = 2_000_000


class ImportedLog:
    """The files of one import. ``records`` is how many records it has, and ``amounts`` contains their sums by kind."""

    def __init__(self, directory: Path) -> None:
        self.records = 0
        self.amounts: dict[str, int] = {}
        self._directory = directory
        self._rows: list[dict[str, object]] = []
        self._file: pq.ParquetWriter | None = None
        self._files = 0
        self._rows_in_file = 0

    def add(self, records: Iterable[ImportedRecord], brokers: Mapping[str, int]) -> None:
        """Add records. ``brokers`` contains the node id of each instance."""
        for one in records:
            self._rows.append(_row(one, brokers[one.bucket.instance]))
            self.records += 1
            self.amounts[one.bucket.kind] = self.amounts.get(one.bucket.kind, 0) + one.amount
            if len(self._rows) == _ROWS_AT_ONCE:
                self._flush()

    def close(self) -> None:
        """Complete the last file."""
        self._flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._file is None:
            self._file = pq.ParquetWriter(self._directory / f"usage-{self._files:05}.parquet", SCHEMA)
            self._files += 1
        self._file.write_table(pa.Table.from_pylist(self._rows, SCHEMA))
        self._rows_in_file += len(self._rows)
        self._rows = []
        if self._rows_in_file >= _ROWS_IN_A_FILE:
            self._file.close()
            self._file, self._rows_in_file = None, 0


@contextmanager
def imported_log(out: str) -> Iterator[ImportedLog]:
    """Yield a log that becomes the directory ``out`` if the block succeeds, and is deleted otherwise.

    Raises UsageError if ``out`` is not a local path, or has files that this program did not write.
    """
    if "://" in out:
        raise UsageError(f"--out {out}: import writes to a local directory; copy it from there")
    with staged_directory(file_system.absolute(out), is_log=True) as staging:
        log = ImportedLog(Path(staging))
        yield log
        log.close()


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
