"""Handles CreateTopics, CreatePartitions and DeleteTopics, to which ``controller_mutation_rate`` applies (KIP-599).

A request is read whole. Its partitions are reserved when it is forwarded. The quota is charged for each partition that
is created or deleted, when the broker has answered, or when the connection ends before the answer. If a request adds
partitions to a topic or deletes a topic, only the cluster knows how many partitions the topic has. So the proxy first
sends a Metadata request of its own, on the client's connection to the broker and in the client's name. Before Kafka
3.1, Metadata cannot look topics up by id. A topic that is given by its id then counts as one partition.

Topics for which the quota has no room are removed from the request, and added to the response with the error
THROTTLING_QUOTA_EXCEEDED. Older versions of the APIs do not have this error. Requests of these versions are forwarded
with all topics, and the client is throttled afterwards (``quota.mutation``). Until the quota is no longer violated, the
next such request waits, from whichever connection it comes. Otherwise a client that leaves before its response, or has
many connections, would exceed its quota.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol import metadata_query, topic_mutations
from kafka_quota_proxy.protocol.api import API_NAMES, ApiKey
from kafka_quota_proxy.protocol.errors import FrameTooLarge, ProtocolError, UnknownVersion
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.protocol.topic_mutations import FIRST_REFUSABLE_VERSION, MutationRequest, Topic, is_mutation
from kafka_quota_proxy.proxy.quota import mutation
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.mutation import MutationDecision
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.frame_edits import Edit
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import MAX_REPLICA_FETCH_BYTES
from kafka_quota_proxy.proxy.session.handlers.whole_request import (
    Answered,
    Ask,
    Decision,
    Forward,
    Hold,
    WholeRequestHandler,
)
from kafka_quota_proxy.proxy.session.state import SessionState

# The longest request that is accepted, which has some 50,000 topics. Kafka accepts up to socket.request.max.bytes.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
# A Kafka version with only DeleteTopics v0 does not know Metadata v4, in which a request can forbid the broker to
# create missing topics.
_OLDEST_DELETE: Final = 0
_FIRST_NAMED: Final = 4
# A request that waits for a debt looks again at least this often, because a reservation may end.
_LOOK_AGAIN_MS: Final = 1_000


class _Query(NamedTuple):
    topics: tuple[Topic, ...]
    api_version: int


class _Learned(NamedTuple):
    """The topics of the waiting request that the cluster was asked about, and how many partitions each has."""

    correlation_id: int
    asked: frozenset[Topic]
    counts: dict[Topic, int]


class _Passed(NamedTuple):
    """A request that was forwarded, with all or some of its topics, and has no response yet."""

    request: MutationRequest
    bucket: Bucket
    decision: MutationDecision


class TopicMutationHandler(WholeRequestHandler):
    """Handles one connection's requests to create topics, add partitions or delete topics, one at a time."""

    __slots__ = ("_learned", "_passed", "_query", "api_key")

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._query: _Query | None = None  # the Metadata request that has no response yet
        self._learned: _Learned | None = None
        self._passed: _Passed | None = None
        self.api_key = int(ApiKey.METADATA)

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Decide by the quota on a request that has arrived as a whole, or first ask the cluster about its topics."""
        state = self._state
        size_bytes, api_key, api_version, _, client_id, _ = head
        if not state.context.quotas.limits(QuotaKind.MUTATION):
            return state.requests.other.take(data, position, head, now_ms)
        bucket = state.account.bucket(QuotaKind.MUTATION, client_id, now_ms)
        if not bucket.is_limited:
            return state.requests.other.take(data, position, head, now_ms)
        try:
            request = _read(data, position, head)
        except ProtocolError:
            if not state.account.observes(bucket):
                raise
            return state.requests.other.take(data, position, head, now_ms)
        if request is None:
            return None
        charge = state.charge_of(head, now_ms)
        is_muted = state.requests.is_muted(now_ms)
        if is_muted or not state.may_answer():
            return None
        if not state.account.observes(bucket):
            bucket.begin_enforcement(now_ms=now_ms)
            is_throttled = api_version < FIRST_REFUSABLE_VERSION[api_key]
        else:
            is_throttled = False
        if is_throttled and (debt_ms := bucket.debt_ms(now_ms=now_ms)):
            return self.execute(
                Hold(now_ms + min(debt_ms, _LOOK_AGAIN_MS), BlockedBy.QUOTA), self, position, head, None
            )
        if charge is not None and not state.broker_turn.has_come(charge, size_bytes, now_ms):
            return None
        frame = data[position : position + 4 + size_bytes]
        decision = self._decide(frame, request, head._replace(body=head.body - position), bucket, now_ms)
        passes = isinstance(decision, Forward)
        if passes and charge is not None:
            state.broker_turn.begin(charge, now_ms)
        return self.execute(decision, self, position, head, charge if passes else None)

    @property
    def max_kept_bytes(self) -> int:
        """How many bytes of a request may be held in memory while the rest of the request has not arrived."""
        return MAX_REPLICA_FETCH_BYTES

    def _decide(
        self, frame: bytes, request: MutationRequest, head: RequestHead, bucket: Bucket, now_ms: int
    ) -> Decision:
        """Decide for which topics of a whole request the limit of ``bucket`` has room.

        If the number of partitions of some topics is not known yet, the decision is to ask the broker for it first.
        """
        learned = self._learned
        if learned is None or learned.correlation_id != head.correlation_id:
            learned = _Learned(head.correlation_id, frozenset(), {})
        missing = self._askable(mutation.uncounted_topics(request, learned.asked))
        if missing:
            return self._ask(missing, learned, head)
        self._learned = None
        decision = mutation.decide(
            request,
            bucket,
            known=learned.counts,
            default_partitions=self._state.context.quotas.num_partitions,
            may_refuse=not self._state.account.observes(bucket),
            now_ms=now_ms,
        )
        if decision.refused and not decision.permits:
            wait_ms = self._throttle(bucket, mutation.settle(decision, (), bucket, now_ms=now_ms), now_ms)
            return Answered(topic_mutations.refuse_all_topics(request, throttle_time_ms=wait_ms))
        bucket.reserved.add(decision.reserved, now_ms=now_ms)
        self._passed = _Passed(request, bucket, decision)
        self.api_key = head.api_key
        return Forward(
            topic_mutations.without_topics(frame, request, decision.refused) if decision.refused else b"",
            is_answer_read=True,
        )

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return the response for the client, with an error for each topic that the proxy refused.

        The throttle time is set, too. If the broker's response answers the proxy's own Metadata request, it is only
        read, and the result is empty.
        """
        frame = data[position : position + frame_bytes]
        if self._query is not None and self._learned is not None:
            topics, api_version = self._query
            self._query = None
            self._learned.counts.update(metadata_query.read_partition_counts(frame, topics, api_version))
            return b""
        if self._passed is None:
            return frame
        request, bucket, decision = self._passed
        try:
            response = topic_mutations.read_response(frame, request.api_key, request.api_version)
        except ProtocolError:
            if not self._state.account.observes(bucket):
                raise
            self.close()  # an observed client gets what the broker sends, and is charged as if it had left
            self._passed = None
            return frame
        self._passed = None
        wait_ms = mutation.settle(decision, response.results, bucket, now_ms=now_ms)
        wait_ms = self._throttle(bucket, wait_ms, now_ms)
        return topic_mutations.with_refused_topics(frame, request, decision.refused, throttle_time_ms=wait_ms)

    @property
    def charged_bucket(self) -> Bucket | None:
        """The bucket to charge when the forwarded request is answered, or None if no such request is pending."""
        return None if self._passed is None else self._passed.bucket

    def close(self) -> None:
        """End the reservation of a request that is not answered yet.

        If it was sent, it is charged, because the broker may have made the change. It was not sent if, for example, the
        broker could not be reached.
        """
        if self._passed is not None:
            _, bucket, decision = self._passed
            bucket.reserved.settle(decision.reserved)
            # A session with bytes for the broker that ends has not sent any of them: this request is among them.
            if not self._state.to_broker:
                bucket.charge(decision.reserved, now_ms=self._state.now_ns // 1_000_000)

    def _askable(self, topics: tuple[Topic, ...]) -> tuple[Topic, ...]:
        """Return the topics to ask the broker about next: those with names or, if there are none, those with ids."""
        # If a Metadata request has an id, a broker does not look up its names.
        names = tuple(topic for topic in topics if isinstance(topic, bytes))
        return names or (topics if self._state.context.finds_ids else ())

    def _ask(self, topics: tuple[Topic, ...], learned: _Learned, head: RequestHead) -> Ask:
        has_ids = not isinstance(topics[0], bytes)
        is_oldest = head.api_key == ApiKey.DELETE_TOPICS and head.api_version == _OLDEST_DELETE
        api_version = (
            metadata_query.FIRST_TOPIC_ID if has_ids else metadata_query.FIRST_VERSION if is_oldest else _FIRST_NAMED
        )
        self._query = _Query(topics, api_version)
        self._learned = learned._replace(asked=learned.asked.union(topics))
        self.api_key = int(ApiKey.METADATA)
        frame = metadata_query.write_request(
            topics, correlation_id=head.correlation_id, client_id=head.client_id, api_version=api_version
        )
        return Ask(frame)

    def _throttle(self, bucket: Bucket, wait_ms: int, now_ms: int) -> int:
        """Mute the client, and return the throttle time for its response in milliseconds."""
        return self._state.account.throttle(bucket, wait_ms, now_ms=now_ms, has_answer=False) if wait_ms > 0 else 0


def _read(data: bytes, position: int, head: RequestHead) -> MutationRequest | None:
    """Return the request that begins at ``position``, or None if more bytes are needed.

    Raises:
        ProtocolError: If the quota cannot be applied to the request, because it cannot be read or is too long.
    """
    size_bytes, api_key, api_version, _, _, _ = head
    if not is_mutation(api_key, api_version):
        raise UnknownVersion(f"version {api_version} of {API_NAMES[api_key]} is neither supported nor offered")
    if size_bytes > MAX_REQUEST_BYTES:
        raise FrameTooLarge(f"a request of {size_bytes} bytes about topics with a quota is too long to be held")
    frame = data[position : position + 4 + size_bytes]
    return None if len(frame) < 4 + size_bytes else topic_mutations.read_request(frame)
