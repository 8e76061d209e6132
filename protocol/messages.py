"""Lists the messages that the proxy reads and writes as a whole with ``protocol.codec``.

Each line has fields: a name, a type, and the versions that have the field, unless all do. ``?`` marks what may be null.
``[...]`` is an array of structures, ``(...)`` one of structures without tags (such as strings), and ``[]int32`` one of
numbers. Names and versions are Kafka's. Types are Kafka's, too, with these exceptions:

    string    in Python a ``str``. Invalid UTF-8 is kept in it by ``surrogateescape``
    message   a string that is cut off at the maximum length when it is written
    utf8      also a string, but in Python its UTF-8 as ``bytes``
    records   in Python a ``memoryview`` of the frame, so that records are not copied
    offset    takes no bytes in a message. It says where in the frame the next field begins
    tags      the end of a structure whose fields are listed as if they were those of the structure around it

Tagged fields are left out: they are stepped over, and not written. Kafka has no fields of the types offset and tags.

A "front" is the beginning of a response. It is read from the bytes that have arrived.

Source: ``clients/src/main/resources/common/message/*.json`` of Apache Kafka 4.4, and of 3.9 for versions that 4.0
removed. ``tests/protocol/test_messages.py`` compares this list with that of kio, which is generated from these files.
"""

import re
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import API_NAMES, NEVER

_TABLE: Final = """
Produce request
    transactional_id string? 3+, acks int16, timeout_ms int32
    topic_data [
        name utf8 0-12, topic_id uuid 13+
        partition_data [index int32, records records?]
    ]
Produce response
    responses [
        name utf8 0-12, topic_id uuid 13+
        partition_responses [
            index int32, error_code int16, base_offset int64, log_append_time_ms int64 2+, log_start_offset int64 5+
            record_errors [batch_index int32, batch_index_error_message message?] 8+, error_message message? 8+
        ]
    ]
    throttle_time_ms int32 1+

Metadata request
    topics [topic_id uuid 10+, name utf8?]?, allow_auto_topic_creation bool 4+
    include_cluster_authorized_operations bool 8-10, include_topic_authorized_operations bool 8+
Metadata response
    throttle_time_ms int32 3+
    brokers [node_id int32, host string, port int32, rack string? 1+]
    cluster_id string? 2+, controller_id int32 1+
    topics [
        error_code int16, name utf8?, topic_id uuid 10+, is_internal bool 1+
        partitions [
            error_code int16, partition_index int32, leader_id int32, leader_epoch int32 7+
            replica_nodes []int32, isr_nodes []int32, offline_replicas []int32 5+
        ]
        topic_authorized_operations int32 8+
    ]
    cluster_authorized_operations int32 8-10, error_code int16 13+
Metadata front
    throttle_time_ms int32 3+, brokers_at offset
    brokers [begin offset, node_id int32, host utf8, port int32, rest offset, rack utf8? 1+], brokers_end offset
DescribeCluster front
    throttle_time_ms int32, error_code int16, error_message utf8?, endpoint_type int8 1+, cluster_id utf8?
    controller_id int32, brokers_at offset
    brokers [begin offset, broker_id int32, host utf8, port int32, rest offset, rack utf8?, is_fenced bool 2+]
    brokers_end offset

FindCoordinator response
    throttle_time_ms int32 1+, error_at offset, error_code int16 0-3, error_message utf8? 1-3
    begin offset, node_id int32 0-3, host utf8 0-3, port int32 0-3, rest offset
    coordinators [
        key utf8, begin offset, node_id int32, host utf8, port int32, rest offset
        error_code int16, error_message utf8?
    ] 4+

OffsetCommit request
    group_id string, generation_id_or_member_epoch int32 1+, member_id string 1+, group_instance_id string? 7+
    retention_time_ms int64 2-4
    topics [
        name utf8 0-9, topic_id uuid 10+
        partitions [
            partition_index int32, committed_offset int64, committed_leader_epoch int32 6+, commit_timestamp int64 1-1
            committed_metadata string?
        ]
    ]
OffsetCommit response
    throttle_time_ms int32 3+
    topics [name utf8 0-9, topic_id uuid 10+, partitions [partition_index int32, error_code int16]]

JoinGroup request
    group_id string, session_timeout_ms int32, rebalance_timeout_ms int32 1+, member_id utf8
    group_instance_id string? 5+, protocol_type string, protocols [name string, metadata bytes], reason string? 8+
JoinGroup response
    throttle_time_ms int32 2+, error_code int16, generation_id int32, protocol_type string? 7+, protocol_name string?
    leader string, skip_assignment bool 9+, member_id utf8
    members [member_id string, group_instance_id string? 5+, metadata bytes]

SaslAuthenticate request
    auth_bytes bytes
SaslAuthenticate response
    error_code int16, error_message message?, auth_bytes bytes, session_lifetime_ms int64 1+

CreateTopics request
    topics [
        begin offset, name utf8, num_partitions int32, replication_factor int16
        assignments [partition_index int32, broker_ids []int32], configs [name string, value string?]
    ]
    topics_end offset, timeout_ms int32, validate_only bool 1+
CreateTopics response
    throttle_at offset, throttle_time_ms int32 2+, topics_at offset
    topics [
        begin offset, name utf8, topic_id uuid 7+, error_code int16, error_message utf8? 1+
        num_partitions int32 5+, replication_factor int16 5+
        configs [name utf8, value utf8?, read_only bool, config_source int8, is_sensitive bool]? 5+
    ]
    topics_end offset

DeleteTopics request
    topics [begin offset, name utf8?, topic_id uuid] 6+, topic_names (begin offset, name utf8) 0-5
    topics_end offset, timeout_ms int32
DeleteTopics response
    throttle_at offset, throttle_time_ms int32 1+, responses_at offset
    responses [begin offset, name utf8?, topic_id uuid 6+, error_code int16, error_message utf8? 5+]
    responses_end offset

CreatePartitions request
    topics [begin offset, name utf8, count int32, assignments [broker_ids []int32]?]
    topics_end offset, timeout_ms int32, validate_only bool
CreatePartitions response
    throttle_at offset, throttle_time_ms int32, results_at offset
    results [begin offset, name utf8, error_code int16, error_message utf8?]
    results_end offset

DescribeClientQuotas request
    components [entity_type string, match_type int8, match string?], strict bool
DescribeClientQuotas response
    throttle_time_ms int32, error_code int16, error_message message?
    entries [entity [entity_type string, entity_name string?], values [key string, value float64]]?

AlterClientQuotas request
    entries [entity [entity_type string, entity_name string?], ops [key string, value float64, remove bool]]
    validate_only bool
AlterClientQuotas response
    throttle_time_ms int32
    entries [error_code int16, error_message message?, entity [entity_type string, entity_name string?]]

DescribeConfigs request
    resources [resource_type int8, resource_name string, configuration_keys (key string)?]
    include_synonyms bool 1+, include_documentation bool 3+
DescribeConfigs response
    throttle_time_ms int32
    results [
        error_code int16, error_message message?, resource_type int8, resource_name string
        configs [
            name string, value string?, read_only bool, is_default bool 0-0, config_source int8 1+, is_sensitive bool
            synonyms [name string, value string?, source int8] 1+, config_type int8 3+, documentation string? 3+
        ]
    ]

ListPartitionReassignments request
    timeout_ms int32, topics [name string, partition_indexes []int32]?
ListPartitionReassignments response
    throttle_time_ms int32, error_code int16, error_message message?
    topics [
        name string
        partitions [partition_index int32, replicas []int32, adding_replicas []int32, removing_replicas []int32]
    ]

DescribeLogDirs request
    topics [topic string, partitions []int32]?
DescribeLogDirs response
    throttle_time_ms int32, error_code int16 3+
    results [
        error_code int16, log_dir string
        topics [
            name string
            partitions [partition_index int32, partition_size int64, offset_lag int64, is_future_key bool]
        ]
        total_bytes int64 4+, usable_bytes int64 4+, is_cordoned bool 5+
    ]

ShareFetch response
    throttle_time_ms int32, error_code int16, error_message message?, acquisition_lock_timeout_ms int32 1+
    responses [
        topic_id uuid
        partitions [
            partition_index int32, error_code int16, error_message message?
            acknowledge_error_code int16, acknowledge_error_message message?
            leader_id int32, leader_epoch int32, leader_end tags, records records?
            acquired_records [first_offset int64, last_offset int64, delivery_count int16]
        ]
    ]
    node_endpoints [node_id int32, host string, port int32, rack string?]

ShareAcknowledge front
    endpoints_at offset
    node_endpoints [begin offset, node_id int32, host utf8, port int32, rest offset, rack utf8?], endpoints_end offset

CreateDelegationToken response
    error_code int16, principal_type string, principal_name string
    token_requester_principal_type string 3+, token_requester_principal_name string 3+
    issue_timestamp_ms int64, expiry_timestamp_ms int64, max_timestamp_ms int64, token_id string, hmac bytes
    throttle_at offset, throttle_time_ms int32
DescribeDelegationToken response
    error_code int16
    tokens [
        principal_type string, principal_name string
        token_requester_principal_type string 3+, token_requester_principal_name string 3+
        issue_timestamp int64, expiry_timestamp int64, max_timestamp int64, token_id string, hmac bytes
        renewers [principal_type string, principal_name string]
    ]
    throttle_at offset, throttle_time_ms int32
"""

# The types of fields with a fixed size, and their format characters for ``struct``.
FIXED: Final = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d", "uuid": "16s",
}  # fmt: skip

_TOKEN: Final = re.compile(r"\[\]|\d+(?:\+|-\d+)|\w+|[][()?]")


class Field(NamedTuple):
    """A field of a message or structure.

    ``kind`` is a type's name, or "[]" for an array of numbers of the type ``of``, or "[" or "(" for an array of
    structures with ``fields``.
    """

    name: str
    kind: str
    of: str
    fields: "tuple[Field, ...]"
    is_nullable: bool
    first: int  # the first version that has the field
    last: int


def _parse(tokens: list[str]) -> tuple[Field, ...]:
    """Take the fields of one structure off the end of ``tokens``, which are in reverse."""
    fields = []
    while tokens and tokens[-1] not in ("]", ")"):
        name, kind = tokens.pop(), tokens.pop()
        of = tokens.pop() if kind == "[]" else ""
        inner = _parse(tokens) if kind in ("[", "(") else ()
        if inner:
            tokens.pop()
        is_nullable = bool(tokens) and tokens[-1] == "?"
        if is_nullable:
            tokens.pop()
        first, last = "0", ""
        if tokens and tokens[-1][0].isdigit():
            first, _, last = tokens.pop().removesuffix("+").partition("-")
        fields.append(Field(name, kind, of, inner, is_nullable, int(first), int(last or NEVER)))
    return tuple(fields)


def _messages() -> dict[tuple[int, str], tuple[Field, ...]]:
    keys = {name: key for key, name in API_NAMES.items()}
    parts = re.split(r"^(\w+) (request|response|front)\n", _TABLE, flags=re.MULTILINE)[1:]
    return {
        (keys[api], kind): _parse(_TOKEN.findall(text)[::-1])
        for api, kind, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


# By the api_key and the kind of the message, which is a request, a response or a front.
MESSAGES: Final = _messages()
