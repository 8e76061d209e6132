"""Bugs of this project's history that come back: each break reverses what fixed one."""

# ruff: noqa: E501 - whole lines of the product are quoted

from typing import Final

from tests.simulation.bites.model import Break

FIXED_BUGS: Final = (
    Break(
        name="Thirty connections multiply a quota: the first request of each passes, whatever its bucket owes",
        file="proxy/session/bucket_turn.py",
        old="        first = None if line is None else line.first()\n",
        new="        if not state.in_flight:\n            return True\n        first = None if line is None else line.first()\n",
        origin="fixed bug",
    ),
    Break(
        name="What a bucket owes beyond max_throttle_time is forgiven",
        file="proxy/session/client_account.py",
        old="        wait_ms = bucket.silence(wait_ms, now_ms=now_ms)\n        if enforcement is Enforcement.RESPOND and bucket.line:",
        new="        bucket.silence(min(wait_ms, bucket.max_throttle_time_ms), now_ms=now_ms)\n"
        "        if enforcement is Enforcement.RESPOND and bucket.line:",
        origin="fixed bug",
    ),
    Break(
        name="Each of several fetches asks for as much as all of them may",
        file="proxy/quota/bucket_bounds.py",
        old="        share = self.fetch_share if connections <= 1 else self.fetch_share / connections\n",
        new="        share = self.fetch_share\n",
        origin="fixed bug",
        theme="many consumers",
    ),
    Break(
        name="One dial that fails unexpectedly ends the process",
        file="proxy/server/broker_dialer.py",
        old="self._tasks.create_task(alone(partial(self._dial, dial.connection, broker), fail=broker.fail))",
        new="self._tasks.create_task(self._dial(dial.connection, broker))",
        origin="fixed bug",
    ),
    Break(
        name="A dial that completes as its time-out fires is handed over within the time-out",
        file="proxy/server/broker_dialer.py",
        old="""                        lambda: broker, address.host, address.port, local_addr=self._local_addr
                    )
                else:
""",
        new="""                        lambda: broker, address.host, address.port, local_addr=self._local_addr
                    )
                    connection.broker_connected(transport)
                    return
                else:
""",
        origin="fixed bug",
        why="It needs a callback between the end of the dial and the end of its time-out.",
    ),
    Break(
        name="A broker that drops SYNs takes the others down, since one queue of dials serves all",
        file="proxy/server/broker_dialer.py",
        old="        queue = self._queues.setdefault(address, _DialQueue(address))\n",
        new='        queue = self._queues.setdefault(Address(host="", port=0), _DialQueue(address))\n',
        origin="fixed bug",
    ),
    Break(
        name="Share groups are not charged",
        file="proxy/session/handlers/table.py",
        old="    int(ApiKey.SHARE_FETCH): FetchHandler,\n",
        new="",
        origin="fixed bug",
    ),
    Break(
        name="A fetch that is abandoned before its answer is free",
        file="proxy/session/session.py",
        old="        if has_passed and any(pending.is_charged_by_response for pending in in_flight):\n",
        new="        if False:\n",
        origin="fixed bug",
        theme="many consumers",
    ),
    Break(
        name="One broker under two names has two quotas",
        file="proxy/server/broker_registry.py",
        old="            upstream.identity = identity\n            self._regroup()\n",
        new="            upstream.identity = identity\n",
        origin="fixed bug",
    ),
    Break(
        name="A client that calls an API between brokers is exempt from quotas on requests",
        file="proxy/quota/request_time.py",
        old="    return is_broker and api_key in _EXEMPT\n",
        new="    return api_key in _EXEMPT\n",
        origin="fixed bug",
    ),
    Break(
        name="A client gets the reservation of a login that cannot be read",
        file="proxy/session/handlers/login.py",
        old="        claim = state.context.policy.oauthbearer_claim\n        login.ask(api_key, api_version, memoryview(data)[body:frame_end], claim=claim)\n"
        "        if charge is not None:\n            state.broker_turn.begin(charge, now_ms)\n",
        new="        claim = state.context.policy.oauthbearer_claim\n        if charge is not None:\n            state.broker_turn.begin(charge, now_ms)\n"
        "        login.ask(api_key, api_version, memoryview(data)[body:frame_end], claim=claim)\n",
        origin="fixed bug",
        why="No simulated client that is logged in sends a second login that cannot be read.",
    ),
    Break(
        name="At its limit a consumer asks for pieces of batches, and pays for what it throws away",
        file="proxy/quota/fetch_size.py",
        old="        has_room = cap_bytes <= room\n        if not self._samples:\n",
        new="        has_room = True\n        if True:\n",
        origin="fixed bug",
        theme="full and idle topics",
    ),
    Break(
        name="A stalled request blocks its bucket for ever",
        file="proxy/quota/bucket.py",
        old="        return not self.in_flight or now_ms >= self.held_until_ms or self.has_room(amount, now_ms=now_ms)\n",
        new="        return not self.in_flight or self.has_room(amount, now_ms=now_ms)\n",
        origin="fixed bug",
    ),
    Break(
        name="A rule's change that could not be reported is forgotten",
        file="proxy/client_quotas/rule_applier.py",
        old="            self._on_changes(*merge_changes(*self._unreported))\n            self._unreported = []\n",
        new="            changes, self._unreported = self._unreported, []\n            self._on_changes(*merge_changes(*changes))\n",
        origin="fixed bug",
        why="Reporting a change raises nothing in a simulated world.",
    ),
    Break(
        name="Waits of an observed bucket are counted as they overlap",
        file="proxy/quota/bucket.py",
        old="            waits_ms = shadow.charge(amount, limit=self.limit, took_ms=took_ms, now_ms=now_ms)\n",
        new="            waits_ms = [wait_ms]\n",
        origin="fixed bug",
        why="It changes only throttle times in the metrics and the usage log. The checks compare bytes.",
    ),
    Break(
        name="The slot of the queue is kept while the broker is not read",
        file="proxy/session/session.py",
        old="        state.account.hold_mute(now_ms=state.now_ns // 1_000_000)\n        self._turn.stop_service()\n",
        new="        state.account.hold_mute(now_ms=state.now_ns // 1_000_000)\n",
        origin="fixed bug",
        why="A client would have to send a request while a long response fills its buffers. No simulated client does.",
    ),
    Break(
        name="A user is not charged in the queue for requests that are never answered",
        file="proxy/session/session.py",
        old="                if has_passed:\n                    self._turn.charge_turn(charge, service)\n",
        new="",
        origin="fixed bug",
        why="It changes only which request is next in the queue, and only for a short time.",
    ),
    Break(
        name="A bytewise request is parsed again after each byte",
        file="protocol/partial_frame.py",
        old="    return max(1, left if most_bytes is None else min(left, arrived, most_bytes + 1 - arrived))\n",
        new="    return 1\n",
        origin="fixed bug",
        why="It costs processor time, which a simulated world does not measure.",
        is_harmless=True,
    ),
    Break(
        name="A bucket with a new set of rules keeps the sum of what its predecessor was charged",
        file="proxy/session/client_account.py",
        old="        if client_id == self._client_id and generation == self._generation:\n",
        new="        if client_id == self._client_id and self._generation >= 0:\n",
        origin="fixed bug",
    ),
    Break(
        name="A throttled partition into which no batch fits asks for the same bytes again",
        file="proxy/session/replica/response_trimming.py",
        old="                state.least_bytes = min(max(2 * state.requested_bytes, _LEAST_MORE_BYTES), UNLIMITED_BYTES)\n",
        new="                pass\n",
        origin="fixed bug",
        theme="followers",
    ),
    Break(
        name="A stalled request blocks its bucket for as long as its amount takes, however large",
        file="proxy/quota/reserved_usage.py",
        old="        return lasts_ms if self.kind is _MUTATION else min(lasts_ms, LONGEST_MS)\n",
        new="        return lasts_ms\n",
        origin="fixed bug",
    ),
    Break(
        name="A drained connection forwards requests that nobody will answer",
        file="proxy/session/request_stream.py",
        old="        if self._state.drops_answered:\n            handler",
        new="        if False:\n            handler",
        origin="fixed bug",
    ),
    Break(
        name="Connections that are closing hold any amount of memory",
        file="proxy/server/sweeps.py",
        old="            held += (*listener.closing.holders(), *listener.orphans.holders())\n",
        new="",
        origin="fixed bug",
    ),
    Break(
        name="The port of an unknown broker leads to one bootstrap server, reachable or not",
        file="proxy/server/cluster_listeners.py",
        old="        return routes[(node_id + turn) % len(routes)]\n",
        new="        return self._stand_in_routes[node_id % len(self._stand_in_routes)]\n",
        origin="fixed bug",
    ),
    Break(
        name="A later batch of an idempotent producer overtakes a refused one",
        file="proxy/session/handlers/produce.py",
        old="            and not turn.keeps_order(charge, data, position, size_bytes, now_ms)\n",
        new="            and False\n",
        origin="fixed bug",
    ),
    Break(
        name="Topic changes that were never sent are charged",
        file="proxy/session/handlers/topic_mutations.py",
        old="            if not self._state.to_broker:\n",
        new="            if True:\n",
        origin="fixed bug",
    ),
    Break(
        name="Topic changes that were never sent give tokens back",
        file="proxy/session/handlers/topic_mutations.py",
        old="                bucket.charge(decision.reserved, now_ms=self._state.now_ns // 1_000_000)\n",
        new="                bucket.charge(decision.reserved, now_ms=self._state.now_ns // 1_000_000)\n            else:\n"
        "                bucket.charge(-decision.reserved, now_ms=self._state.now_ns // 1_000_000)\n",
        origin="fixed bug",
    ),
    Break(
        name="Old clients change topics whatever their bucket owes",
        file="proxy/session/handlers/topic_mutations.py",
        old="        if is_throttled and (debt_ms := bucket.debt_ms(now_ms=now_ms)):\n",
        new="        if False and (debt_ms := bucket.debt_ms(now_ms=now_ms)):\n",
        origin="fixed bug",
    ),
    Break(
        name="A broker that has vanished is never found",
        file="proxy/server/transport_pair.py",
        old="        self.broker = transport\n        _keep_alive(transport)\n",
        new="        self.broker = transport\n",
        origin="fixed bug",
    ),
    Break(
        name="After a paced limit is lowered, clients wait for what they owed before",
        file="proxy/quota/bucket.py",
        old="        if self._tokens is not None and self.observed_requests != self.requests:\n",
        new="        if False:\n",
        origin="fixed bug",
        theme="changed rules",
    ),
    Break(
        name="After a failed write, a change that changes nothing is acknowledged without a write",
        file="proxy/client_quotas/storage/directory_store.py",
        old="            self._is_uncertain |= may_hold\n",
        new="",
        origin="fixed bug",
        theme="stored quotas",
        why="Three things would have to follow: a write fails after it is on the disk, a change changes nothing, and the "
        "proxy is killed. One of some two thousand worlds has that.",
    ),
    Break(
        name="A write of quotas that fails after the proxy was stopped is an internal error",
        file="proxy/client_quotas/storage/directory_store.py",
        old="            if not ended:\n                self._late = writing\n",
        new="            if not ended and not asyncio.current_task().cancelling():\n                self._late = writing\n",
        origin="fixed bug",
        why="A write would have to hang until the proxy stops, and fail after that. One of some thousand worlds has that.",
    ),
    Break(
        name="A usage log file of a crash gets its final name before it is on the disk",
        file="proxy/usage/segments.py",
        old="        _sync(file, path)  # the process that has crashed may not have done so\n",
        new="",
        origin="fixed bug",
        theme="usage log",
    ),
    Break(
        name="A Produce with acks=0 is charged while its broker is being dialled",
        file="proxy/server/connection.py",
        old="        self.session.await_broker()\n",
        new="",
        origin="fixed bug",
        theme="broken brokers",
    ),
)
