"""Kinds of requests: their place in the fair call queue, and whether their responses may wait at the broker.

Requests of one kind share one ``RequestKind``, which is computed once.

Source: ``KafkaApis``, ``DelayedFetch``, ``DelayedJoin`` of Apache Kafka.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.refusal_responses import is_refusable

# A broker answers these at once. All other requests, unknown ones included, may wait for data, for the members of a
# group, for followers or for the controller.
_IMMEDIATE: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    }
)
# These have a queue of their own: a late one costs a client its group membership or its transaction, which makes more
# work for all.
CONTROL: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    }
)
# Answered when all members of a group have joined or synced.
_GATHERING: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_POLLS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
# These begin a connection and cost a broker nothing.
_BYPASS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
# Clients send a few kinds. A client that makes up more costs the cache, not memory.
_MOST_KINDS: Final = 1_024

# The locks that Hadoop's name node would take: requests that change state, and requests that read it. The weighted
# cost of time tells them apart.
EXCLUSIVE_LOCK: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        *CONTROL,
    }
)
SHARED_LOCK: Final = frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FETCH})


def may_wait(api_key: int, *, acks: int = 1, is_patient: bool = True, wants_data: bool = True) -> bool:
    """Whether the response may be late while no thread of the broker works on it.

    A Produce with ``acks`` below 0 waits for followers. Of a Fetch, ``is_patient`` means a ``max_wait_ms`` above 0, and
    ``wants_data`` a ``min_bytes`` above 0.
    """
    if api_key == ApiKey.PRODUCE:
        return acks < 0
    if api_key == ApiKey.FETCH:
        return is_patient and wants_data
    return api_key not in _IMMEDIATE


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKind:
    """A kind of request.

    Attributes:
        api_key: Of the request.
        has_answer: The broker sends a response; false for a Produce with acks=0.
        may_wait: The response may be late while no thread of the broker works on it.
        is_poll: It fetches data.
        waits_for_data: The response may wait until there is data.
        is_gathering: The response waits for the other members of a group.
        may_park: It may give its slot back before the response, for one of the last two reasons.
        is_control: It has a queue of its own.
        is_free: It costs a broker nothing, and needs no slot.
        is_refusable: A response exists that refuses it.
    """

    api_key: int
    has_answer: bool
    may_wait: bool
    is_poll: bool
    waits_for_data: bool
    is_gathering: bool
    may_park: bool
    is_control: bool
    is_free: bool
    is_refusable: bool


@lru_cache(maxsize=_MOST_KINDS)
def request_kind(
    api_key: int, api_version: int, acks: int = 1, is_patient: bool = True, wants_data: bool = True
) -> RequestKind:
    """Return the kind of a request. Arguments as for ``may_wait``."""
    is_poll = api_key in _POLLS
    is_gathering = api_key in _GATHERING
    waits_for_data = is_poll and (is_patient or api_key == ApiKey.SHARE_FETCH)
    return RequestKind(
        api_key=api_key,
        has_answer=api_key != ApiKey.PRODUCE or acks != 0,
        may_wait=may_wait(api_key, acks=acks, is_patient=is_patient, wants_data=wants_data),
        is_poll=is_poll,
        waits_for_data=waits_for_data,
        is_gathering=is_gathering,
        may_park=waits_for_data or is_gathering,
        is_control=api_key in CONTROL,
        is_free=api_key in _BYPASS,
        is_refusable=is_refusable(api_key, api_version, acks=acks),
    )
