"""What kind of request a broker is asked, as far as its time and its turn are concerned.

There is one ``RequestKind`` for all requests of a kind, so that what follows from the kind is found once.

Source: ``KafkaApis``, ``DelayedFetch``, ``DelayedJoin`` of Apache Kafka.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.refusal_responses import is_refusable

# These a broker answers at once. All others may wait: for data, for the members of a group, for followers, for the
# controller. So may what is not known here.
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
# These must come through whatever else does: who is late with them is put out of its group, or its transaction ends,
# and that makes more work for all.
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
# Answered when the members of a group have gathered.
_GATHERING: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_POLLS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
# What a connection begins with, and what costs a broker nothing.
_BYPASS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
# What clients send are a few kinds; who makes up more has them made anew.
_MOST_KINDS: Final = 1_024


def may_wait(api_key: int, *, acks: int = 1, is_patient: bool = True, wants_data: bool = True) -> bool:
    """Whether the answer may be late while no thread of the broker is busy.

    Args:
        api_key: Of the request.
        acks: Of a Produce; below 0 it waits for followers.
        is_patient: Of a Fetch: its max_wait_ms is above 0.
        wants_data: Of a Fetch: its min_bytes is above 0.
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
        has_answer: All have but a Produce with acks=0.
        may_wait: The answer may be late while no thread of the broker is busy.
        is_poll: It asks for data.
        waits_for_data: So may its answer, and until there is any.
        is_gathering: It is answered when the members of a group have gathered.
        may_park: It may have to give its slot back before it is answered, for one of these two reasons.
        is_control: It has to come through whatever else does.
        is_free: It costs a broker nothing, and needs no turn.
        is_refusable: There is an answer that refuses it.
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
    """Return the kind of a request.

    Args:
        api_key: Of the request.
        api_version: Of it.
        acks: Of a Produce.
        is_patient: Of a Fetch: its max_wait_ms is above 0.
        wants_data: Of a Fetch: its min_bytes is above 0.
    """
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
