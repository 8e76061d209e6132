"""Classifies requests by their API: in which queue they wait, and whether the broker may wait before it answers them.

Source: ``KafkaApis``, ``DelayedFetch``, ``DelayedProduce``, ``DelayedJoin`` of Apache Kafka.
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
# Members of a group send these to the group's coordinator, on one connection. If one is late, they are given up.
_MEMBERSHIP: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    }
)
# A broker answers these requests when the followers of a partition of its own have the records that they write.
_COPIED: Final = CONTROL - {ApiKey.FIND_COORDINATOR, ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
# A broker answers these requests when all members of a group have joined or synced.
_GATHERING: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_POLLS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
# Requests of these APIs begin a connection and cost a broker nothing.
_BYPASS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
# The bound keeps a client that makes up API keys from filling the memory.
_MOST_KINDS: Final = 1_024

# Requests that change state, and requests that only read state. Hadoop's name node would take an exclusive or a shared
# lock. `WeightedTimeCost` gives their times different weights.
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
    """Return whether the broker may hold back its response, for example until a topic has data to fetch.

    ``acks`` matters only for a Produce request, and the next two only for a Fetch: ``is_patient`` says whether its
    ``max_wait_ms`` is above 0, and ``wants_data`` whether its ``min_bytes`` is above 0.
    """
    if api_key == ApiKey.PRODUCE:
        return acks < 0
    if api_key == ApiKey.FETCH:
        return is_patient and wants_data
    return api_key not in _IMMEDIATE


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKind:
    """What the fair call queue needs to know about a request.

    Attributes:
        api_key: The API key of the request.
        has_answer: Whether the broker sends a response. A Produce with acks=0 has none.
        may_wait: Whether the broker may wait before it answers, for any reason (see the function ``may_wait``).
        is_produce: Whether the request is a Produce.
        is_poll: Whether the request is a Fetch or ShareFetch.
        waits_for_data: Whether the broker may wait for data before it answers.
        is_gathering: Whether the broker waits for the other members of a group before it answers.
        awaits_followers: Whether the broker waits until followers have copied what the request writes.
        may_park: Whether the request may give its slot back before the broker answers it.
        is_control: Whether the request waits in the queue for control requests.
        keeps_membership: Whether a client would lose its membership of a group if the request were late.
        is_free: Whether the request needs no slot, because it begins a connection and costs the broker nothing.
        is_refusable: Whether the proxy can refuse the request with a response that its client understands.
    """

    api_key: int
    has_answer: bool
    may_wait: bool
    is_produce: bool
    is_poll: bool
    waits_for_data: bool
    is_gathering: bool
    awaits_followers: bool
    may_park: bool
    is_control: bool
    keeps_membership: bool
    is_free: bool
    is_refusable: bool


@lru_cache(maxsize=_MOST_KINDS)
def request_kind(
    api_key: int, api_version: int, acks: int = 1, is_patient: bool = True, wants_data: bool = True
) -> RequestKind:
    """Return the kind of a request. For ``acks``, ``is_patient`` and ``wants_data``, see ``may_wait``."""
    is_poll = api_key in _POLLS
    is_gathering = api_key in _GATHERING
    waits_for_data = is_poll and (is_patient or api_key == ApiKey.SHARE_FETCH)
    awaits_followers = api_key in _COPIED or (api_key == ApiKey.PRODUCE and acks < 0)
    return RequestKind(
        api_key=api_key,
        has_answer=api_key != ApiKey.PRODUCE or acks != 0,
        may_wait=may_wait(api_key, acks=acks, is_patient=is_patient, wants_data=wants_data),
        is_produce=api_key == ApiKey.PRODUCE,
        is_poll=is_poll,
        waits_for_data=waits_for_data,
        is_gathering=is_gathering,
        awaits_followers=awaits_followers,
        may_park=waits_for_data or is_gathering or awaits_followers,
        is_control=api_key in CONTROL,
        keeps_membership=api_key in _MEMBERSHIP,
        is_free=api_key in _BYPASS,
        is_refusable=is_refusable(api_key, api_version, acks=acks),
    )
