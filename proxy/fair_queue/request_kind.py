"""Derives from a request's API how the request is queued, and whether its response may wait at the broker.

Requests of one kind share one ``RequestKind``, which is computed once.

Source: ``KafkaApis``, ``DelayedFetch``, ``DelayedJoin`` of Apache Kafka.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.refusal_responses import is_refusable

# A broker answers requests of these APIs at once. All other requests, including those of unknown APIs, may wait for
# data, for the members of a group, for followers or for the controller.
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
# Control requests have a queue of their own: if one is late, its client loses its group membership or its transaction,
# which makes more work for all.
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
# A broker answers these requests when all members of a group have joined or synced.
_GATHERING: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_POLLS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
# Requests of these APIs begin a connection and cost a broker nothing.
_BYPASS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
# Clients send requests of a few kinds. A client that makes up more kinds displaces others from the cache, but cannot
# fill the memory.
_MOST_KINDS: Final = 1_024

# Requests that change state, and requests that read it. For the first, Hadoop's name node would take an exclusive lock,
# and for the second a shared lock. `WeightedTimeCost` gives their times different weights.
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
    """Return whether the response to a request may be late while no thread of the broker works on the request.

    A Produce waits for followers if its ``acks`` is below 0. A Fetch waits if its ``max_wait_ms`` is above 0
    (``is_patient``) and its ``min_bytes`` is above 0 (``wants_data``).
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
        api_key: The API key of the request.
        has_answer: Whether the broker sends a response. A Produce with acks=0 has none.
        may_wait: Whether the response may be late while no thread of the broker works on the request.
        is_poll: Whether the request fetches data.
        waits_for_data: Whether the response may wait until there is data.
        is_gathering: Whether the response waits for the other members of a group.
        may_park: Whether the request may give its slot back before the response, because the response waits for data
            or for group members.
        is_control: Whether the request is a control request, which waits in a queue of its own.
        is_free: Whether the request costs a broker nothing and needs no slot.
        is_refusable: Whether its API has a response that refuses the request.
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
    """Return the kind of a request. The last three arguments have the same meaning as for ``may_wait``."""
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
