"""Says what imported records cannot tell. Their rates are means over a longer time than the interval of a proxy."""

from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.report import duration


class Coarse(NamedTuple):
    """How many records of a log are imported, and the longest time over which one of their rates is a mean."""

    records: int
    resolution_ms: int

    def words(self) -> str:
        """Return a sentence for the user."""
        return (
            f"{self.records:,} records are imported, and their rates are means over {duration(self.resolution_ms)}. "
            "They show no shorter bursts, no connections and no single requests: clients may wait more often and for "
            "longer than computed here"
        )


def coarse_columns(resolution: Column) -> list[Column]:
    """Return the aggregations that compute the fields of ``Coarse`` from the ``resolution_ms`` of records."""
    return [F.count(resolution).alias("coarse_records"), F.max(resolution).alias("resolution_ms")]
