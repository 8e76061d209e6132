"""An example of each message, in each version: those of Produce, Fetch, Metadata and ApiVersions are here."""

from types import ModuleType
from typing import Final

from tests.simulation.wire import (
    api_versions,
    fetch,
    metadata,
    produce,
)
from tests.simulation.wire.common import Leader
from tests.simulation.wire.example import HOST, ID, KIO_HOSTS, NO_ID, OTHER_HOST, OTHER_ID, Example, Examples
from tests.simulation.wire.examples_of_admin import ADMIN_EXAMPLES
from tests.simulation.wire.examples_of_groups import GROUP_EXAMPLES
from tests.simulation.wire.records import Batch, write_batch

RECORDS: Final = write_batch(Batch("producer-3/17", 300, 5, producer_id=9, epoch=2, base_sequence=40))
OTHER_RECORDS: Final = write_batch(Batch("producer-4/2", 120, 3))


def _produce(version: int) -> Examples:
    topic, other = ("orders", "é") if version < 13 else (ID, OTHER_ID)
    leader = Leader(6, 7) if version >= 10 else None
    endpoints = (HOST, OTHER_HOST) if version >= 10 else ()
    message = "no room" if version >= 8 else None
    log_start = 3 if version >= 5 else -1
    return Example(
        {
            "topics": [(topic, [(1, RECORDS), (2, None)]), (other, [(3, OTHER_RECORDS)])],
            "acks": 1,
            "timeout_ms": 1_500,
            "transactional_id": "tx",
        },
        {
            "transactional_id": "tx",
            "acks": 1,
            "timeout": 1_500,
            "topic_data": [
                {
                    "name": topic,
                    "topic_id": topic,
                    "partition_data": [{"index": 1, "records": RECORDS}, {"index": 2, "records": None}],
                },
                {"name": other, "topic_id": other, "partition_data": [{"index": 3, "records": OTHER_RECORDS}]},
            ],
        },
    ), Example(
        {
            "topics": [
                (topic, [produce.PartitionAnswer(1, 6, 20, 4_000, log_start, message, leader)]),
                (other, [produce.PartitionAnswer(2)]),
            ],
            "throttle_ms": 77,
            "endpoints": endpoints,
        },
        {
            "throttle_time": 77,
            "node_endpoints": KIO_HOSTS,
            "responses": [
                {
                    "name": topic,
                    "topic_id": topic,
                    "partition_responses": [
                        {
                            "index": 1,
                            "error_code": 6,
                            "base_offset": 20,
                            "log_append_time": 4_000,
                            "log_start_offset": 3,
                            "record_errors": [],
                            "error_message": "no room",
                            "current_leader": {"leader_id": 6, "leader_epoch": 7},
                        }
                    ],
                },
                {
                    "name": other,
                    "topic_id": other,
                    "partition_responses": [
                        {
                            "index": 2,
                            "error_code": 0,
                            "base_offset": -1,
                            "log_append_time": None,
                            "log_start_offset": -1,
                            "record_errors": [],
                            "error_message": None,
                            "current_leader": {"leader_id": -1, "leader_epoch": -1},
                        }
                    ],
                },
            ],
        },
    )


def _fetch_request(version: int) -> Example:
    topic, other = ("orders", "é") if version < 13 else (ID, OTHER_ID)
    return Example(
        {
            "topics": [(topic, [fetch.FetchPartition(1, 30, 4_096, 5, 6, 7), fetch.FetchPartition(2, 31)])],
            "max_wait_ms": 250,
            "min_bytes": 8,
            "max_bytes": 9_000,
            "isolation_level": 1,
            "session_id": 44,
            "session_epoch": 3,
            "forgotten": [(other, [9, 10]), (topic, [])] if version >= 7 else [],
            "rack": "rack-1",
            "replica_id": 3,
            "replica_epoch": 12,
            "cluster_id": "cluster" if version >= 12 else None,
        },
        {
            "replica_id": 3,
            "replica_state": {"replica_id": 3, "replica_epoch": 12},
            "cluster_id": "cluster",
            "max_wait": 250,
            "min_bytes": 8,
            "max_bytes": 9_000,
            "isolation_level": 1,
            "session_id": 44,
            "session_epoch": 3,
            "topics": [
                {
                    "topic": topic,
                    "topic_id": topic,
                    "partitions": [
                        {
                            "partition": 1,
                            "current_leader_epoch": 5,
                            "fetch_offset": 30,
                            "last_fetched_epoch": 7,
                            "log_start_offset": 6,
                            "partition_max_bytes": 4_096,
                        },
                        {
                            "partition": 2,
                            "current_leader_epoch": -1,
                            "fetch_offset": 31,
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1_048_576,
                        },
                    ],
                }
            ],
            "forgotten_topics_data": [
                {"topic": other, "topic_id": other, "partitions": [9, 10]},
                {"topic": topic, "topic_id": topic, "partitions": []},
            ],
            "rack_id": "rack-1",
        },
    )


def _fetch_response(version: int) -> Example:
    topic = "orders" if version < 13 else ID
    leader = Leader(6, 7) if version >= 12 else None
    no_tags = {"diverging_epoch": {"epoch": -1, "end_offset": -1}, "snapshot_id": {"end_offset": -1, "epoch": -1}}
    return Example(
        {
            "topics": [
                (
                    topic,
                    [
                        fetch.FetchedPartition(1, RECORDS, 0, 50, 49, 48, 2),
                        fetch.FetchedPartition(3, None, 6, leader=leader),
                        fetch.FetchedPartition(4),
                    ],
                )
            ],
            "throttle_ms": 77,
            "error_code": 71,
            "session_id": 44,
            "endpoints": (HOST, OTHER_HOST) if version >= 16 else (),
        },
        {
            "throttle_time": 77,
            "error_code": 71,
            "session_id": 44,
            "node_endpoints": KIO_HOSTS,
            "responses": [
                {
                    "topic": topic,
                    "topic_id": topic,
                    "partitions": [
                        {
                            "partition_index": 1,
                            "error_code": 0,
                            "high_watermark": 50,
                            "last_stable_offset": 49,
                            "log_start_offset": 48,
                            "current_leader": {"leader_id": -1, "leader_epoch": -1},
                            "aborted_transactions": [],
                            "preferred_read_replica": 2,
                            "records": RECORDS,
                            **no_tags,
                        },
                        {
                            "partition_index": 3,
                            "error_code": 6,
                            "high_watermark": -1,
                            "last_stable_offset": -1,
                            "log_start_offset": -1,
                            "current_leader": {"leader_id": 6, "leader_epoch": 7},
                            "aborted_transactions": [],
                            "preferred_read_replica": -1,
                            "records": None,
                            **no_tags,
                        },
                        {
                            "partition_index": 4,
                            "error_code": 0,
                            "high_watermark": -1,
                            "last_stable_offset": -1,
                            "log_start_offset": -1,
                            "current_leader": {"leader_id": -1, "leader_epoch": -1},
                            "aborted_transactions": [],
                            "preferred_read_replica": -1,
                            "records": b"",
                            **no_tags,
                        },
                    ],
                }
            ],
        },
    )


def _fetch(version: int) -> Examples:
    return _fetch_request(version), _fetch_response(version)


def _metadata(version: int) -> Examples:
    topic_id = ID if version >= 10 else NO_ID
    by_id = metadata.AskedTopic(None, OTHER_ID)
    asked = [metadata.AskedTopic("orders", topic_id), *([by_id] if version >= 12 else ())]
    partition = metadata.Partition(1, 2, [2, 3, 4], [2, 4], 8, 9, [3])
    no_operations = -(2**31)
    return Example(
        {"topics": asked, "allow_auto_creation": version % 2 == 0},
        {
            "topics": [{"name": topic.name, "topic_id": topic.topic_id} for topic in asked],
            "allow_auto_topic_creation": version % 2 == 0,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
    ), Example(
        {
            "brokers": [HOST, OTHER_HOST],
            "topics": [metadata.Topic("orders", [partition], topic_id, 0, is_internal=True)],
            "controller_id": 5,
            "cluster_id": "cluster",
            "throttle_ms": 77,
            "error_code": 3,
        },
        {
            "throttle_time": 77,
            "brokers": KIO_HOSTS,
            "cluster_id": "cluster",
            "controller_id": 5,
            "error_code": 3,
            "cluster_authorized_operations": no_operations,
            "topics": [
                {
                    "error_code": 0,
                    "name": "orders",
                    "topic_id": topic_id,
                    "is_internal": True,
                    "topic_authorized_operations": no_operations,
                    "partitions": [
                        {
                            "error_code": 9,
                            "partition_index": 1,
                            "leader_id": 2,
                            "leader_epoch": 8,
                            "replica_nodes": [2, 3, 4],
                            "isr_nodes": [2, 4],
                            "offline_replicas": [3],
                        }
                    ],
                }
            ],
        },
    )


def _api_versions(version: int) -> Examples:
    del version
    return Example(
        {"software_name": "actor", "software_version": "2.0"},
        {"client_software_name": "actor", "client_software_version": "2.0"},
    ), Example(
        {"apis": {0: (3, 13), 18: (0, 4)}, "throttle_ms": 77},
        {
            "error_code": 0,
            "throttle_time": 77,
            "api_keys": [
                {"api_key": 0, "min_version": 3, "max_version": 13},
                {"api_key": 18, "min_version": 0, "max_version": 4},
            ],
            "supported_features": [],
            "finalized_features_epoch": -1,
            "finalized_features": [],
            "zk_migration_ready": False,
        },
    )


def _cases() -> list[tuple[ModuleType, int, Example, Example]]:
    makers = (
        (produce, _produce),
        (fetch, _fetch),
        (metadata, _metadata),
        (api_versions, _api_versions),
        *ADMIN_EXAMPLES,
        *GROUP_EXAMPLES,
    )
    return [(api, version, *make(version)) for api, make in makers for version in api.VERSIONS]


EXAMPLES: Final = _cases()
