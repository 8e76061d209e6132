"""Breaks of the session, its handlers and its replicas."""

# ruff: noqa: E501 - whole lines of the product are quoted

from typing import Final

from tests.simulation.bites.model import Break

_REQUESTS: Final = "proxy/session/request_stream.py"
_RESPONSES: Final = "proxy/session/response_stream.py"
_ACCOUNT: Final = "proxy/session/client_account.py"
_FETCH: Final = "proxy/session/handlers/fetch.py"
_PRODUCE: Final = "proxy/session/handlers/produce.py"
_FOLLOWER: Final = "proxy/session/replica/follower_fetch.py"
_PARTITIONS: Final = "proxy/session/replica/fetched_partitions.py"
_TRIMMING: Final = "proxy/session/replica/response_trimming.py"

SESSION: Final = (
    Break(
        "A request that arrives in pieces loses the last byte of a piece",
        _REQUESTS,
        "                state.to_broker.append(data)\n                self.pass_body(len(data), now_ms)\n",
        "                state.to_broker.append(data[:-1])\n                self.pass_body(len(data), now_ms)\n",
    ),
    Break(
        "The rest of a request is followed by a byte of the next",
        _REQUESTS,
        "            state.to_broker.append(data[:left])\n",
        "            state.to_broker.append(data[: left + 1])\n",
    ),
    Break(
        "A muted client's next request is forwarded",
        _REQUESTS,
        "                    or (now_ms < account.muted_until_ms and now_ms >= broker_turn.refuses_until_ms)\n",
        "",
    ),
    Break(
        "Requests overtake a response that is held back",
        _REQUESTS,
        "                    is_held\n",
        "                    False\n",
    ),
    Break(
        "Any number of requests is in flight",
        _REQUESTS,
        "                    or len(in_flight) >= state.in_flight_limit\n",
        "                    or not state.in_flight_limit\n",
        why="Nothing promises this bound of 256 requests, and memory is bounded apart from it.",
        is_harmless=True,
    ),
    Break(
        "Requests that wait are forgotten when the last byte before them is sent",
        _REQUESTS,
        '        if position < len(data):\n            self._keep(data, position, len(data))\n        elif self._data:\n            self._data = b""\n',
        "        if position < len(data) and not self._state.is_blocked:\n            self._keep(data, position, len(data))\n"
        '        elif self._data:\n            self._data = b""\n',
    ),
    Break(
        "A Produce with acks=0 is not charged",
        "proxy/session/acks_zero.py",
        "        charges.append((bucket, bucket.charge(pending.size_bytes, now_ms=now_ms)))\n",
        "",
    ),
    Break(
        "The profile of a request outlives the rules that it was made under",
        _REQUESTS,
        "                    and profile.generation == context.quotas.generation\n",
        "",
    ),
    Break(
        "A request that was cut off stays among those that are answered",
        "proxy/session/unfinished.py",
        "        state.in_flight.pop()\n",
        "        pass\n",
    ),
    Break(
        "Buckets of earlier client-ids are never released",
        _REQUESTS,
        "            account.release_stale(charged, now_ms=now_ms)\n",
        "",
        theme="usage log",
    ),
    Break(
        "A connection holds as many buckets as it has requests in flight",
        _REQUESTS,
        "        if len(account.stale_buckets) >= _MOST_STALE and self.release_stale_buckets(now_ms) >= _MOST_STALE:\n",
        "        if False:\n",
        theme="adversaries",
    ),
    Break(
        "All requests of a read are forwarded at once, however many they are",
        _REQUESTS,
        "                    or not work\n",
        "",
        theme="adversaries",
    ),
    Break(
        "Each piece of a relayed read is as much work as a read may be",
        _REQUESTS,
        "        work, in_flight = self._work if is_used_up else _MOST_WORK, state.in_flight\n",
        "        work, in_flight = _MOST_WORK, state.in_flight\n",
        theme="adversaries",
    ),
    Break(
        "A connection does not wait for what others owe of request_rate",
        "proxy/session/broker_turn.py",
        "            may = state.rate_turn.one_has_come(buckets.rate, now_ms, keeps_membership=kind.keeps_membership)\n",
        "            may = True\n",
        theme="adversaries",
    ),
    Break(
        "A request of which nothing more comes keeps its reservation",
        "proxy/session/session.py",
        "        if self._requests.has_stalled():\n            give_up_reservation(self.state, now_ms)\n",
        "        pass\n",
        theme="adversaries",
        why="It was not found within 330,000 steps. It holds others for 25 s at most, and few wait with nothing else before them.",
    ),
    Break(
        "The rest of a request that stalled is forwarded, whatever its bucket owes",
        "proxy/session/unfinished.py",
        "        if not state.bucket_turn.has_come(bucket, size_bytes, now_ms):\n            return False\n",
        "",
        theme="adversaries",
    ),
    Break(
        "A Produce that never ends is free, however long it is",
        "proxy/session/unfinished.py",
        "        _charge_forwarded(state, pending, forwarded_bytes, now_ms)\n",
        "",
        theme="adversaries",
    ),
    Break(
        "A response is taken for the answer to any request",
        _RESPONSES,
        "                    if pending.correlation_id != correlation_id or response_bytes < 4:\n",
        "                    if response_bytes < 4:\n",
        theme="broken brokers",
    ),
    Break(
        "The last byte of a response that comes in pieces is sent twice",
        _RESPONSES,
        "        if position > end:\n            self.left = position - end\n            position = end\n",
        "        if position > end:\n            self.left = position - end + 1\n            position = end\n",
    ),
    Break(
        "A response that was delayed is not sent when its time has come",
        _RESPONSES,
        "        if state.is_blocked:\n            state.requests.resume(now_ms)\n",
        "",
    ),
    Break(
        "A delayed response is not delayed",
        _RESPONSES,
        "                    state.delayed_until_ms = now_ms + delay_ms\n",
        "                    state.delayed_until_ms = now_ms + 1\n",
    ),
    Break(
        "The reservation of an answered request is kept",
        _RESPONSES,
        "                bucket.settle(pending.reserved_bytes)\n            if profile.charges_response:",
        "                pass\n            if profile.charges_response:",
    ),
    Break(
        "The throttle time of a response is lower than the broker's own",
        "proxy/session/frame_edits.py",
        "wait_ms if is_exact else max(wait_ms, _INT32.unpack_from(data, at)[0])",
        "wait_ms",
    ),
    Break(
        "Clients are told the throttle time in seconds",
        "proxy/session/frame_edits.py",
        "wait_ms if is_exact else max(wait_ms, _INT32.unpack_from(data, at)[0])",
        "max(wait_ms // 1_000, _INT32.unpack_from(data, at)[0])",
    ),
    Break(
        "A connection that ends keeps its place in the line",
        "proxy/session/session.py",
        "        state.bucket_turn.leave()\n        state.rate_turn.leave()\n        in_flight.clear()\n",
        "        in_flight.clear()\n",
    ),
    Break(
        "A connection that ends keeps its slot of the queue",
        "proxy/session/session.py",
        "        self._turn.leave()\n        state.account.close(now_ms=now_ms)\n",
        "        state.account.close(now_ms=now_ms)\n",
    ),
    Break(
        "A connection that ends holds its buckets for ever",
        "proxy/session/session.py",
        "        state.account.close(now_ms=now_ms)\n        return unanswered\n",
        "        return unanswered\n",
    ),
    Break(
        "A waiting request whose turn has come is not forwarded",
        "proxy/session/session.py",
        "        return max(self.muted_until_ms, state.held_until_ms) if turn is None else turn.look_at_ms\n",
        "        return max(self.muted_until_ms, state.held_until_ms) if turn is None else 0\n",
    ),
    Break(
        "A client that is told to wait is not muted",
        _ACCOUNT,
        "            self.mute(wait_ms, now_ms=now_ms)\n        return wait_ms\n\n    def silence(",
        "            pass\n        return wait_ms\n\n    def silence(",
    ),
    Break(
        "A client that logs in is charged as whoever it was before",
        _ACCOUNT,
        "        self.principal = principal\n        self._client_id = None\n",
        "        self.principal = principal\n",
    ),
    Break(
        "A connection is counted for ever against the limit on open connections",
        _ACCOUNT,
        "            self._counted_at.leave(self._counted_as)  # the listener may have another broker by now\n",
        "",
    ),
    Break(
        "A client learns the address of a broker",
        "proxy/session/address_rewrite.py",
        "        return position, end, node_endpoints.replace_endpoints(frame, found, self.advertised)\n",
        "        return change\n",
    ),
    # -- handlers --
    Break(
        "A Produce passes although its bucket has no room",
        _PRODUCE,
        "            if not has_room and not state.bucket_turn.has_come(bucket, size_bytes, now_ms):\n",
        "            if state.in_flight and not has_room and not state.bucket_turn.has_come(bucket, size_bytes, now_ms):\n",
    ),
    Break(
        "A Produce with acks=0 waits for a response",
        _PRODUCE,
        "        if profile.acks:\n            state.in_flight.append(pending)\n",
        "        if True:\n            state.in_flight.append(pending)\n",
    ),
    Break(
        "A fetch is charged twice",
        _FETCH,
        "            wait_ms = bucket.charge(fetched_bytes, now_ms=now_ms)\n",
        "            bucket.charge(fetched_bytes, now_ms=now_ms)\n            wait_ms = bucket.charge(fetched_bytes, now_ms=now_ms)\n",
    ),
    Break(
        "A fetch asks for as much as the client wants",
        _FETCH,
        "        edit = capped_fetch(limits, asked_bytes)\n",
        "        edit = NO_EDIT\n",
    ),
    Break(
        "A fetch that waits in line is never answered",
        _FETCH,
        "        if not is_overdue:\n            turn.look_by(until_ms)\n        return is_overdue\n",
        "        return False\n",
        theme="many consumers",
    ),
    Break(
        "A client that is answered empty is told no throttle time",
        _FETCH,
        "        state.to_client.append(fetch.empty_response(correlation_id, api_version, told_ms, error_code=error_code))\n",
        "        state.to_client.append(fetch.empty_response(correlation_id, api_version, 0, error_code=error_code))\n",
    ),
    Break(
        "Changes of topics that are answered are not charged",
        "proxy/session/handlers/topic_mutations.py",
        "        wait_ms = mutation.settle(decision, response.results, bucket, now_ms=now_ms)\n",
        "        bucket.settle(decision.reserved)\n        wait_ms = 0\n",
    ),
    Break(
        "The proxy's own question about topics is answered to the client",
        "proxy/session/handlers/topic_mutations.py",
        '            self._learned.counts.update(metadata_query.read_partition_counts(frame, topics, api_version))\n            return b""\n',
        "            self._learned.counts.update(metadata_query.read_partition_counts(frame, topics, api_version))\n            return frame\n",
    ),
    # -- replicas --
    Break(
        "A partition in sync waits for the quota of those that lag",
        _PARTITIONS,
        "            if one.fetch_offset < state.high_watermark:\n",
        "            if one.fetch_offset <= state.high_watermark:\n",
    ),
    Break(
        "A follower's fetch without room is held for a minute",
        _FOLLOWER,
        "            until_ms = since_ms + min(max(fetch.max_wait_ms, _MIN_HELD_MS), _MAX_HELD_MS)\n",
        "            until_ms = since_ms + 60_000\n",
    ),
    Break(
        "A follower that disconnects keeps what was set aside for it",
        _FOLLOWER,
        "            settle(self._passed.granted, {})\n            self._passed = None\n",
        "            self._passed = None\n",
        theme="followers",
    ),
    Break(
        "The records of lagging partitions are not charged",
        _TRIMMING,
        "            quota.record(size_bytes, now_ms=self._now_ms)\n        settle(self._fetch.granted, self._brought)\n",
        "            quota.record(size_bytes, now_ms=self._now_ms)\n        settle(self._fetch.granted, {})\n",
    ),
    Break(
        "A partition that was left out is missing in the response to a full fetch",
        _FOLLOWER,
        "                entries.append(trimming.left_out(key))\n",
        "                pass\n",
    ),
    Break(
        "A batch is cut in the middle",
        _TRIMMING,
        "        return whole if whole > one.records else one.records_end\n",
        "        return max(one.records + 1, whole - 1)\n",
    ),
)
