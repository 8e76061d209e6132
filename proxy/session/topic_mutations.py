"""One connection's requests that create, grow and delete topics, under ``controller_mutation_rate`` (KIP-599).

A request is read whole. Only the cluster knows how many partitions a topic has that is to grow or to be deleted: a
Metadata request asks it first, on the client's own connection and in its name. Before 3.1 Metadata does not know topics
by id; each such topic counts as one partition. Topics that the quota has no room for are left out of the request, and
put into the response with THROTTLING_QUOTA_EXCEEDED. In versions whose clients do not know that error they pass, and
the client is throttled afterwards (``quota.mutation``).
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol import metadata_query, topic_mutations
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.protocol.topic_mutations import MutationRequest, Topic
from kafka_quota_proxy.proxy.quota import mutation
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.mutation import MutationDecision, MutationThrottle
from kafka_quota_proxy.proxy.session.client_account import ClientAccount
from kafka_quota_proxy.proxy.session.whole_request import Answered, Ask, Decision, Forward

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


class TopicMutations:
    """One connection's request about topics; there is one at a time."""

    __slots__ = ("_account", "_learned", "_passed", "_query", "api_key")

    def __init__(self, account: ClientAccount) -> None:
        self._account = account
        self._query: _Query | None = None  # unanswered
        self._learned: _Learned | None = None
        self._passed: _Passed | None = None
        self.api_key = int(ApiKey.METADATA)

    def take(self, frame: bytes, head: RequestHead, bucket: Bucket, *, now_ms: int) -> Decision:
        """Decide on a whole request; no other request of the connection is in flight.

        Args:
            frame: The request.
            head: Its head, read from ``frame``.
            bucket: The bucket that it charges; it has a limit.
            now_ms: The time.

        Raises:
            ProtocolError: It is no such request.
        """
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
            default_partitions=self._account.context.quotas.num_partitions,
            may_refuse=not self._account.observes(bucket),
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
    def charged(self) -> Bucket | None:
        """The bucket whose charge is still to be settled."""
        return None if self._passed is None else self._passed.bucket

    def _askable(self, topics: tuple[Topic, ...]) -> tuple[Topic, ...]:
        """Return the topics to ask about next: if a question has an id, a broker answers no names."""
        names = tuple(topic for topic in topics if isinstance(topic, bytes))
        return names or (topics if self._account.context.finds_ids else ())

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
        return self._account.throttle(bucket, wait_ms, now_ms=now_ms, has_answer=False) if wait_ms > 0 else 0
