"""A record of the usage log: who used how much of which quota in one interval. The one place that knows its columns.

=====================  ======================================================================================
``start_ms``           when the interval began; milliseconds since the epoch, UTC
``interval_ms``        how long it was; whole milliseconds, 0 or more
``proxy``, ``broker``  where; ``broker`` is null while the proxy does not know its id
``kind``               produce, fetch, leader_replication, follower_replication (bytes), request (percent-milliseconds
                       of a thread), request_rate (requests), mutation (partitions), connection, connections
``user, client_id``    whose bucket; "" where its rule does not tell users (or client-ids) apart
``listener``           on records about connections
``rule_user`` …        the entity of the rule in force, null without a rule; ``limit`` its number in a second
``amount``             what was charged
``throttle_time_ms``   how long clients were told to wait, each moment once; if not ``enforced``, would have been told
``connections``        how many used the bucket in the interval; null where that is not known
=====================  ======================================================================================
"""

from typing import Final

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
    ]
)
COLUMNS: Final = tuple(RECORD.fieldNames())
REQUIRED: Final = tuple(field.name for field in RECORD.fields if not field.nullable)
# No two records of a proxy have the same of these: what comes twice was read twice.
IDENTITY: Final = ("start_ms", "proxy", "broker", "kind", "user", "client_id", "listener")
# What is measured and limited by itself.
BUCKET: Final = ("proxy", "broker", "kind", "user", "client_id")

PLACE: Final = ("proxy", "broker")
# What is charged together under quotas that are tried.
PROPOSED_BUCKET: Final = (*PLACE, "kind", "bucket_user", "bucket_client_id")

BYTE_KINDS: Final = ("produce", "fetch")
REPLICATION_KINDS: Final = ("leader_replication", "follower_replication")
# Kinds whose amount is a number of bytes, and so a whole one.
COUNTED_IN_BYTES: Final = (*BYTE_KINDS, *REPLICATION_KINDS)
# What stands for several who had no bucket of their own: they share one, or are summed after the fact.
COLLECTIVE_NAMES: Final = ("<shared>", "<other>")
# Who calls himself so is one client to a proxy, and all others in a file of quotas.
NAME_OF_DEFAULTS: Final = DEFAULT.value
