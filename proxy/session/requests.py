"""From the client to the broker: which requests pass now, with which change, and what they will be charged."""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol import fetch, produce, sasl, share_fetch
from kafka_quota_proxy.protocol.api import API_NAMES, HIGHEST_VERSION
from kafka_quota_proxy.protocol.client_quotas import ALTER, DESCRIBE, is_client_quotas
from kafka_quota_proxy.protocol.errors import (
    FrameTooLarge,
    HeadTooLong,
    LoginExpired,
    TokenAfterRefusal,
    UnknownVersion,
)
from kafka_quota_proxy.protocol.header import MAX_HEAD_BYTES, RequestHead, read_request_head
from kafka_quota_proxy.protocol.partial_frame import PartialFrame, bytes_to_wait_for
from kafka_quota_proxy.protocol.refusal_responses import refusal_response
from kafka_quota_proxy.protocol.topic_mutations import FIRST_REFUSABLE_VERSION, is_mutation
from kafka_quota_proxy.proxy.client_quotas.api import MAX_REFUSED_ELEMENTS, Administration, read_request, refusal
from kafka_quota_proxy.proxy.client_quotas.api import MAX_REQUEST_BYTES as MAX_QUOTA_REQUEST_BYTES
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin
from kafka_quota_proxy.proxy.client_quotas.sources.forwarded_alter import Authority, PassingAlteration, can_wait
from kafka_quota_proxy.proxy.fair_queue.connection_queue import ListenerQueue, QueuedConnection, Turn
from kafka_quota_proxy.proxy.fair_queue.request_kind import RequestKind, request_kind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import QuotaKind, bounded
from kafka_quota_proxy.proxy.quota.request_time import NO_TIME, is_exempt
from kafka_quota_proxy.proxy.session.client_account import NOBODY
from kafka_quota_proxy.proxy.session.frame_edits import NOTHING, Change, capped_fetch, response_change, without_session
from kafka_quota_proxy.proxy.session.quota_requests import QuotaRequests
from kafka_quota_proxy.proxy.session.replica.follower_fetch import Follower
from kafka_quota_proxy.proxy.session.request_charge import Sent, has_room, longest
from kafka_quota_proxy.proxy.session.sasl_login import LOGIN_APIS, Login, Verdict
from kafka_quota_proxy.proxy.session.state import (
    API_VERSIONS,
    EXCHANGED,
    FETCH,
    MAX_IN_FLIGHT,
    PRODUCE,
    SHARE_FETCH,
    Habit,
    State,
)
from kafka_quota_proxy.proxy.session.topic_mutations import MAX_REQUEST_BYTES, Mutations
from kafka_quota_proxy.proxy.session.whole_request import Answered, Ask, Decision, Exchange, Forward, Hold

QUOTA_APIS: Final = frozenset({DESCRIBE, ALTER})
# Its owner is told when it is there; this is for an owner of whom nobody knows.
LOOKS_FOR_ANSWER_MS: Final = 1_000
# What a client sends before it is known as whom it comes.
_OF_NOBODY: Final = LOGIN_APIS | {API_VERSIONS}
# A follower's fetch is kept whole and walked to its end: 100,000 partitions take 5 MB.
MAX_REPLICA_FETCH_BYTES: Final = 8 * 1024 * 1024
# What the queue refuses has to be walked for its partitions; what is longer is held.
MAX_REFUSED_BYTES: Final = 1024 * 1024
# And how long its client is to be silent: well below what clients time out after.
REFUSED_FOR_MS: Final = 500
# How long a client is to be silent at least that is answered without records: one that does not wait would spin.
LEAST_EMPTY_MS: Final = 20
# What a client has sent before it knew is on its way still: longer than most round trips, and shorter than the 100 ms
# after which clients that do not heed a throttle time try again.
REFUSED_BEHIND_MS: Final = 50
# A client-id and a transactional id have up to 32 KB each: not to be kept for each connection.
_MAX_HABIT_BYTES: Final = 1024
_PRODUCE_KEY: Final = PRODUCE.to_bytes(2)
_READ_LIMITS: Final = {FETCH: fetch.read_limits, SHARE_FETCH: share_fetch.read_limits}
# size_bytes and correlation_id of a request; api_key and api_version lie between them.
_SIZE_AND_ID: Final = Struct(">i4xi").unpack_from


class Requests(State):
    """The client's side of a session."""

    __slots__ = ()

    def _pass_requests(self, data: bytes, start: int, now_ms: int) -> None:  # noqa: C901 - a loop that each request pays
        """Pass on the requests that have come, from ``start`` on, and may pass; keep the rest."""
        if self._quota_requests is not None and self._quota_requests.is_pending:
            start += self._take_from_desk(self._quota_requests, data, start, now_ms)
            if self._quota_requests.is_pending:
                return
        position = start
        end = len(data)
        account = self.account
        listening = account.listening
        max_frame_bytes = 4 + listening.policy.max_frame_size_bytes
        answer = self._answer
        is_held = answer is not None and answer[4]  # an answer is to be delayed as soon as it is there
        self.is_blocked = self._is_in_line = False
        try:
            while position < end:
                if (
                    (now_ms < account.muted_until_ms and now_ms >= self._refuses_until_ms)
                    or is_held
                    or self.delayed_until_ms
                    or len(self._in_flight) >= self._most_in_flight
                ):
                    self.is_blocked = True
                    break
                if self._call is not None:
                    self._come_bytes = end - position
                habit = self._habit
                if (
                    habit is not None
                    and data.startswith(habit.front, position + 12)
                    and data.startswith(habit.api, position + 4)
                    and habit.generation == listening.quotas.generation
                    and habit.front_end <= 4 + (head := _SIZE_AND_ID(data, position))[0] <= max_frame_bytes
                ):
                    size_bytes, correlation_id = head
                    if habit.api_key == PRODUCE:
                        change = self._take_produce(habit, size_bytes, correlation_id, now_ms)
                    else:
                        change = self._take_fetch(habit, data, position, size_bytes, correlation_id, now_ms)
                    if change is None and self._is_refused:
                        change = self._refuse(data, position, size_bytes, now_ms)
                        if change is None:
                            continue  # it is held
                    if change is None:
                        break
                    listening.counters.frames[habit.api_key] += 1
                else:
                    passes = self._admit(data, position, now_ms)
                    if passes is None:
                        break
                    size_bytes, change = passes
                if change:
                    begin, until, replacement = change
                    if replacement:
                        self.to_broker += (data[start:begin], replacement)
                    elif begin > start:  # of what was answered here nothing passes
                        self.to_broker.append(data[start:begin])
                    start = until
                position += 4 + size_bytes
                if position > end:
                    self._request_left = position - end
                    position = end
                elif self._acks0 is not None or self._is_metered:
                    self._end_request(now_ms)
        finally:
            if position > start:
                self.to_broker.append(data[start:position])  # all of it: no copy is made
            if self._question:
                self.to_broker.append(self._question)
                self._question = b""
            if position < end:
                # A tail of a few bytes must not keep a read of 256 KiB alive, nor may each request that passes copy it.
                is_tail = position > end - position
                self._client_data = data[position:] if is_tail else data
                self._client_at = 0 if is_tail else position
            elif self._client_data:
                self._client_data = b""
            if self._place is not None and not self._is_in_line:
                # It waits for something else, or its client is to be silent first: others go on.
                self._place.line.step_aside(self._place, back_ms=account.muted_until_ms or now_ms)
        if position < end and not self.is_blocked:
            most_bytes = self._max_waiting_bytes()
            if end - position > most_bytes:
                raise HeadTooLong(f"the head of a request has not ended after {end - position} bytes")
            if self._client_at:
                self._client_data, self._client_at = data[position:], 0
            self._client_pieces = PartialFrame(
                self._client_data, bytes_to_wait_for(self._client_data, most_bytes=most_bytes)
            )

    def _admit(self, data: bytes, position: int, now_ms: int) -> tuple[int, Change] | None:
        """Say how long the next request is and with which change it passes, and remember it; None: not now."""
        listening = self.account.listening
        if listening.line is not None or self._call is not None:
            self._follow_line(listening.line, len(data) - position)
        login = self._login
        if login is not None and login.is_raw:
            is_request = not login.is_readable and sasl.is_request(data, position)
            if not is_request:
                return None if is_request is None else self._admit_token(data, position, login)
            self._conclude(login, login.leave_raw())
        elif login is not None and login.is_refused and not (is_handshake := sasl.is_handshake(data, position)):
            if is_handshake is None:
                return None
            raise TokenAfterRefusal("it sent on behind a SaslHandshake v0 that the broker has refused")
        head = read_request_head(data, position, listening.policy.max_frame_size_bytes)
        if head is None:
            return None
        size_bytes, api_key, api_version, _, client_id, _ = head
        account = self.account
        if not account.is_known and api_key not in _OF_NOBODY and not account.count(client_id):
            self.is_blocked = True
            self.take_no_more()
            return None
        change = self._admit_by_api(data, position, head, now_ms)
        if change is None and self._is_refused:
            change = self._refuse(data, position, size_bytes, now_ms) or self._admit_by_api(
                data, position, head, now_ms
            )
        if change is None:
            return None
        listening.counters.frame(api_key, api_version)
        return size_bytes, change

    def _admit_by_api(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        api_key = head.api_key
        if api_key == PRODUCE:
            return self._admit_produce(data, position, head, now_ms)
        if api_key == FETCH:
            return self._admit_fetch(data, position, head, now_ms)
        if api_key == SHARE_FETCH:
            return self._admit_consumer(data, position, head, now_ms, is_like_the_next=True)
        if api_key in LOGIN_APIS:
            return self._admit_login(data, position, head, now_ms)
        if api_key in FIRST_REFUSABLE_VERSION and self.account.listening.quotas.limits(QuotaKind.MUTATION):
            return self._admit_mutation(data, position, head, now_ms)
        if api_key in QUOTA_APIS and self.account.listening.policy.administration is not None:
            return self._admit_quota_request(data, position, head, self.account.listening.policy.administration, now_ms)
        if api_key == ALTER and self.account.listening.policy.authority is not None and can_wait(head):
            return self._admit_passing_alteration(data, position, head, self.account.listening.policy.authority, now_ms)
        return self._admit_other(head, now_ms)

    def _follow_line(self, line: ListenerQueue | None, come_bytes: int) -> None:
        """Take a place in the queue in front of the broker, where there is one now."""
        self._come_bytes = come_bytes
        if self._call is not None and self._call.line is not line and not self._in_flight:
            self._leave_queue()
            self._call = None
        if self._call is None and line is not None:
            self._call = QueuedConnection(line, self.owner)

    def _admit_other(self, head: RequestHead, now_ms: int) -> Change | None:
        size_bytes, api_key, api_version, correlation_id, client_id, _ = head
        sent = None
        if self.account.listening.quotas.limits_requests or self._call is not None:
            exempt = is_exempt(api_key, is_broker=self.account.believes_replicas())
            payers = NOBODY if exempt else self.account.payers(client_id, now_ms)
            self._let_go(now_ms)
            sent = Sent(payers, request_kind(api_key, api_version), self._identity(client_id))
            if self._waits(now_ms) or not self._may_ask(sent, size_bytes, now_ms):
                return None
            sent.begin()
        self._in_flight.append((correlation_id, api_key, api_version, size_bytes, None, sent, 0))
        return NOTHING

    def _admit_produce(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        size_bytes, _, api_version, correlation_id, client_id, body = head
        acks = produce.read_acks(data, body, api_version, end=position + 4 + size_bytes)
        if acks is None:
            return None
        bucket = self.account.produce_bucket(client_id, now_ms)
        self.account.payers(client_id, now_ms)
        if now_ms >= self._refuses_until_ms and self._waits(now_ms):
            return None
        front_end = produce.end_of_plain_acks(data, body, api_version)
        habit = self._habit_of(data, position, head, front_end, acks, bucket, now_ms=now_ms)
        return self._take_produce(habit, size_bytes, correlation_id, now_ms)

    def _admit_fetch(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        believes = self.account.believes_replicas()
        if believes:
            frame_end = position + 4 + head.size_bytes
            if frame_end > len(data):
                return None
            replica_id = fetch.read_replica_id(data, head.body, frame_end, head.api_version)
            if replica_id >= 0:
                return self._admit_replica(data, position, head, replica_id, now_ms)
        # Where replicas are believed, each fetch has to be read for what it says of itself.
        return self._admit_consumer(data, position, head, now_ms, is_like_the_next=not believes)

    def _admit_consumer(
        self, data: bytes, position: int, head: RequestHead, now_ms: int, *, is_like_the_next: bool
    ) -> Change | None:
        """Pass on a consumer's Fetch or ShareFetch."""
        size_bytes, _, _, correlation_id, client_id, body = head
        bucket = self.account.fetch_bucket(client_id, now_ms)
        self.account.payers(client_id, now_ms)
        if self._waits(now_ms):
            return None
        habit = self._habit_of(data, position, head, body if is_like_the_next else None, 0, bucket, now_ms=now_ms)
        return self._take_fetch(habit, data, position, size_bytes, correlation_id, now_ms, body=body)

    def _admit_replica(
        self, data: bytes, position: int, head: RequestHead, replica_id: int, now_ms: int
    ) -> Change | None:
        """Pass on a follower's fetch, which is whole: as it came, or with what may flow of it; or answer it here."""
        size_bytes, _, api_version, correlation_id, _, body = head
        self._held_until_ms = 0
        follower, leader = self._follower, self.account.listening.leader
        if follower is None and leader is not None and leader.throttle.replication is not None:
            follower = self._follower = Follower(leader)
        if follower is not None and follower.is_asking:
            self.is_blocked = True
            return None
        if follower is None or not follower.is_throttled(replica_id, api_version, now_ms=now_ms):
            self._in_flight.append((correlation_id, FETCH, api_version, size_bytes, None, None, 0))
            return NOTHING
        if not self._is_alone():
            return None
        decision = follower.take(data, position, body, api_version, correlation_id, now_ms=now_ms)
        return self._do(decision, follower, position, head, None)

    def _admit_mutation(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        """Pass on a request that makes, grows or deletes topics: as it came, or with what may be done of it."""
        size_bytes, api_key, api_version, _, client_id, _ = head
        frame_end = position + 4 + size_bytes
        bucket = self.account.mutation_bucket(client_id, now_ms)
        if not bucket.is_limited:
            return self._admit_other(head, now_ms)
        if not is_mutation(api_key, api_version):
            raise UnknownVersion(
                f"version {api_version} of {API_NAMES[api_key]} is not known here, nor was it announced"
            )
        if size_bytes > MAX_REQUEST_BYTES:
            raise FrameTooLarge(f"a request of {size_bytes} bytes about topics, which are limited, is not held")
        mutations = self._mutations = self._mutations or Mutations(self.account)
        if frame_end > len(data):
            return None
        payers = self.account.payers(client_id, now_ms)
        self._let_go(now_ms)
        sent = Sent(payers, request_kind(api_key, api_version), self._identity(client_id))
        if self._waits(now_ms) or not self._is_alone() or not self._may_ask(sent, size_bytes, now_ms):
            return None
        frame = data[position:frame_end]
        decision = mutations.take(frame, head._replace(body=head.body - position), bucket, now_ms=now_ms)
        passes = isinstance(decision, Forward)
        if passes:
            sent.begin()
        return self._do(decision, mutations, position, head, sent if passes else None)

    def _admit_quota_request(
        self, data: bytes, position: int, head: RequestHead, administration: Administration, now_ms: int
    ) -> Change | None:
        """Answer a request about client quotas, or pass it on, as the listener says."""
        size_bytes, api_key, api_version, _, client_id, _ = head
        principal, frame_end = self.account.principal, position + 4 + size_bytes
        if not administration.is_answered_here(principal):
            return self._admit_other(head, now_ms)
        if not is_client_quotas(api_key, api_version):
            raise UnknownVersion(
                f"version {api_version} of {API_NAMES[api_key]} is not known here, nor was it announced"
            )
        if self._login is not None and self._login.has_expired(now_ms=now_ms):
            raise LoginExpired("its login has expired, and it asked about client quotas without logging in again")
        if size_bytes > administration.max_request_bytes(principal):
            raise FrameTooLarge(f"a request of {size_bytes} bytes about client quotas is not held")
        requests = self._quota_requests = self._quota_requests or QuotaRequests()
        requests.is_coming = frame_end > len(data)
        if requests.is_coming or not self._is_alone():
            return None
        payers = self.account.payers(client_id, now_ms)
        self._let_go(now_ms)
        is_admin = principal in administration.admins
        # Who administers does not wait for a broker that is too busy: his quotas may be what helps it.
        sent = Sent(payers, request_kind(api_key, api_version), None if is_admin else self._identity(client_id))
        if self._waits(now_ms) or not self._may_ask(sent, size_bytes, now_ms):
            return None
        frame = data[position:frame_end]
        if is_admin:
            name = client_id.decode("utf-8", "replace")
            origin = Origin(principal, name, self.peer_host, administration.listener)
            requests.submit(administration.handler, frame, head, sent, origin=origin, owner=self.owner)
            self._held_until_ms = now_ms + LOOKS_FOR_ANSWER_MS
            self.is_blocked = True
            return None
        answer = refusal(read_request(frame, most_elements=MAX_REFUSED_ELEMENTS))
        self.to_client.append(self._paid(sent, head, answer, now_ms))
        self._leave_queue()
        return position, frame_end, b""

    def _take_from_desk(self, requests: QuotaRequests, data: bytes, start: int, now_ms: int) -> int:
        """Answer the request at ``start`` if the handler has, or let go of an answer that was held.

        Returns how long that request was; 0 where it waits on, or had passed.
        """
        done = requests.take()
        if done is None:
            self._client_data, self._client_at = data, start
            self._held_until_ms = now_ms + LOOKS_FOR_ANSWER_MS
            self.is_blocked = True
            return 0
        self._held_until_ms = 0
        if done.request is None:
            self.to_client.append(done.answer)
            return 0
        head, sent = done.request
        self.to_client.append(self._paid(sent, head, done.answer, now_ms))
        self._leave_queue()
        return 4 + head.size_bytes

    def _admit_passing_alteration(
        self, data: bytes, position: int, head: RequestHead, authority: Authority, now_ms: int
    ) -> Change | None:
        """Pass on a request to change the broker's quotas, alone and whole: its answer may have to wait."""
        frame_end = position + 4 + head.size_bytes
        requests = self._quota_requests = self._quota_requests or QuotaRequests()
        requests.is_coming = frame_end > len(data)
        if requests.is_coming or not self._is_alone():
            return None
        change = self._admit_other(head, now_ms)
        if change is not None:
            self._exchange = PassingAlteration(authority, data[position:frame_end])
            correlation_id, _, api_version, size_bytes, _, sent, _ = self._in_flight.pop()
            self._in_flight.append((correlation_id, EXCHANGED, api_version, size_bytes, None, sent, 0))
            self._most_in_flight = 0
        return change

    def _paid(self, sent: Sent, head: RequestHead, answer: bytes, now_ms: int) -> bytes:
        """Charge a request that is answered here; return its answer, which says how long its client is to be silent."""
        sent.begin()
        scale = self.account.listening.quotas.request_time_scale
        charges = sent.settle(NO_TIME, head.size_bytes, len(answer) - 4, scale=scale, now_ms=now_ms)
        found = longest(self.account, charges, now_ms=now_ms)
        self._charge_turn(sent)
        if found is None:
            return answer
        # Nothing is held back, so where answers are the client is muted instead, and not told.
        wait_ms = self.account.slow_down(*found, now_ms=now_ms, has_answer=False)
        if wait_ms and self.account.enforcement(found[0]) is Enforcement.RESPOND:
            change = response_change(answer, 0, len(answer), head.api_key, head.api_version, wait_ms)
            if change:
                return answer[: change[0]] + change[2] + answer[change[1] :]
        return answer

    def _is_alone(self) -> bool:
        """Whether nothing is under way; else an answer of ours would overtake others, and the request waits."""
        is_alone = not (self._in_flight or self._is_being_answered)
        self.is_blocked = not is_alone
        return is_alone

    def _do(
        self, decision: Decision, exchange: Exchange, position: int, head: RequestHead, sent: Sent | None
    ) -> Change | None:
        """Do with a request, which is whole, what was decided on it."""
        size_bytes, api_key, api_version, correlation_id, _, _ = head
        frame_end = position + 4 + size_bytes
        if isinstance(decision, Hold):
            self._held_until_ms = decision.until_ms
            self.is_blocked = True
            return None
        if isinstance(decision, Answered):
            self.to_client.append(decision.frame)
            self._leave_queue()
            return position, frame_end, b""
        self._exchange = exchange
        if isinstance(decision, Ask):
            self._question = decision.frame
            self._in_flight.append((correlation_id, EXCHANGED, api_version, 0, None, None, 0))
            self.is_blocked = True
            return None
        api_key = EXCHANGED if decision.is_answer_read else api_key
        self._in_flight.append((correlation_id, api_key, api_version, size_bytes, None, sent, 0))
        return (position, frame_end, decision.frame) if decision.frame else NOTHING

    def _waits(self, now_ms: int) -> bool:
        """Whether the bucket that was just looked up brought a wait with it, which another connection was given."""
        if now_ms >= self.account.muted_until_ms:
            return False
        self._habit = None
        self.is_blocked = True
        return True

    def _habit_of(
        self,
        data: bytes,
        position: int,
        head: RequestHead,
        front_end: int | None,
        acks: int,
        bucket: Bucket,
        *,
        now_ms: int,
    ) -> Habit:
        """Return what this request shares with the next; keep it for them if it may be compared and is well known.

        A habit is of the client-id whose buckets are held, else they could make room for others and be charged still.
        """
        payers = self.account.payers(head.client_id, now_ms)
        sent = None
        if payers is not NOBODY or self._call is not None:
            sent = Sent(payers, request_kind(head.api_key, head.api_version, acks), self._identity(head.client_id))
        habit = Habit(
            api=data[position + 4 : position + 8],
            front=data[position + 12 : front_end] if front_end else b"",
            api_key=head.api_key,
            api_version=head.api_version,
            acks=acks,
            bucket=bucket,
            sent=sent,
            generation=self.account.listening.quotas.generation,
            front_end=(front_end or 0) - position,
        )
        is_kept = front_end and habit.front_end <= _MAX_HABIT_BYTES
        if is_kept and head.api_version <= HIGHEST_VERSION[head.api_key]:
            self._habit = habit
        self._let_go(now_ms)
        return habit

    def _let_go(self, now_ms: int) -> None:
        """Hold no longer what was looked up for other client-ids, so that who changes them takes no more places."""
        if self.account.left:
            if self._habit is not None and not self.account.holds(self._habit.bucket):
                self._habit = None  # else it would be charged still, when its place is another's by now
            self.account.let_go(set(self._charged()), now_ms=now_ms)

    def _charged(self) -> Iterator[Bucket | None]:
        """Return the buckets that are still to be charged."""
        for flight in self._in_flight:
            yield flight[4]
            if flight[5] is not None:
                yield from flight[5].payers
        if self._mutations is not None:
            yield self._mutations.charged

    def _take_produce(self, habit: Habit, size_bytes: int, correlation_id: int, now_ms: int) -> Change | None:
        """Take up a Produce request, unless it has to wait in the line of its bucket."""
        bucket = habit.bucket
        is_limited = bucket.is_limited
        if is_limited:
            is_calm = bucket.line is None and now_ms >= bucket.silent_until_ms
            has_room = is_calm and bucket.has_room(size_bytes, now_ms=now_ms)
            if not has_room and not self._has_turn(bucket, size_bytes, now_ms):
                return None
        sent = habit.sent
        if sent is not None:
            if not self._may_ask(sent, size_bytes, now_ms):
                return None
            if sent.payers is not NOBODY:
                sent.begin()
        if is_limited:
            bucket.reserve(size_bytes, now_ms=now_ms)
        else:
            bucket.in_flight += size_bytes
        if self._place is not None:
            self._leave_line()
        if habit.acks:
            self._in_flight.append((correlation_id, PRODUCE, habit.api_version, size_bytes, bucket, sent, size_bytes))
        else:
            self._acks0 = (bucket, size_bytes, sent)
        return NOTHING

    def _has_turn(self, bucket: Bucket, amount: int, now_ms: int) -> bool:
        """Whether a request may pass that is expected to charge ``amount`` to a bucket with a limit.

        Else it waits: for what is in front of it on its own connection, or in the line of the bucket.
        """
        line, place = bucket.line, self._place
        if self.account.observes(bucket) or now_ms < self._refuses_until_ms:
            if not self._in_flight:
                self.account.asked_ms = now_ms
            return True
        if place is not None and place.line is not line:
            self._leave_line()
            place = None
        if self._in_flight and not bucket.has_room(amount, now_ms=now_ms):
            self.is_blocked = True
            return False
        first = None if line is None else line.first()
        if (first is None or first is place) and bucket.is_free(amount, now_ms=now_ms):
            return True
        line = self.account.listening.quotas.line(bucket)
        if place is None:
            place = self._place = line.take(self.owner)
        line.wait(place)
        self.is_blocked = self._is_in_line = self.has_waited = True
        self._line_until_ms = bucket.free_at_ms(now_ms=now_ms) if line.first() is place else 0
        return False

    def _identity(self, client_id: bytes) -> str | None:
        """Return whose turn it has to be for a request of this client-id; None: there is no queue."""
        if self._call is None:
            return None
        name = bounded(client_id.decode("utf-8", "backslashreplace"))
        return self._call.line.identity(self.account.principal, name, self.peer_host)

    def _may_ask(self, sent: Sent, size_bytes: int, now_ms: int) -> bool:
        """Whether a request may pass that is more than its bytes; else it waits here, or is refused.

        None passes of which we would not read the answer: nobody knew when the broker is done with it.
        """
        payers, asked, identity = sent
        call = self._call
        is_alone = not self._in_flight
        may = not self._is_client_full and (is_alone or has_room(self.account, payers, now_ms=now_ms))
        if may and call is not None and identity is not None:
            is_whole = 4 + size_bytes <= self._come_bytes
            is_behind = now_ms < self._refuses_until_ms
            refuses = is_behind or call.line.dispatcher.is_refusing
            can_refuse = refuses and is_alone and self._can_refuse(asked, size_bytes)
            if is_behind:
                if can_refuse and not is_whole:
                    self.is_blocked = False  # the rest is to come
                    return False
                turn = call.refuse_behind(asked, identity) if can_refuse else Turn.WAITS
            else:
                may_refuse = can_refuse and is_whole
                now_us = self.now_ns // 1_000
                turn = call.ask(asked, identity, size_bytes, is_alone=is_alone, may_refuse=may_refuse, now_us=now_us)
            may = turn is Turn.PASSES
            self._is_refused = turn is Turn.REFUSED
            if may:
                self._is_unrefusable = False
            if may and is_alone and not is_whole:
                call.passed(asked, is_whole=False, now_us=self.now_ns // 1_000)
        self._is_metered = True
        self.is_blocked = not may and not self._is_refused
        return may

    def _can_refuse(self, asked: RequestKind, size_bytes: int) -> bool:
        """Whether we may answer a request behind which nothing is unanswered.

        Unlike the broker's, our answer would come in front of the rest of one that has begun, or into it.
        """
        has_answer = asked.is_refusable and not self._is_unrefusable
        return has_answer and not self._is_being_answered and size_bytes <= MAX_REFUSED_BYTES

    def _begin_service(self) -> None:
        """Take it that the broker is at work now on the oldest request without an answer, if it has the whole of it."""
        is_read = not (self._is_client_full or self.delayed_until_ms)
        if self._service is None and self._in_flight and self._is_oldest_whole and is_read:
            sent = self._in_flight[0][5]
            if sent is not None:
                clock = self.account.listening.service
                self._service = clock.begin(may_wait=sent.asked.may_wait, now_ns=self.now_ns)

    @property
    def _is_oldest_whole(self) -> bool:
        """Whether the broker has the whole of the oldest request that has no answer; a later one may be on its way."""
        return not self._request_left or self._acks0 is not None or len(self._in_flight) > 1

    def _stop_service(self) -> None:
        """Take it that the broker is not read: how late its answers are is not its doing, and they hold no slot."""
        self._end_service()
        if self._call is not None:
            is_used = bool(self._in_flight or self._request_left)
            self._call.pause(is_used=is_used, now_us=self.now_ns // 1_000)

    def _move_up(self, call: QueuedConnection) -> None:
        """Take it that the oldest request is answered: the slot goes on with the one behind it, if it needs one."""
        sent, is_whole = None, False
        if self._in_flight:
            sent = self._in_flight[0][5]
            is_whole = self._is_oldest_whole
        elif self._acks0 is not None:
            sent = self._acks0[2]
        if sent is None:
            call.end(self.now_ns // 1_000)
        else:
            call.passed(sent.asked, is_whole=is_whole, now_us=self.now_ns // 1_000)

    def _refuse(self, data: bytes, position: int, size_bytes: int, now_ms: int) -> Change | None:
        """Answer a request that the queue has refused, and let its client be silent for a while; None: it is held.

        Each Produce that was sent behind a refused one is refused as well, before that. Else it would be written
        first: its records would overtake those that are sent again, or the broker would miss these
        (OUT_OF_ORDER_SEQUENCE_NUMBER).
        """
        self._is_refused = False
        frame_end = position + 4 + size_bytes
        is_behind = now_ms < self._refuses_until_ms
        left_ms = self.account.muted_until_ms - now_ms if is_behind else REFUSED_FOR_MS
        answer = refusal_response(data[position:frame_end], throttle_time_ms=left_ms)
        if answer is None:
            self._is_unrefusable = True
            return None
        if not is_behind:
            self.account.mute(REFUSED_FOR_MS, now_ms=now_ms)
            is_muted = now_ms < self.account.muted_until_ms  # it is not while the proxy is about to end
            is_produce = data.startswith(_PRODUCE_KEY, position + 4)
            self._refuses_until_ms = now_ms + REFUSED_BEHIND_MS if is_produce and is_muted else 0
        if self._call is not None:
            self._call.refused()
        self.to_client.append(answer)
        return position, frame_end, b""

    def _take_fetch(
        self,
        habit: Habit,
        data: bytes,
        position: int,
        size_bytes: int,
        correlation_id: int,
        now_ms: int,
        *,
        body: int = 0,
    ) -> Change | None:
        """Take up a fetch, capped to its quota; under one, one at a time: what it brings only its answer tells."""
        bucket, sent = habit.bucket, habit.sent
        is_capped = bucket.is_limited and not self.account.observes(bucket)
        change, reserved_bytes, is_put_off = NOTHING, 0, False
        if is_capped or sent is not None:
            if is_capped and self._fetches_in_flight:
                self.is_blocked = True
                return None
            frame_end = position + 4 + size_bytes
            limits = _READ_LIMITS[habit.api_key](
                data, body or position + habit.front_end, habit.api_version, end=frame_end
            )
            if limits is None:
                return None
            if is_capped:
                turn = self._fetch_turn(habit, data, limits, now_ms)
                if turn is None:
                    if habit.api_key == FETCH and self._is_overdue(bucket, limits, now_ms):
                        return self._answer_empty(habit, data, position, frame_end, correlation_id, limits, now_ms)
                    return None
                change, reserved_bytes, is_put_off = turn
            if sent is not None and (sent := self._may_poll(habit, sent, limits, size_bytes, now_ms)) is None:
                return None
        if is_capped:
            bucket.reserve(reserved_bytes, now_ms=now_ms)
        elif bucket.is_limited and not self._in_flight:
            self.account.asked_ms = now_ms
        if is_put_off:
            self._is_put_off, self._is_in_line, self.is_blocked = True, False, False
        elif self._place is not None:
            self._leave_line()
        self._fetches_in_flight += 1
        self._in_flight.append(
            (correlation_id, habit.api_key, habit.api_version, size_bytes, bucket, sent, reserved_bytes)
        )
        return change

    def _fetch_turn(
        self, habit: Habit, data: bytes, limits: fetch.FetchLimits, now_ms: int
    ) -> tuple[Change, int, bool] | None:
        """Look whether a fetch has its turn in the line of its bucket.

        Returns:
            What is changed in it, what it reserves, and whether it is passed on to bring no records, for its turn is
            too far off; None: it stays in line.
        """
        bucket = habit.bucket
        room = bucket.fetch_room(now_ms=now_ms)
        room_bytes = bucket.fetch_cap(room)
        # What the last one brought this one is expected to bring: hardly anything where it polls for news.
        reserved_bytes = self._fetched_bytes
        if reserved_bytes < 0:
            reserved_bytes = bucket.fetch_bytes(min(limits.max_bytes, room_bytes))
        if room < reserved_bytes or bucket.line is not None or now_ms < bucket.silent_until_ms:
            has_waited = self._place is not None and self._place.is_waiting
            if not self._has_turn(bucket, reserved_bytes, now_ms):
                self._waits_since_ms = self._waits_since_ms if has_waited else now_ms
                if habit.api_key == FETCH or not self._is_overdue(bucket, limits, now_ms):
                    return None
                # It may acknowledge records, and its session counts it: the broker has to hear of it.
                return share_fetch.without_records(limits, habit.api_version), 0, True
        change = capped_fetch(limits, room_bytes)
        if self._is_sessionless and habit.api_key == FETCH:
            session = fetch.read_session(data, limits, habit.api_version)
            if session is not None and session.epoch == fetch.OPENS_SESSION:
                change = without_session(data, change, session)
        return change, reserved_bytes, False

    def _may_poll(
        self, habit: Habit, sent: Sent, limits: fetch.FetchLimits, size_bytes: int, now_ms: int
    ) -> Sent | None:
        """Return what a fetch is charged beside its bytes, which begins now; None: it may not pass yet."""
        is_patient, wants_data = limits.max_wait_ms > 0, limits.min_bytes > 0
        if not (is_patient and wants_data):
            sent = sent._replace(asked=request_kind(habit.api_key, habit.api_version, 1, is_patient, wants_data))
        if not self._may_ask(sent, size_bytes, now_ms):
            return None
        if sent.payers is not NOBODY:
            sent.begin()
        return sent

    def _is_overdue(self, bucket: Bucket, limits: fetch.FetchLimits, now_ms: int) -> bool:
        """Whether the turn of a fetch in line will not come while its client waits; else it stays in line."""
        if not self._is_in_line:
            return False
        is_delayed = self.account.enforcement(bucket) is Enforcement.DELAY
        patience_ms = bucket.max_throttle_time_ms if is_delayed else limits.max_wait_ms
        until_ms = self._waits_since_ms + max(0, patience_ms)
        wait_ms = 0 if is_delayed else bucket.line_wait_ms(self._place, now_ms=now_ms)
        if now_ms < until_ms if is_delayed else now_ms + wait_ms <= until_ms:
            self._line_until_ms = min(self._line_until_ms or until_ms, until_ms)
            return False
        return True

    def _answer_empty(
        self,
        habit: Habit,
        data: bytes,
        position: int,
        frame_end: int,
        correlation_id: int,
        limits: fetch.FetchLimits,
        now_ms: int,
    ) -> Change | None:
        """Answer a Fetch without records; None: its rest is to come, or it has to wait for what is in front of it.

        So it is with Kafka: over the quota a consumer is told at once how long to be silent. Its place is kept.
        """
        bucket, api_version = habit.bucket, habit.api_version
        is_readable = api_version <= HIGHEST_VERSION[FETCH] and frame_end - position <= MAX_REFUSED_BYTES
        if not is_readable or self._in_flight or self._is_being_answered:
            return None
        if frame_end > len(data):
            self.is_blocked = self._is_in_line = False  # the rest is to come, and others go on meanwhile
            return None
        session = fetch.read_session(data, limits, api_version)
        # A broker's session would not know of this fetch, and what it says of its partitions would be lost.
        is_in_session = session is not None and session.session_id != 0
        error_code = fetch.FETCH_SESSION_ID_NOT_FOUND if is_in_session else 0
        self._is_sessionless = True
        wait_ms = max(bucket.line_wait_ms(self._place, now_ms=now_ms), LEAST_EMPTY_MS)
        told_ms = self.account.answer_empty(bucket, wait_ms, now_ms=now_ms)
        self._is_in_line = self.is_blocked = False
        self.to_client.append(fetch.empty_response(correlation_id, api_version, told_ms, error_code=error_code))
        return position, frame_end, b""

    def _end_request(self, now_ms: int) -> None:
        """Go on behind a request that has now passed: charge it if it will not be answered."""
        if self._acks0 is not None:
            bucket, size_bytes, sent = self._acks0
            self._acks0 = None
            bucket.settle(size_bytes)
            if bucket.line is not None:
                bucket.line.note(size_bytes)
                bucket.line.wake_first()
            charges = [(bucket, bucket.charge(size_bytes, now_ms=now_ms))]
            if sent is not None:
                charges += sent.pass_unanswered(now_ms=now_ms)
                self._charge_turn(sent)
                if self._call is not None and not self._in_flight:
                    self._call.end(self.now_ns // 1_000)
            found = longest(self.account, charges, now_ms=now_ms)
            if found is not None:
                self.account.slow_down(*found, now_ms=now_ms, has_answer=False)
        elif self._in_flight and (sent := self._in_flight[0][5]) is not None:
            call, asked = self._call, sent.asked
            if call is not None and len(self._in_flight) == 1 and (asked.may_park or call.is_watched):
                call.passed(asked, is_whole=True, now_us=self.now_ns // 1_000)
            if self._service is None and not (self._is_client_full or self.delayed_until_ms):
                clock = self.account.listening.service
                self._service = clock.begin(may_wait=asked.may_wait, now_ns=self.now_ns)

    def _max_waiting_bytes(self) -> int:
        """Return how much may be kept of a request whose head is not whole.

        A follower's fetch is read to its end, and so is a login, a Produce that is to be refused, and a fetch that is
        to be answered without records.
        """
        if self.account.believes_replicas() or self._mutations is not None:
            return MAX_REPLICA_FETCH_BYTES
        if self._quota_requests is not None and self._quota_requests.is_coming:
            return 4 + MAX_QUOTA_REQUEST_BYTES
        if self._refuses_until_ms or self._place is not None:
            return 4 + MAX_REFUSED_BYTES
        return 2 * MAX_HEAD_BYTES if self._login is None else 4 + sasl.MAX_LOGIN_BYTES

    # -- logins --

    def _admit_login(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        """Read a SaslHandshake or SaslAuthenticate request, which must be whole, and let nothing pass behind it.

        A broker that wants no login charges it as any other request; its answer tells. A connection that may still be
        at its first login has nothing to charge: its user is not known, and ANONYMOUS would take a second bucket.
        """
        size_bytes, api_key, api_version, correlation_id, client_id, body = head
        sasl.check_login_size(size_bytes)
        login = self._login = self._login or Login()
        frame_end = position + 4 + size_bytes
        if frame_end > len(data):
            return None
        account, sent = self.account, None
        may_be_charged = account.is_known or login.principal is not None or login.is_out_of_place
        if may_be_charged and account.listening.quotas.limits_requests:
            sent = Sent(
                account.payers(client_id, now_ms), request_kind(api_key, api_version), self._identity(client_id)
            )
            self._let_go(now_ms)
            if self._waits(now_ms) or not self._may_ask(sent, size_bytes, now_ms):
                return None
        claim = account.listening.policy.oauthbearer_claim
        login.ask(api_key, api_version, memoryview(data)[body:frame_end], claim=claim)
        if sent is not None:
            sent.begin()
        self._in_flight.append((correlation_id, api_key, api_version, size_bytes, None, sent, 0))
        self._await_login()
        return NOTHING

    def _admit_token(self, data: bytes, position: int, login: Login) -> tuple[int, Change] | None:
        """Read a bare token, likewise; nobody knows whether one that is not understood will be answered."""
        size_bytes = sasl.read_token_size(data, position)
        if size_bytes is None or position + 4 + size_bytes > len(data):
            return None
        token = data[position + 4 : position + 4 + size_bytes]
        login.ask_raw(token, claim=self.account.listening.policy.oauthbearer_claim)
        if login.is_readable:
            self._await_login()
        return size_bytes, NOTHING

    def _await_login(self) -> None:
        self._most_in_flight = 0
        self._reads_responses = True
        self._habit = None  # what comes next is a token, or somebody else's

    def _conclude(self, login: Login, verdict: Verdict) -> None:
        """Go on after the broker's answer, as somebody if it said so."""
        self._most_in_flight = MAX_IN_FLIGHT
        self._reads_responses = login.is_raw or self.account.listening.addresses is not None
        if verdict is not Verdict.GOING_ON:
            self.account.listening.counters.login(login.mechanism, verdict.value)
        if verdict in (Verdict.ACCEPTED, Verdict.UNKNOWN) and login.principal is not None:
            self.account.log_in(login.principal)
