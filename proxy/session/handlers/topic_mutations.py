"""CreateTopics, CreatePartitions and DeleteTopics of a client with ``controller_mutation_rate`` (KIP-599)."""

from __future__ import annotations

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.api import API_NAMES
from kafka_quota_proxy.protocol.errors import FrameTooLarge, UnknownVersion
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.protocol.topic_mutations import is_mutation
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.frame_edits import Edit
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import MAX_REPLICA_FETCH_BYTES
from kafka_quota_proxy.proxy.session.handlers.whole_request import WholeRequestHandler
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.topic_mutations import MAX_REQUEST_BYTES, TopicMutations
from kafka_quota_proxy.proxy.session.whole_request import Forward


class TopicMutationHandler(WholeRequestHandler):
    """Handles requests that create, grow or delete topics."""

    __slots__ = ("_mutations",)

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._mutations = TopicMutations(state.account)

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
        decision = self._mutations.take(frame, head._replace(body=head.body - position), bucket, now_ms=now_ms)
        passes = isinstance(decision, Forward)
        if passes:
            charge.begin()
        return self.execute(decision, self._mutations, position, head, charge if passes else None)

    @property
    def max_kept_bytes(self) -> int:
        """See ``Handler``."""
        return MAX_REPLICA_FETCH_BYTES

    @property
    def charged_bucket(self) -> Bucket | None:
        """See ``Handler``."""
        return self._mutations.charged
