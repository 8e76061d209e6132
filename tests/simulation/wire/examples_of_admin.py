"""Examples of the messages of logins, of topics that come and go, and of quotas."""

from collections.abc import Callable
from types import ModuleType
from typing import Final

from tests.simulation.wire import (
    alter_client_quotas,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    sasl_authenticate,
    sasl_handshake,
)
from tests.simulation.wire.example import ID, NO_ID, Example, Examples


def _create_topics(version: int) -> Examples:
    topics = [
        create_topics.NewTopic("a", 3, 2, configs=[create_topics.Config("x", None), create_topics.Config("y", "1")]),
        create_topics.NewTopic("b", -1, -1, [create_topics.Assignment(4, [5, 6])]),
    ]
    created = [
        create_topics.CreatedTopic(
            "a", 0, None, ID if version >= 7 else NO_ID, 3, 2, [create_topics.CreatedConfig("y", "1", True, 1, True)]
        ),
        create_topics.CreatedTopic("b", 89, "wait", configs=None),
    ]
    return Example(
        {"topics": topics, "timeout_ms": 1_500, "validate_only": True},
        {
            "timeout": 1_500,
            "validate_only": True,
            "topics": [
                {
                    "name": "a",
                    "num_partitions": 3,
                    "replication_factor": 2,
                    "assignments": [],
                    "configs": [{"name": "x", "value": None}, {"name": "y", "value": "1"}],
                },
                {
                    "name": "b",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [{"partition_index": 4, "broker_ids": [5, 6]}],
                    "configs": [],
                },
            ],
        },
    ), Example(
        {"topics": created, "throttle_ms": 77},
        {
            "throttle_time": 77,
            "topics": [
                {
                    "name": "a",
                    "topic_id": ID,
                    "error_code": 0,
                    "error_message": None,
                    "topic_config_error_code": 0,
                    "num_partitions": 3,
                    "replication_factor": 2,
                    "configs": [
                        {"name": "y", "value": "1", "read_only": True, "config_source": 1, "is_sensitive": True}
                    ],
                },
                {
                    "name": "b",
                    "topic_id": NO_ID,
                    "error_code": 89,
                    "error_message": "wait",
                    "topic_config_error_code": 0,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "configs": None,
                },
            ],
        },
    )


def _delete_topics(version: int) -> Examples:
    topic_id = ID if version >= 6 else NO_ID
    doomed = [delete_topics.DoomedTopic("a"), *([delete_topics.DoomedTopic(None, ID)] if version >= 6 else ())]
    return Example(
        {"topics": doomed, "timeout_ms": 1_500},
        {
            "topic_names": ["a"],
            "topics": [{"name": "a", "topic_id": NO_ID}, {"name": None, "topic_id": ID}],
            "timeout": 1_500,
        },
    ), Example(
        {"topics": [delete_topics.DeletedTopic("a", 89, "wait", topic_id)], "throttle_ms": 77},
        {
            "throttle_time": 77,
            "responses": [{"name": "a", "topic_id": ID, "error_code": 89, "error_message": "wait"}],
        },
    )


def _create_partitions(version: int) -> Examples:
    del version
    topics = [
        create_partitions.GrownTopic("a", 5, [create_partitions.Assignment([1, 2])]),
        create_partitions.GrownTopic("b", 6),
    ]
    return Example(
        {"topics": topics, "timeout_ms": 1_500, "validate_only": True},
        {
            "topics": [
                {"name": "a", "count": 5, "assignments": [{"broker_ids": [1, 2]}]},
                {"name": "b", "count": 6, "assignments": None},
            ],
            "timeout": 1_500,
            "validate_only": True,
        },
    ), Example(
        {"topics": [create_partitions.Result("a", 89, "wait"), create_partitions.Result("b")], "throttle_ms": 77},
        {
            "throttle_time": 77,
            "results": [
                {"name": "a", "error_code": 89, "error_message": "wait"},
                {"name": "b", "error_code": 0, "error_message": None},
            ],
        },
    )


def _sasl_handshake(version: int) -> Examples:
    del version
    return Example({"mechanism": "SCRAM-SHA-256"}, {"mechanism": "SCRAM-SHA-256"}), Example(
        {"mechanisms": ["PLAIN", "OAUTHBEARER"], "error_code": 33},
        {"mechanisms": ["PLAIN", "OAUTHBEARER"], "error_code": 33},
    )


def _sasl_authenticate(version: int) -> Examples:
    del version
    token = sasl_authenticate.plain_token("alice", "s3cret")
    return Example({"token": token}, {"auth_bytes": b"\0alice\0s3cret"}), Example(
        {"error_code": 58, "error_message": "who?", "token": b"again", "session_lifetime_ms": 4_000},
        {"error_code": 58, "error_message": "who?", "auth_bytes": b"again", "session_lifetime": 4_000},
    )


def _describe_client_quotas(version: int) -> Examples:
    del version
    entity = [describe_client_quotas.EntityPart("user", "alice"), describe_client_quotas.EntityPart("client-id", None)]
    values = [describe_client_quotas.QuotaValue("producer_byte_rate", 1_024.5)]
    return Example(
        {
            "components": [
                describe_client_quotas.Component("user", describe_client_quotas.EXACT, "alice"),
                describe_client_quotas.Component("ip"),
            ],
            "strict": True,
        },
        {
            "components": [
                {"entity_type": "user", "match_type": 0, "match": "alice"},
                {"entity_type": "ip", "match_type": 2, "match": None},
            ],
            "strict": True,
        },
    ), Example(
        {
            "entries": [describe_client_quotas.Entry(entity, values)],
            "throttle_ms": 77,
            "error_code": 41,
            "error_message": "no",
        },
        {
            "throttle_time": 77,
            "error_code": 41,
            "error_message": "no",
            "entries": [
                {
                    "entity": [
                        {"entity_type": "user", "entity_name": "alice"},
                        {"entity_type": "client-id", "entity_name": None},
                    ],
                    "values": [{"key": "producer_byte_rate", "value": 1_024.5}],
                }
            ],
        },
    )


def _alter_client_quotas(version: int) -> Examples:
    del version
    entity = [alter_client_quotas.EntityPart("ip", "10.0.2.1")]
    operations = [
        alter_client_quotas.Operation("connection_creation_rate", 2.5),
        alter_client_quotas.Operation("request_percentage", remove=True),
    ]
    kio_entity = [{"entity_type": "ip", "entity_name": "10.0.2.1"}]
    return Example(
        {"entries": [alter_client_quotas.Alteration(entity, operations)], "validate_only": True},
        {
            "validate_only": True,
            "entries": [
                {
                    "entity": kio_entity,
                    "ops": [
                        {"key": "connection_creation_rate", "value": 2.5, "remove": False},
                        {"key": "request_percentage", "value": 0.0, "remove": True},
                    ],
                }
            ],
        },
    ), Example(
        {"entries": [alter_client_quotas.Result(entity, 42, "bad")], "throttle_ms": 77},
        {"throttle_time": 77, "entries": [{"error_code": 42, "error_message": "bad", "entity": kio_entity}]},
    )


ADMIN_EXAMPLES: Final[tuple[tuple[ModuleType, Callable[[int], Examples]], ...]] = (
    (create_topics, _create_topics),
    (delete_topics, _delete_topics),
    (create_partitions, _create_partitions),
    (sasl_handshake, _sasl_handshake),
    (sasl_authenticate, _sasl_authenticate),
    (describe_client_quotas, _describe_client_quotas),
    (alter_client_quotas, _alter_client_quotas),
)
