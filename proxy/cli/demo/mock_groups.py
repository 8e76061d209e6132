"""Repairs the consumer groups of librdkafka's mock cluster.

When a member joins or leaves a group, the mock waits for the other members for the whole session timeout, by default 45
seconds. It is fast only with the first members of a new group. Therefore each rebalance is a round, and each round a
group of its own in the mock. When a round begins, the members of the last one are told to join again, by
REBALANCE_IN_PROGRESS. Committed offsets stay with the name of the group.

No client can read the mock's response to an OffsetFetch request for all topics, so it gets a request that names them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final

from aiokafka.protocol.types import Array, Int16, Int32, String

from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster

_OFFSET_FETCH: Final = 9
_JOIN_GROUP: Final = 11
_HEARTBEAT: Final = 12
_LEAVE_GROUP: Final = 13
_SYNC_GROUP: Final = 14
_REBALANCE_IN_PROGRESS: Final = struct.pack(">h", 27)
_STRING: Final = String("utf-8")
_TOPICS: Final = Array(("name", _STRING), ("partitions", Array(Int32)))
# Members learn of a round by their next heartbeat, which they send every 3 seconds.
_OTHERS_JOIN_MS: Final = 4_000
_ALONE_MS: Final = 500


@dataclass
class _Group:
    round: int = 0
    ends_s: float = 0.0
    is_over: bool = True  # a member has left
    members: dict[str, int] = field(default_factory=dict)  # the round in which each has joined last


class MockGroups:
    """Divides the groups of a mock cluster into rounds. Requests and responses are frames, before flexible versions."""

    def __init__(self, mock: MockCluster, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._mock = mock
        self._clock = clock
        self._groups: dict[str, _Group] = {}

    def request(self, frame: bytes) -> tuple[bytes, Callable[[bytes], bytes]] | bytes | None:
        """Return the request for the mock and what reads its response, or a response, or None for other requests.

        Raises:
            struct.error, ValueError: The request ends too early.
        """
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if api_key == _OFFSET_FETCH:
            return self._name_topics(frame), lambda response: response
        if api_key not in (_JOIN_GROUP, _HEARTBEAT, _LEAVE_GROUP, _SYNC_GROUP):
            return None
        fields = BytesIO(frame)
        fields.seek(8)
        _STRING.decode(fields)
        start = fields.tell()
        name = _STRING.decode(fields)
        rest = fields.tell()
        # The member's id follows the session timeout and the rebalance timeout, or the generation.
        numbers = {_JOIN_GROUP: 2 if version >= 1 else 1, _LEAVE_GROUP: 0}.get(api_key, 1)
        for _ in range(numbers):
            Int32.decode(fields)
        member = _STRING.decode(fields)
        group = self._groups.setdefault(name, _Group())
        if api_key == _JOIN_GROUP:
            self._join(group, member)
        elif api_key == _LEAVE_GROUP:
            group.is_over |= group.members.pop(member, None) is not None
        elif member in group.members and (group.is_over or group.members[member] != group.round):
            throttle_time = struct.pack(">i", 0) if version >= 1 else b""
            assignment = struct.pack(">i", 0) if api_key == _SYNC_GROUP else b""
            return struct.pack(">i", correlation_id) + throttle_time + _REBALANCE_IN_PROGRESS + assignment
        request = frame[:start] + _STRING.encode(_round_name(name, group.round)) + frame[rest:]
        number = group.round
        return request, lambda response: self._joined(response, version, group, number, is_join=api_key == _JOIN_GROUP)

    def _name_topics(self, frame: bytes) -> bytes:
        """Return an OffsetFetch request in which null, which stands for all topics, is replaced by an array of them."""
        fields = BytesIO(frame)
        fields.seek(8)
        for _ in ("client_id", "group_id"):
            _STRING.decode(fields)
        if Int32.decode(fields) != -1:
            return frame
        topics = [(topic, range(partitions)) for topic, partitions in self._mock.topics.items()]
        return frame[: fields.tell() - 4] + bytes(_TOPICS.encode(topics))

    def _join(self, group: _Group, member: str) -> None:
        if not group.is_over and self._clock() < group.ends_s:
            return
        group.members = {each: number for each, number in group.members.items() if number == group.round}
        delay_ms = _OTHERS_JOIN_MS if group.members.keys() - {member} else _ALONE_MS
        group.round += 1
        group.is_over = False
        # The mock's own clock starts later, so that nobody joins the group after its end there.
        group.ends_s = self._clock() + delay_ms / 1_000
        self._mock.set_rebalance_delay_ms(delay_ms)

    def _joined(self, response: bytes, version: int, group: _Group, number: int, *, is_join: bool) -> bytes:
        if is_join:
            fields = BytesIO(response)
            fields.seek(8 if version >= 2 else 4)
            if Int16.decode(fields) == 0:
                Int32.decode(fields)
                _protocol, _leader, member = (_STRING.decode(fields) for _ in range(3))
                group.members[member] = number
        return response


def _round_name(group: str, number: int) -> str:
    return f"{group} (round {number})"
