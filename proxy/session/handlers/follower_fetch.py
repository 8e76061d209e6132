"""Handles the Fetch requests with which followers replicate partitions (KIP-73).

A Fetch counts as a follower's only on a connection that may be a broker's (``ClientAccount.believes_replicas``).
"""

from __future__ import annotations

from typing import Final

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.session.address_rewrite import may_name_leaders
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit, edited
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse
from kafka_quota_proxy.proxy.session.handlers.whole_request import Exchange, WholeRequestHandler
from kafka_quota_proxy.proxy.session.replica.follower_fetch import Follower
from kafka_quota_proxy.proxy.session.state import SessionState

# The longest Fetch request of a follower, which is read whole. 100,000 partitions take 5 MB.
MAX_REPLICA_FETCH_BYTES: Final = 8 * 1024 * 1024

_FETCH: Final = int(ApiKey.FETCH)


class FollowerFetchHandler(WholeRequestHandler):
    """Handles the fetches of one follower. ``follower`` is None until a limit on replication applies to them."""

    __slots__ = ("follower",)

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self.follower: Follower | None = None

    def take_fetch(self, data: bytes, position: int, head: RequestHead, replica_id: int, now_ms: int) -> Edit | None:
        """Decide whether a fetch that has arrived as a whole is forwarded, forwarded in part, or answered by the proxy.

        Returns the edit with which the fetch is forwarded, or None if it is not forwarded now.
        """
        state = self._state
        _, _, api_version, correlation_id, _, body = head
        state.held_until_ms = 0
        follower, leader = self.follower, state.context.leader
        if follower is None and leader is not None and leader.throttle.replication is not None:
            follower = self.follower = Follower(leader)
        if follower is not None and follower.is_waiting:
            state.block(BlockedBy.REPLICATION_QUOTA)
            return None
        if follower is None or not follower.is_throttled(replica_id, api_version, now_ms=now_ms):
            state.requests.other.pass_on(head, None)
            return NO_EDIT
        if not state.may_answer():
            return None
        decision = follower.take(data, position, body, api_version, correlation_id, now_ms=now_ms)
        return self.execute(decision, follower, position, head, None)

    def finish(self, exchange: Exchange, frame: bytes, response: BegunResponse) -> bytes:
        """Return the Fetch response in ``frame``, with the addresses of partitions' new leaders replaced.

        The response is returned unchanged if it contains no address, or if clients may see the brokers' own addresses.
        """
        addresses, api_version = self._state.context.addresses, response.profile.api_version
        if addresses is not None and may_name_leaders(_FETCH, api_version):
            return edited(frame, addresses.moved(frame, 0, len(frame), _FETCH, api_version, NO_EDIT))
        return frame

    def release(self) -> None:
        """Stop throttling the follower's fetches."""
        if self.follower is not None:
            self.follower.release()

    def close(self) -> None:
        """Free the room in the replication quotas that was set aside for the follower's pending fetch."""
        if self.follower is not None:
            self.follower.close()
