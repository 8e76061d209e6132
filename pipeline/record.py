"""The columns of the usage log. A record says how much one quota bucket was used in one interval.

=====================  ======================================================================================
``start_ms``           the start of the interval, in milliseconds since the epoch (UTC)
``interval_ms``        the length of the interval, in whole milliseconds, 0 or more
``proxy``, ``broker``  the name of the proxy, and the broker's node id; null while the proxy does not know the id
``kind``               produce, fetch, leader_replication, follower_replication (bytes), request (percent-milliseconds
                       of a thread), request_rate (requests), mutation (partitions), connection, connections
``user, client_id``    the names of the bucket; "" if its rule does not distinguish users (or client-ids)
``listener``           the name of the listener, in records about connections
``rule_user`` …        the user and client-id in the rule, null without a rule; ``limit`` is its limit per second
``amount``             what was charged to the bucket, in the unit of the kind
``throttle_time_ms``   the time in which requests were throttled, or would have been if ``enforced`` is false
``connections``        the number of connections that used the bucket in the interval; null if unknown
``resolution_ms``      the shortest time over which the source of the record can tell two rates apart; null in the
                       records of a proxy, whose resolution is the interval
=====================  ======================================================================================
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from kafka_quota_proxy.config.model import DEFAULT

RECORD: Final = StructType(
    [
        StructField("start_ms", LongType(), nullable=False),
        StructField("interval_ms", LongType(), nullable=False),
        StructField("proxy", StringType(), nullable=False),
        StructField("broker", IntegerType()),
        StructField("kind", StringType(), nullable=False),
        StructField("user", StringType(), nullable=False),
        StructField("client_id", StringType(), nullable=False),
        StructField("listener", StringType()),
        StructField("rule_user", StringType()),
        StructField("rule_client_id", StringType()),
        StructField("limit", DoubleType()),
        StructField("amount", LongType(), nullable=False),
        StructField("requests", LongType(), nullable=False),
        StructField("throttled_requests", LongType(), nullable=False),
        StructField("throttle_time_ms", LongType(), nullable=False),
        StructField("enforced", BooleanType(), nullable=False),
        StructField("connections", LongType()),
        StructField("resolution_ms", LongType()),
    ]
)
COLUMNS: Final = tuple(RECORD.fieldNames())
REQUIRED: Final = tuple(field.name for field in RECORD.fields if not field.nullable)
# These columns identify a record. Two records with the same values in them are copies.
IDENTITY: Final = ("start_ms", "proxy", "broker", "kind", "user", "client_id", "listener")
# These columns identify a bucket, which is measured and limited separately.
BUCKET: Final = ("proxy", "broker", "kind", "user", "client_id")

# These columns identify an entity and a kind of its requests, on all brokers.
ENTITY: Final = ("kind", "user", "client_id")
PLACE: Final = ("proxy", "broker")
# These columns identify a bucket under the proposed quotas of a replay.
CANDIDATE_BUCKET: Final = (*PLACE, "kind", "bucket_user", "bucket_client_id")

BYTE_KINDS: Final = ("produce", "fetch")
REPLICATION_KINDS: Final = ("leader_replication", "follower_replication")
# The kinds with an amount in whole bytes.
COUNTED_IN_BYTES: Final = (*BYTE_KINDS, *REPLICATION_KINDS)
# The names of buckets that several entities share, and of those that sum up removed buckets.
COLLECTIVE_NAMES: Final = ("<shared>", "<other>")
# A client with this name has a bucket of its own at a proxy, but in a quota file this name means all other clients.
NAME_OF_DEFAULTS: Final = DEFAULT.value


def start_of(span_ms: int) -> Column:
    """Return the start of the hour, minute or other time span (``span_ms``) in which a record starts."""
    return F.col("start_ms") - F.pmod(F.col("start_ms"), F.lit(span_ms))
