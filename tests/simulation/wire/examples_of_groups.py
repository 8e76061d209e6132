"""Examples of the messages of groups, share groups and producers: see ``examples``."""

from collections.abc import Callable
from types import ModuleType
from typing import Final

from tests.simulation.wire import (
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    offset_commit,
    offset_fetch,
    share_acknowledge,
    share_fetch,
)
from tests.simulation.wire.common import Leader
from tests.simulation.wire.example import HOST, ID, KIO_HOSTS, Example, Examples
from tests.simulation.wire.share import AcknowledgedBatch, SharePartition, ShareTopic

_KIO_HOST: Final = KIO_HOSTS[0]
_SHARE_TOPIC: Final = ShareTopic(ID, [SharePartition(1, [AcknowledgedBatch(10, 12, (1, 2, 3))]), SharePartition(2)])
_KIO_SHARE_TOPIC: Final = {
    "topic_id": ID,
    "partitions": [
        {
            "partition_index": 1,
            "acknowledgement_batches": [{"first_offset": 10, "last_offset": 12, "acknowledge_types": [1, 2, 3]}],
        },
        {"partition_index": 2, "acknowledgement_batches": []},
    ],
}
_KIO_LEADER: Final = {"leader_id": 6, "leader_epoch": 7}


def _share_fetch(version: int) -> Examples:
    del version
    acquired = [share_fetch.AcquiredRecords(10, 12, 3)]
    partition = share_fetch.SharedPartition(1, b"records", acquired, 6, "moved", 9, "lost", Leader(6, 7))
    return Example(
        {
            "topics": [_SHARE_TOPIC],
            "group_id": "g",
            "member_id": "m",
            "session_epoch": 2,
            "max_wait_ms": 250,
            "min_bytes": 8,
            "max_bytes": 9_000,
            "max_records": 11,
            "batch_size": 12,
            "forgotten": [share_fetch.ForgottenTopic(ID, [3, 4])],
        },
        {
            "group_id": "g",
            "member_id": "m",
            "share_session_epoch": 2,
            "max_wait": 250,
            "min_bytes": 8,
            "max_bytes": 9_000,
            "max_records": 11,
            "batch_size": 12,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [_KIO_SHARE_TOPIC],
            "forgotten_topics_data": [{"topic_id": ID, "partitions": [3, 4]}],
        },
    ), Example(
        {
            "topics": [share_fetch.SharedTopic(ID, [partition])],
            "throttle_ms": 77,
            "error_code": 71,
            "error_message": "no",
            "lock_timeout_ms": 1_500,
            "endpoints": [HOST],
        },
        {
            "throttle_time": 77,
            "error_code": 71,
            "error_message": "no",
            "acquisition_lock_timeout": 1_500,
            "node_endpoints": [_KIO_HOST],
            "responses": [
                {
                    "topic_id": ID,
                    "partitions": [
                        {
                            "partition_index": 1,
                            "error_code": 6,
                            "error_message": "moved",
                            "acknowledge_error_code": 9,
                            "acknowledge_error_message": "lost",
                            "current_leader": _KIO_LEADER,
                            "records": b"records",
                            "acquired_records": [{"first_offset": 10, "last_offset": 12, "delivery_count": 3}],
                        }
                    ],
                }
            ],
        },
    )


def _share_acknowledge(version: int) -> Examples:
    del version
    partition = share_acknowledge.AcknowledgedPartition(1, 6, "moved", Leader(6, 7))
    return Example(
        {"topics": [_SHARE_TOPIC], "group_id": "g", "member_id": "m", "session_epoch": 2},
        {
            "group_id": "g",
            "member_id": "m",
            "share_session_epoch": 2,
            "is_renew_ack": False,
            "topics": [_KIO_SHARE_TOPIC],
        },
    ), Example(
        {
            "topics": [share_acknowledge.AcknowledgedTopic(ID, [partition])],
            "throttle_ms": 77,
            "error_code": 71,
            "error_message": "no",
            "lock_timeout_ms": 1_500,
            "endpoints": [HOST],
        },
        {
            "throttle_time": 77,
            "error_code": 71,
            "error_message": "no",
            "acquisition_lock_timeout": 1_500,
            "node_endpoints": [_KIO_HOST],
            "responses": [
                {
                    "topic_id": ID,
                    "partitions": [
                        {
                            "partition_index": 1,
                            "error_code": 6,
                            "error_message": "moved",
                            "current_leader": _KIO_LEADER,
                        }
                    ],
                }
            ],
        },
    )


def _find_coordinator(version: int) -> Examples:
    keys = ["g"] if version < 4 else ["g", "h"]
    key, message = ("g" if version >= 4 else ""), ("none" if version >= 1 else None)
    coordinator = {"node_id": 4, "host": "b4", "port": 9092, "error_code": 15, "error_message": "none"}
    return Example(
        {"keys": keys, "key_type": find_coordinator.TRANSACTION},
        {"key": "g", "key_type": 1, "coordinator_keys": keys},
    ), Example(
        {"coordinators": [find_coordinator.Coordinator(key, 4, "b4", 9092, 15, message)], "throttle_ms": 77},
        {"throttle_time": 77, "coordinators": [{"key": "g", **coordinator}], **coordinator},
    )


def _heartbeat(version: int) -> Examples:
    del version
    return Example(
        {"group_id": "g", "generation": 3, "member_id": "m", "instance_id": "i"},
        {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": "i"},
    ), Example({"error_code": 27, "throttle_ms": 77}, {"error_code": 27, "throttle_time": 77})


def _join_group(version: int) -> Examples:
    instance_id = "i" if version >= 5 else None
    return Example(
        {
            "group_id": "g",
            "member_id": "m",
            "protocols": [join_group.GroupProtocol("range", b"one"), join_group.GroupProtocol("sticky", b"")],
            "session_timeout_ms": 6_000,
            "rebalance_timeout_ms": 7_000,
        },
        {
            "group_id": "g",
            "session_timeout": 6_000,
            "rebalance_timeout": 7_000,
            "member_id": "m",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"one"}, {"name": "sticky", "metadata": b""}],
            "reason": None,
        },
    ), Example(
        {
            "error_code": 25,
            "generation": 3,
            "protocol_name": "sticky",
            "leader": "l",
            "member_id": "m",
            "members": [join_group.Member("l", b"two", instance_id)],
            "throttle_ms": 77,
        },
        {
            "throttle_time": 77,
            "error_code": 25,
            "generation_id": 3,
            "protocol_type": "consumer",
            "protocol_name": "sticky",
            "leader": "l",
            "skip_assignment": False,
            "member_id": "m",
            "members": [{"member_id": "l", "group_instance_id": "i", "metadata": b"two"}],
        },
    )


def _offset_commit(version: int) -> Examples:
    del version
    partitions = [offset_commit.CommittedPartition(1, 30, 5, "note"), offset_commit.CommittedPartition(2, 31, 6, None)]
    return Example(
        {
            "group_id": "g",
            "topics": [offset_commit.CommittedTopic("orders", partitions)],
            "generation": 3,
            "member_id": "m",
        },
        {
            "group_id": "g",
            "generation_id_or_member_epoch": 3,
            "member_id": "m",
            "group_instance_id": None,
            "retention_time": -1,
            "topics": [
                {
                    "name": "orders",
                    "partitions": [
                        {
                            "partition_index": 1,
                            "committed_offset": 30,
                            "committed_leader_epoch": 5,
                            "committed_metadata": "note",
                        },
                        {
                            "partition_index": 2,
                            "committed_offset": 31,
                            "committed_leader_epoch": 6,
                            "committed_metadata": None,
                        },
                    ],
                }
            ],
        },
    ), Example(
        {
            "topics": [offset_commit.TopicResult("orders", [offset_commit.PartitionResult(1, 27)])],
            "throttle_ms": 77,
        },
        {
            "throttle_time": 77,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 1, "error_code": 27}]}],
        },
    )


def _offset_fetch(version: int) -> Examples:
    del version
    return Example(
        {"group_id": "g", "topics": [offset_fetch.AskedTopic("orders", [1, 2])], "require_stable": True},
        {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [1, 2]}], "require_stable": True},
    ), Example(
        {
            "topics": [offset_fetch.FoundTopic("orders", [offset_fetch.FoundPartition(1, 30, 5, "note", 3)])],
            "throttle_ms": 77,
            "error_code": 15,
        },
        {
            "throttle_time": 77,
            "error_code": 15,
            "topics": [
                {
                    "name": "orders",
                    "partitions": [
                        {
                            "partition_index": 1,
                            "committed_offset": 30,
                            "committed_leader_epoch": 5,
                            "metadata": "note",
                            "error_code": 3,
                        }
                    ],
                }
            ],
        },
    )


def _init_producer_id(version: int) -> Examples:
    del version
    return Example(
        {"transactional_id": "tx", "timeout_ms": 1_500, "producer_id": 9, "epoch": 2},
        {"transactional_id": "tx", "transaction_timeout": 1_500, "producer_id": 9, "producer_epoch": 2},
    ), Example(
        {"producer_id": 9, "epoch": 2, "error_code": 51, "throttle_ms": 77},
        {"producer_id": 9, "producer_epoch": 2, "error_code": 51, "throttle_time": 77},
    )


GROUP_EXAMPLES: Final[tuple[tuple[ModuleType, Callable[[int], Examples]], ...]] = (
    (share_fetch, _share_fetch),
    (share_acknowledge, _share_acknowledge),
    (find_coordinator, _find_coordinator),
    (heartbeat, _heartbeat),
    (join_group, _join_group),
    (offset_commit, _offset_commit),
    (offset_fetch, _offset_fetch),
    (init_producer_id, _init_producer_id),
)
