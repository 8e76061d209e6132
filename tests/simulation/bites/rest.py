"""Breaks of the fair call queue, replication, administered quotas, the usage log and the protocol."""

# ruff: noqa: E501 - whole lines of the product are quoted

from typing import Final

from tests.simulation.bites.model import Break

FAIR_QUEUE: Final = (
    Break(
        "A request that is done keeps its slot",
        "proxy/fair_queue/dispatcher.py",
        "        lane.in_flight -= 1\n        return False\n",
        "        return False\n",
    ),
    Break(
        "A slot that becomes free is given to nobody",
        "proxy/fair_queue/dispatcher.py",
        "        if lane.queue.size:\n            self._fill(lane, now_us)\n        return bool(self._granted)\n",
        "        return bool(self._granted)\n",
    ),
    Break(
        "Who leaves the queue stays in it",
        "proxy/fair_queue/dispatcher.py",
        "            self.lane(ticket).queue.remove(ticket)\n",
        "            pass\n",
    ),
    Break(
        "Any number of requests is at the broker",
        "proxy/fair_queue/dispatcher.py",
        "        if lane.in_flight < lane.limit.limit:\n",
        "        if lane.in_flight < 1_000 * lane.limit.limit:\n",
    ),
    Break(
        "The lowest level starves",
        "proxy/fair_queue/multiplexer.py",
        "            self._current = (current + 1) % len(self._weights)\n",
        "            self._current = (current + 1) % max(1, len(self._weights) - 1)\n",
    ),
    Break(
        "Who waits outside a full queue is never let in",
        "proxy/fair_queue/call_queue.py",
        "        self.size -= 1\n        if self._waiting_since:\n            self._let_in(level)\n        return element\n",
        "        self.size -= 1\n        return element\n",
    ),
    Break(
        "A fetch that waits for data keeps its slot",
        "proxy/fair_queue/connection_queue.py",
        "            self._watch(now_us + POLL_GRACE_US)\n",
        "            pass\n",
    ),
    Break(
        "A request is charged to nobody",
        "proxy/fair_queue/connection_queue.py",
        "        line.scheduler.charge(identity, cost)\n        line.scheduler.add_response_time",
        "        line.scheduler.add_response_time",
    ),
    Break(
        "Costs do not decay",
        "proxy/fair_queue/decay.py",
        "            entry.decayed = left = int(entry.decayed * factor)\n",
        "            left = entry.decayed\n",
    ),
    Break(
        "A slot's deadline is never looked at",
        "proxy/fair_queue/slot_timeouts.py",
        "            del self._at_us[holder]\n            holder.time_out(now_us)\n",
        "            del self._at_us[holder]\n",
    ),
)

REPLICATION: Final = (
    Break(
        "Each partition is throttled, listed or not",
        "proxy/replication/throttle.py",
        "    if replicas is None:\n        return False\n",
        "    if replicas is None:\n        return True\n",
    ),
    Break(
        "No partition is throttled where all replicas are listed",
        "proxy/replication/throttle.py",
        "    if lists is None:\n        return True\n",
        "    if lists is None:\n        return False\n",
    ),
    Break(
        "A reloaded limit on replication is not in force",
        "proxy/replication/throttle.py",
        "        self.replication = replication\n        self._refresh(now_ms)\n",
        "        self.replication = replication\n",
        theme="followers",
    ),
    Break(
        "Each follower has the whole quota of the leader",
        "proxy/replication/throttle.py",
        "        if self.known_quota is None:\n            self.known_quota = self.throttle.quota(self.throttle.leader_rate(self.node_id), now_ms)\n        return self.known_quota\n",
        "        return self.throttle.quota(self.throttle.leader_rate(self.node_id), now_ms)\n",
    ),
    Break(
        "A leader's limit is that of the follower",
        "proxy/replication/throttle.py",
        "            return rules.leader_rate\n        return None if",
        "            return rules.follower_rate\n        return None if",
    ),
)

CLIENT_QUOTAS: Final = (
    Break(
        "A change is acknowledged and not applied",
        "proxy/client_quotas/storage/directory_store.py",
        "        if changes:\n            await self._apply(changes)\n",
        "",
    ),
    Break(
        "A change is acknowledged before it is on the disk",
        "proxy/client_quotas/storage/rule_database.py",
        '    connection.execute("PRAGMA synchronous = FULL")\n',
        '    connection.execute("PRAGMA synchronous = OFF")\n',
        theme="stored quotas",
    ),
    Break(
        "A change is acknowledged and not committed",
        "proxy/client_quotas/storage/rule_database.py",
        "    connection.executemany(_UPSERT, kept)\n",
        "",
    ),
    Break(
        "A removed rule comes back after a restart",
        "proxy/client_quotas/storage/rule_database.py",
        '    connection.executemany("DELETE FROM rules WHERE entity = ?", removed)\n',
        "",
    ),
    Break(
        "A write that failed is acknowledged",
        "proxy/client_quotas/alter_handler.py",
        "            if not error.may_hold:\n                raise\n            return error\n",
        "            return None\n",
    ),
    Break(
        "A dry run changes quotas",
        "proxy/client_quotas/alter_handler.py",
        "            if not decision.changes or task.request.validate_only:\n",
        "            if not decision.changes:\n",
    ),
    Break(
        "A rule that expires stays",
        "proxy/client_quotas/rule_timer.py",
        "                self._on_changes(*changes)\n",
        "                pass\n",
        why="Rules with an expiry are set at the admin port, which is not simulated.",
    ),
    Break(
        "A stored rule hides that of the file",
        "proxy/client_quotas/rules/effective_rules.py",
        "            if entity.ip is None and entity not in self.sources\n        }",
        "            if entity.ip is None\n        }",
        theme="stored quotas",
    ),
    Break(
        "A rule is removed from the store and stays in force",
        "proxy/client_quotas/rules/effective_rules.py",
        "            self._of_store.pop(entity, None)\n        else:\n",
        "            pass\n        else:\n",
    ),
)

USAGE: Final = (
    Break(
        "Usage is logged twice",
        "proxy/usage/meter.py",
        "            amount_before + amount * per,\n",
        "            amount_before,\n",
    ),
    Break(
        "The usage of buckets that were removed is lost",
        "proxy/usage/meter.py",
        "            bucket = departed.buckets.popleft()\n            self._add_bucket(broker, bucket)\n",
        "            bucket = departed.buckets.popleft()\n            bucket.logged = bucket.usage\n",
        theme="usage log",
    ),
    Break(
        "A batch that could not be written is dropped",
        "proxy/usage/sink.py",
        "                if not self._wait_to_retry():\n                    return False\n",
        "                return False\n",
    ),
    Break(
        "A batch of usage is written twice",
        "proxy/usage/sink.py",
        "            self._batches.popleft()\n            self.queued -= len(batch.records)\n        self.written",
        "            if self.written % 2:\n                self._batches.popleft()\n                self.queued -= len(batch.records)\n        self.written",
    ),
    Break(
        "A full disk leaves half a line in the usage log",
        "proxy/usage/segments.py",
        "            os.ftruncate(self._file, self._size_bytes)\n            self._is_torn = False\n",
        "            self._is_torn = False\n",
    ),
    Break(
        "A crash leaves half a line in the usage log",
        "proxy/usage/segments.py",
        "        os.ftruncate(file, whole_bytes)\n",
        "",
    ),
    Break(
        "The last interval is not logged when the proxy stops",
        "proxy/usage/log.py",
        "        self._may_read()\n        for batch in self._read():\n            if batch is not None:\n                self._put(batch)\n        for sink in self.sinks:\n            sink.stop",
        "        for sink in self.sinks:\n            sink.stop",
    ),
    Break(
        "Two intervals of the log begin at one time after the clock is set back",
        "proxy/usage/timeline.py",
        "        start_ms = max(start_ms, self._least_ms)\n",
        "",
    ),
)

PROTOCOL: Final = (
    Break(
        "A flexible Fetch is charged the size of its header",
        "protocol/fetch.py",
        "    return size_bytes - 1 if api_version >= FIRST_FLEXIBLE else size_bytes\n",
        "    return 2 * size_bytes\n",
    ),
    Break(
        "max_bytes is read where min_bytes is",
        "protocol/fetch.py",
        "        return FetchLimits(offset, offset + 4, max_wait_ms, min_bytes, max_bytes)\n    max_wait_ms",
        "        return FetchLimits(offset, offset, max_wait_ms, min_bytes, max_bytes)\n    max_wait_ms",
    ),
    Break(
        "An empty Fetch response lacks its tags",
        "protocol/fetch.py",
        '    body += b"\\1\\0" if is_flexible else bytes(4)\n',
        '    body += b"\\1" if is_flexible else bytes(4)\n',
    ),
    Break(
        "acks is read where the absent transactional id is",
        "protocol/produce.py",
        "        position: int | None = offset + 1\n",
        "        position: int | None = offset\n",
    ),
    Break(
        "The throttle time of a flexible Produce response is sought one byte too early",
        "protocol/produce.py",
        "                offset += 3\n            else:\n",
        "                offset += 2\n            else:\n",
    ),
    Break(
        "A response's addresses are replaced, and its size is not",
        "protocol/broker_list.py",
        "    size_bytes = _INT32.unpack_from(data, start)[0] + len(array) - (brokers.end - brokers.begin)\n",
        "    size_bytes = _INT32.unpack_from(data, start)[0]\n",
    ),
    Break(
        "A broker that is not known keeps its own address",
        "protocol/find_coordinator.py",
        '        host, port = known or (b"", -1)\n',
        "        host, port = known or (coordinator.host.encode(), coordinator.port)\n",
        why="Each simulated broker has a node id for which its cluster's listener has a port.",
    ),
    Break(
        "A refused Produce says that it was written",
        "protocol/refusal_responses.py",
        "        writer.raw(_PARTITION_AND_ERROR(reader.int32(), error), _NO_OFFSET)\n",
        "        writer.raw(_PARTITION_AND_ERROR(reader.int32(), 0), _NO_OFFSET)\n",
    ),
    Break(
        "Tiny pieces of a frame are joined in another order",
        "protocol/partial_frame.py",
        "            last += data\n",
        "            last[:0] = data\n",
    ),
    Break(
        "Versions that the proxy cannot read are offered",
        "protocol/api_versions.py",
        "        if min_version <= ceiling < max_version:\n",
        "        if min_version < ceiling < min_version:\n",
    ),
    Break(
        "A ShareFetch is never emptied",
        "protocol/share_fetch.py",
        "    return begin, end, bytes(end - begin)\n",
        '    return begin, begin, b""\n',
        theme="share groups",
    ),
)
