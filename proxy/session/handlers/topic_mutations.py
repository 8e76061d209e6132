"""One connection's requests that create, grow and delete topics, under ``controller_mutation_rate`` (KIP-599).

A request is read whole. Only the cluster knows how many partitions a topic has that is to grow or to be deleted: a
Metadata request asks it first, on the client's own connection and in its name. Before 3.1 Metadata does not know topics
by id; each such topic counts as one partition. Topics that the quota has no room for are left out of the request, and
put into the response with THROTTLING_QUOTA_EXCEEDED. In versions whose clients do not know that error they pass, and
the client is throttled afterwards (``quota.mutation``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol import metadata_query, topic_mutations
from kafka_quota_proxy.protocol.api import API_NAMES, ApiKey
from kafka_quota_proxy.protocol.errors import FrameTooLarge, UnknownVersion
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.protocol.topic_mutations import MutationRequest, Topic, is_mutation
from kafka_quota_proxy.proxy.quota import mutation
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.mutation import MutationDecision, MutationThrottle
from kafka_quota_proxy.proxy.session.frame_edits import Edit
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import MAX_REPLICA_FETCH_BYTES
from kafka_quota_proxy.proxy.session.handlers.whole_request import (
    Answered,
    Ask,
    Decision,
    Forward,
    WholeRequestHandler,
)
from kafka_quota_proxy.proxy.session.state import SessionState

# Of a request: some 50,000 topics. Kafka itself takes up to socket.request.max.bytes.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
# DeleteTopics v0 is older than the first Metadata request that can forbid to create topics.
_OLDEST_DELETE: Final = 0
_FIRST_NAMED: Final = 4


class _Query(NamedTuple):
    topics: tuple[Topic, ...]
    api_version: int


class _Learned(NamedTuple):
    """What the cluster was asked, and has answered, for the request that waits."""

    correlation_id: int
    asked: frozenset[Topic]
    counts: dict[Topic, int]


class _Passed(NamedTuple):
    """A request that was passed on, in full or in part."""

    request: MutationRequest
    bucket: Bucket
    decision: MutationDecision
    throttle: MutationThrottle


class TopicMutationHandler(WholeRequestHandler):
    """Handles requests that create, grow or delete topics: one of a connection at a time."""

    __slots__ = ("_learned", "_passed", "_query", "api_key")

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._query: _Query | None = None  # unanswered
        self._learned: _Learned | None = None
        self._passed: _Passed | None = None
        self.api_key = int(ApiKey.METADATA)

    @classmethod
    def is_needed(cls, state: SessionState, head: RequestHead) -> bool:
        """See ``Handler``."""
        return state.context.quotas.limits(QuotaKind.MUTATION)

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """See ``Handler``."""
        state = self._state
        size_bytes, api_key, api_version, _, client_id, _ = head
        frame_end = position + 4 + size_bytes
        bucket = state.account.mutation_bucket(client_id, now_ms)
        if not bucket.is_limited:
            return state.requests.pass_other(head, now_ms)
        if not is_mutation(api_key, api_version):
            raise UnknownVersion(f"version {api_version} of {API_NAMES[api_key]} is not supported, nor was it offered")
        if size_bytes > MAX_REQUEST_BYTES:
            raise FrameTooLarge(f"a request of {size_bytes} bytes about topics, which are limited, is not held")
        if frame_end > len(data):
            return None
        charge = state.requests.charge_of(head, now_ms)
        state.requests.release_stale_buckets(now_ms)
        is_muted = state.requests.is_muted(now_ms)
        if is_muted or not state.is_alone() or not state.broker_turn.has_come(charge, size_bytes, now_ms):
            return None
        frame = data[position:frame_end]
        decision = self._decide(frame, head._replace(body=head.body - position), bucket, now_ms)
        passes = isinstance(decision, Forward)
        if passes:
            charge.begin()
        return self.execute(decision, self, position, head, charge if passes else None)

    @property
    def max_kept_bytes(self) -> int:
        """See ``Handler``."""
        return MAX_REPLICA_FETCH_BYTES

    def _decide(self, frame: bytes, head: RequestHead, bucket: Bucket, now_ms: int) -> Decision:
        """Decide on a whole request; no other request of the connection is in flight, and ``bucket`` has a limit."""
        request = topic_mutations.read_request(frame)
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
        throttle = mutation.record(decision, bucket, now_ms=now_ms)
        if decision.refused and not decision.permits:
            wait_ms = self._throttle(bucket, throttle.throttle_time_ms, now_ms)
            return Answered(topic_mutations.refuse_all_topics(request, throttle_time_ms=wait_ms))
        self._passed = _Passed(request, bucket, decision, throttle)
        self.api_key = head.api_key
        return Forward(
            topic_mutations.without_topics(frame, request, decision.refused) if decision.refused else b"",
            is_answer_read=True,
        )

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """See ``Exchange``. The response to this proxy's own question does not go to the client."""
        frame = data[position : position + frame_bytes]
        if self._query is not None and self._learned is not None:
            topics, api_version = self._query
            self._query = None
            self._learned.counts.update(metadata_query.read_partition_counts(frame, topics, api_version))
            return b""
        if self._passed is None:
            return frame
        request, bucket, decision, throttle = self._passed
        self._passed = None
        response = topic_mutations.read_response(frame, request.api_key, request.api_version)
        mutation.settle(decision, response.results, bucket, now_ms=now_ms)
        left_ms = mutation.throttle_time_ms(throttle, now_ms=now_ms)
        wait_ms = self._throttle(bucket, left_ms, now_ms)
        return topic_mutations.with_refused_topics(frame, request, decision.refused, throttle_time_ms=wait_ms)

    @property
    def charged_bucket(self) -> Bucket | None:
        """See ``Handler``."""
        return None if self._passed is None else self._passed.bucket

    def _askable(self, topics: tuple[Topic, ...]) -> tuple[Topic, ...]:
        """Return the topics to ask about next: if a question has an id, a broker answers no names."""
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
        """Return the throttle time that the client is told. The response is never delayed: the client is muted."""
        return self._state.account.throttle(bucket, wait_ms, now_ms=now_ms, has_answer=False) if wait_ms > 0 else 0
