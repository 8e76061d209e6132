"""Lists Kafka's APIs, with their keys, their versions, and the header that each version has.

``make apis`` writes the members of ``ApiKey``. Source: ``apiKey``, ``validVersions`` and ``flexibleVersions`` in the
message files of Apache Kafka 4.4 (``clients/src/main/resources/common/message/*.json``), and of 3.9 for keys 4 to 7,
which 4.0 removed. Also ``shouldClientThrottle`` of the classes in org.apache.kafka.common.requests of 4.4.
"""

from enum import IntEnum
from typing import Final

# A version that no API reaches, because it is above the range of int16.
NEVER: Final = 0x8000


class ApiKey(IntEnum):
    """Kafka's APIs. The value of a member is its api_key, and its attributes describe the versions of the API.

    Attributes:
        highest_version: The newest known version.
        first_flexible: From this version on the message has compact types and tags, and its header has tags.
        first_throttle_time: From this version on a response's body begins with throttle_time_ms. ``NEVER`` if the
            response lacks the field, or has it elsewhere (see ``protocol.throttle_time``).
        first_client_throttle: From this version on a client of the newest Kafka itself waits for the throttle time
            (KIP-219). Clients before 4.4 wait for fewer.
    """

    highest_version: int
    first_flexible: int
    first_throttle_time: int
    first_client_throttle: int

    def __new__(
        cls,
        key: int,
        highest_version: int = 0,
        first_flexible: int = NEVER,
        first_throttle_time: int = NEVER,
        first_client_throttle: int = NEVER,
    ) -> "ApiKey":
        """Make a member from its api_key and from the attributes that describe the versions of the API."""
        api = int.__new__(cls, key)
        api._value_ = key
        api.highest_version = highest_version
        api.first_flexible = first_flexible
        api.first_throttle_time = first_throttle_time
        api.first_client_throttle = first_client_throttle
        return api

    PRODUCE = 0, 13, 9, NEVER, 6
    FETCH = 1, 18, 12, 1, 8
    LIST_OFFSETS = 2, 11, 6, 2, 3
    METADATA = 3, 13, 9, 3, 6
    LEADER_AND_ISR = 4, 7, 4
    STOP_REPLICA = 5, 4, 2
    UPDATE_METADATA = 6, 8, 6
    CONTROLLED_SHUTDOWN = 7, 3, 3
    OFFSET_COMMIT = 8, 10, 8, 3, 4
    OFFSET_FETCH = 9, 10, 6, 3, 4
    FIND_COORDINATOR = 10, 6, 3, 1, 2
    JOIN_GROUP = 11, 9, 6, 2, 3
    HEARTBEAT = 12, 4, 4, 1, 2
    LEAVE_GROUP = 13, 5, 4, 1, 2
    SYNC_GROUP = 14, 5, 4, 1, 2
    DESCRIBE_GROUPS = 15, 6, 5, 1, 2
    LIST_GROUPS = 16, 5, 3, 1, 2
    SASL_HANDSHAKE = 17, 1
    API_VERSIONS = 18, 5, 3, NEVER, 2
    CREATE_TOPICS = 19, 7, 5, 2, 3
    DELETE_TOPICS = 20, 6, 4, 1, 2
    DELETE_RECORDS = 21, 2, 2, 0, 1
    INIT_PRODUCER_ID = 22, 6, 2, 0, 1
    OFFSET_FOR_LEADER_EPOCH = 23, 4, 4, 2, 2
    ADD_PARTITIONS_TO_TXN = 24, 5, 3, 0, 1
    ADD_OFFSETS_TO_TXN = 25, 4, 3, 0, 1
    END_TXN = 26, 5, 3, 0, 1
    WRITE_TXN_MARKERS = 27, 2, 1
    TXN_OFFSET_COMMIT = 28, 6, 3, 0, 1
    DESCRIBE_ACLS = 29, 3, 2, 0, 1
    CREATE_ACLS = 30, 3, 2, 0, 1
    DELETE_ACLS = 31, 3, 2, 0, 1
    DESCRIBE_CONFIGS = 32, 4, 4, 0, 2
    ALTER_CONFIGS = 33, 2, 2, 0, 1
    ALTER_REPLICA_LOG_DIRS = 34, 2, 2, 0, 1
    DESCRIBE_LOG_DIRS = 35, 5, 2, 0, 1
    SASL_AUTHENTICATE = 36, 2, 2
    CREATE_PARTITIONS = 37, 3, 2, 0, 1
    CREATE_DELEGATION_TOKEN = 38, 3, 2, NEVER, 1
    RENEW_DELEGATION_TOKEN = 39, 2, 2, NEVER, 1
    EXPIRE_DELEGATION_TOKEN = 40, 2, 2, NEVER, 1
    DESCRIBE_DELEGATION_TOKEN = 41, 3, 2, NEVER, 1
    DELETE_GROUPS = 42, 3, 2, 0, 1
    ELECT_LEADERS = 43, 2, 2, 0, 0
    INCREMENTAL_ALTER_CONFIGS = 44, 1, 1, 0, 0
    ALTER_PARTITION_REASSIGNMENTS = 45, 1, 0, 0, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, 0, 0
    OFFSET_DELETE = 47, 0, NEVER, NEVER, 0
    DESCRIBE_CLIENT_QUOTAS = 48, 1, 1, 0, 0
    ALTER_CLIENT_QUOTAS = 49, 1, 1, 0, 0
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, 0, 0
    VOTE = 52, 2, 0
    BEGIN_QUORUM_EPOCH = 53, 1, 1
    END_QUORUM_EPOCH = 54, 1, 1
    DESCRIBE_QUORUM = 55, 2, 0
    ALTER_PARTITION = 56, 3, 0, 0, 2
    UPDATE_FEATURES = 57, 2, 0, 0, 0
    ENVELOPE = 58, 0, 0
    FETCH_SNAPSHOT = 59, 1, 0, 0, 0
    DESCRIBE_CLUSTER = 60, 2, 0, 0, 0
    DESCRIBE_PRODUCERS = 61, 0, 0, 0, 0
    BROKER_REGISTRATION = 62, 4, 0, 0, 0
    BROKER_HEARTBEAT = 63, 2, 0, 0, 0
    UNREGISTER_BROKER = 64, 0, 0, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0, 0, 0
    LIST_TRANSACTIONS = 66, 2, 0, 0, 0
    ALLOCATE_PRODUCER_IDS = 67, 0, 0, 0, 0
    CONSUMER_GROUP_HEARTBEAT = 68, 1, 0, 0, 0
    CONSUMER_GROUP_DESCRIBE = 69, 1, 0, 0, 0
    CONTROLLER_REGISTRATION = 70, 0, 0, 0, 0
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0, 0, 0, 0
    PUSH_TELEMETRY = 72, 0, 0, 0, 0
    ASSIGN_REPLICAS_TO_DIRS = 73, 0, 0, 0, 0
    LIST_CONFIG_RESOURCES = 74, 1, 0, 0, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, 0, 0
    SHARE_GROUP_HEARTBEAT = 76, 1, 0, 0, 1
    SHARE_GROUP_DESCRIBE = 77, 1, 0, 0, 1
    SHARE_FETCH = 78, 2, 0, 0, 1
    SHARE_ACKNOWLEDGE = 79, 2, 0, 0, 1
    ADD_RAFT_VOTER = 80, 1, 0, 0, 0
    REMOVE_RAFT_VOTER = 81, 0, 0, 0, 0
    UPDATE_RAFT_VOTER = 82, 0, 0, 0, 0
    INITIALIZE_SHARE_GROUP_STATE = 83, 0, 0
    READ_SHARE_GROUP_STATE = 84, 0, 0
    WRITE_SHARE_GROUP_STATE = 85, 1, 0
    DELETE_SHARE_GROUP_STATE = 86, 0, 0
    READ_SHARE_GROUP_STATE_SUMMARY = 87, 1, 0
    STREAMS_GROUP_HEARTBEAT = 88, 1, 0, 0, 0
    STREAMS_GROUP_DESCRIBE = 89, 1, 0, 0, 0
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 1, 0, 0, 0
    ALTER_SHARE_GROUP_OFFSETS = 91, 0, 0, 0, 0
    DELETE_SHARE_GROUP_OFFSETS = 92, 0, 0, 0, 0
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93, 0, 0, 0, 0
    UNREGISTER_CONTROLLER = 94, 0, 0, 0, 0


# The names that Kafka's metrics and logs use, such as "Produce" and "SaslHandshake".
API_NAMES: Final = {int(key): key.name.title().replace("_", "") for key in ApiKey}
# These are read for each frame. A dictionary is faster than an attribute of an enum, and allows unknown keys.
HIGHEST_VERSION: Final = {int(key): key.highest_version for key in ApiKey}
FIRST_FLEXIBLE_VERSION: Final = {int(key): key.first_flexible for key in ApiKey}


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version of an API has compact types and tags (KIP-482). False if the API is unknown."""
    return api_version >= FIRST_FLEXIBLE_VERSION.get(api_key, NEVER)


def response_header_version(api_key: int, api_version: int) -> int:
    """Return the version of a response's header: 0, or 1 if the header has tags.

    It is always 0 for ApiVersions, because a client reads this response before it knows which versions the broker
    supports (KIP-511).
    """
    return int(is_flexible(api_key, api_version) and api_key != ApiKey.API_VERSIONS)
