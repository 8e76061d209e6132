"""Kafka's APIs: their keys, the known versions, and the header of each version.

Source: the message files (``clients/src/main/resources/common/message/*.json``: ``apiKey``, ``validVersions``,
``flexibleVersions``) of Apache Kafka 4.x; 3.9 for keys 4 to 7, which 4.0 removed.
"""

from enum import IntEnum
from typing import Final


class ApiKey(IntEnum):
    """The number of each API, under Kafka's name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


# The names in Kafka's metrics and logs: "Produce", "SaslHandshake".
API_NAMES: Final = {int(key): key.name.title().replace("_", "") for key in ApiKey}

# A version above the range of int16, which no API reaches.
NEVER: Final = 0x8000

# The highest known version, and the first flexible one: from it on the message has compact types and tags, and its
# header has tags.
_VERSIONS: Final[dict[int, tuple[int, int]]] = {
    ApiKey.PRODUCE: (13, 9),
    ApiKey.FETCH: (18, 12),
    ApiKey.LIST_OFFSETS: (11, 6),
    ApiKey.METADATA: (13, 9),
    ApiKey.LEADER_AND_ISR: (7, 4),
    ApiKey.STOP_REPLICA: (4, 2),
    ApiKey.UPDATE_METADATA: (8, 6),
    ApiKey.CONTROLLED_SHUTDOWN: (3, 3),
    ApiKey.OFFSET_COMMIT: (10, 8),
    ApiKey.OFFSET_FETCH: (10, 6),
    ApiKey.FIND_COORDINATOR: (6, 3),
    ApiKey.JOIN_GROUP: (9, 6),
    ApiKey.HEARTBEAT: (4, 4),
    ApiKey.LEAVE_GROUP: (5, 4),
    ApiKey.SYNC_GROUP: (5, 4),
    ApiKey.DESCRIBE_GROUPS: (6, 5),
    ApiKey.LIST_GROUPS: (5, 3),
    ApiKey.SASL_HANDSHAKE: (1, NEVER),
    ApiKey.API_VERSIONS: (4, 3),
    ApiKey.CREATE_TOPICS: (7, 5),
    ApiKey.DELETE_TOPICS: (6, 4),
    ApiKey.DELETE_RECORDS: (2, 2),
    ApiKey.INIT_PRODUCER_ID: (6, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (4, 3),
    ApiKey.END_TXN: (5, 3),
    ApiKey.WRITE_TXN_MARKERS: (2, 1),
    ApiKey.TXN_OFFSET_COMMIT: (5, 3),
    ApiKey.DESCRIBE_ACLS: (3, 2),
    ApiKey.CREATE_ACLS: (3, 2),
    ApiKey.DELETE_ACLS: (3, 2),
    ApiKey.DESCRIBE_CONFIGS: (4, 4),
    ApiKey.ALTER_CONFIGS: (2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (5, 2),
    ApiKey.SASL_AUTHENTICATE: (2, 2),
    ApiKey.CREATE_PARTITIONS: (3, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: (3, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: (2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (3, 2),
    ApiKey.DELETE_GROUPS: (2, 2),
    ApiKey.ELECT_LEADERS: (2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, NEVER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.VOTE: (2, 0),
    ApiKey.BEGIN_QUORUM_EPOCH: (1, 1),
    ApiKey.END_QUORUM_EPOCH: (1, 1),
    ApiKey.DESCRIBE_QUORUM: (2, 0),
    ApiKey.ALTER_PARTITION: (3, 0),
    ApiKey.UPDATE_FEATURES: (2, 0),
    ApiKey.ENVELOPE: (0, 0),
    ApiKey.FETCH_SNAPSHOT: (1, 0),
    ApiKey.DESCRIBE_CLUSTER: (2, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.BROKER_REGISTRATION: (4, 0),
    ApiKey.BROKER_HEARTBEAT: (2, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (2, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (1, 0),
    ApiKey.CONTROLLER_REGISTRATION: (0, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
    ApiKey.PUSH_TELEMETRY: (0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 0),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 0),
    ApiKey.SHARE_FETCH: (2, 0),
    ApiKey.SHARE_ACKNOWLEDGE: (2, 0),
    ApiKey.ADD_RAFT_VOTER: (1, 0),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: (1, 0),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (1, 0),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (1, 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
}
HIGHEST_VERSION: Final = {int(key): highest for key, (highest, _) in _VERSIONS.items()}
FIRST_FLEXIBLE_VERSION: Final = {int(key): first_flexible for key, (_, first_flexible) in _VERSIONS.items()}


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether the message has compact types and tags; False for a key that is not in ``ApiKey``."""
    return api_version >= FIRST_FLEXIBLE_VERSION.get(api_key, NEVER)


def request_header_version(api_key: int, api_version: int) -> int:
    """Return 0 (no client_id), 1 or 2 (with tags).

    Source: ``ApiMessageTypeGenerator.generateHeaderVersion`` in Apache Kafka.
    """
    if is_flexible(api_key, api_version):
        return 2
    return 0 if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Return 0 or 1 (with tags).

    Always 0 for ApiVersions: a client must be able to read it before it knows the broker's version (KIP-511).
    """
    return int(is_flexible(api_key, api_version) and api_key != ApiKey.API_VERSIONS)
