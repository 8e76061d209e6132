"""One client's connection, without I/O: bytes and the time in; out, what to write and whether to go on reading.

The shell hands over what it read (``receive_from_client``, ``receive_from_broker``), calls ``handle_timer`` at
``wake_at_ms``, and after each of them writes ``to_broker`` and ``to_client``, clears them, and reads each side or not
as ``is_blocked`` and ``delayed_until_ms`` say.

A body passes without being kept: a request waits here until its head has come, a response until its throttle time can
be written. What a client sent ahead ``is_blocked`` for one of these reasons:

* it is muted: it was over its quota, and ``muted_until_ms`` has not come;
* its next request would go over the quota while earlier ones are unanswered. A broker takes one request of a connection
  at a time. So do we where it matters; where it does not, requests are sent ahead and nobody waits for us;
* the bucket of its next request is in debt, or others are in front of it in the bucket's line (``proxy.quota.line``);
* too many requests are unanswered, or one of a login is: who pays for the next one depends on it;
* a queue stands in front of the broker, and it is not its turn (``proxy.fair_queue.connection_queue``);
* its client does not take its answers, and somebody is charged for more than its bytes, or waits in that queue;
* it is a follower's fetch of which nothing may flow now (``proxy.replication``), or is about topics of which the broker
  has to be asked something first (``proxy.session.topic_mutations``).

Source of the order of things: ``KafkaApis.handleProduceRequest`` and ``handleFetchRequest``; KIP-219.
"""

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.counters import FAILED
from kafka_quota_proxy.proxy.session.responses import Responses
from kafka_quota_proxy.proxy.session.state import PRODUCE
from kafka_quota_proxy.proxy.session.unanswered import Unanswered, is_awaited


class Session(Responses):
    """One client connection. Not to be used further after it raised ``ProtocolError``."""

    __slots__ = ()

    def receive_from_client(self, data: bytes, *, now_ms: int) -> None:
        """Take what the client sent.

        Raises:
            ProtocolError: this is not Kafka's protocol; write ``to_broker`` and close.
        """
        left = self._request_left
        if left:
            if len(data) < left:
                self._request_left = left - len(data)
                self.to_broker.append(data)
                return
            self._request_left = 0
            self.to_broker.append(data[:left])
            self._end_request(now_ms)
            self._pass_requests(data, left, now_ms)
        elif self._client_data:
            if self._client_pieces is None:
                data = self._client_data[self._client_at :] + data
            elif data := self._client_pieces.add(data):
                self._client_pieces = None
            else:
                return
            self._pass_requests(data, 0, now_ms)
        else:
            self._pass_requests(data, 0, now_ms)

    def receive_from_broker(self, data: bytes, *, now_ms: int) -> None:
        """Take what the broker sent.

        Raises:
            ProtocolError: this answers nothing that was asked; close.
        """
        if self._broker_data:
            if self._broker_pieces is None:
                data = self._broker_data[self._broker_at :] + data
            elif data := self._broker_pieces.add(data):
                self._broker_pieces = None
            else:
                return
            if self.delayed_until_ms:
                self._broker_data = data
                self._broker_at = 0
                return
        elif self._response_left > len(data):
            self._response_left -= len(data)
            if self._hidden is not None:
                data = self._hidden.feed(data)
            self.to_client.append(data)
            return
        self._pass_responses(data, 0, now_ms)

    def handle_timer(self, *, now_ms: int) -> None:
        """Go on with what has waited long enough."""
        if self.delayed_until_ms and now_ms >= self.delayed_until_ms:
            self.delayed_until_ms = 0
            self._begin_service()
            self._pass_responses(self._broker_data, self._broker_at, now_ms)
        elif self.is_blocked:
            self._held_until_ms = 0
            self._pass_requests(self._client_data, self._client_at, now_ms)

    def resume(self, *, now_ms: int) -> None:
        """Go on with what waited for its turn, or for its client. Raises as ``handle_timer``."""
        if self.is_blocked:
            self._pass_requests(self._client_data, self._client_at, now_ms)
        if self._call is not None and not self._in_flight and not self._request_left:
            self._call.leave_unused(self.now_ns // 1_000)  # it waits for something else now, or is to end

    def release(self, *, now_ms: int) -> None:
        """Go on with what waits for its throttle time, and let nothing wait from now on. Raises as ``handle_timer``."""
        self.account.release()
        self._refuses_until_ms = 0
        if self._follower is not None:
            self._follower.release()
        if self.is_ending:
            self.take_no_more()
        if self._answer is not None:
            self._answer = (*self._answer[:4], False)  # charged already; the client is told, and not held up
        self.delayed_until_ms = min(self.delayed_until_ms, now_ms)
        self.handle_timer(now_ms=now_ms)

    def pause_answers(self) -> None:
        """Take it that the client does not take its answers, and the broker is not read."""
        self._is_client_full = True
        self._stop_service()

    def resume_answers(self) -> None:
        """Take it that the client takes its answers again; what waits here goes on with ``resume``."""
        self._is_client_full = False
        self._begin_service()

    def restart_service(self) -> None:
        """Take it that the broker has what was asked only now: it had to be dialled first."""
        if self._service is not None:
            self._end_service()
            self._begin_service()

    def receive_end_from_client(self) -> None:
        """Take it that the client sends no more: a request that it cut off will not be answered."""
        if self._request_left:
            self._request_left = 0
            # Behind it nothing was taken up, and what came before it is answered first.
            if self._acks0 is None and self._in_flight:
                *_, bucket, sent, reserved_bytes = self._in_flight.pop()
                if bucket is not None:
                    bucket.settle(reserved_bytes)
                    if bucket.line is not None:
                        bucket.line.wake_first()
                if sent is not None:
                    sent.forget()
                    self._charge_turn(sent)
            self._forget_acks0(had_turn=True)
            if not self._in_flight:
                self._leave_queue()

    def close(self, *, now_ms: int, has_passed: bool) -> Unanswered | None:
        """Settle what will not be answered any more, but for fetches that are charged when the broker has answered.

        Args:
            now_ms: when the connection ended.
            has_passed: whether it was not the broker that left, and it has got all that was passed on. Kafka charges a
                request whose client did not wait for the answer, too; else a client that resets its connections never
                pays.

        Returns:
            What the broker's answers are to be given to from now on; None: nothing awaits them.
        """
        is_cut_off = self._request_left and self._acks0 is None
        whole = self._in_flight[:-1] if is_cut_off else self._in_flight
        unanswered = None
        if has_passed and any(map(is_awaited, whole)):
            begun, skip_bytes = self._unread()
            unanswered = Unanswered(self.account, whole, begun=begun, skip_bytes=skip_bytes)
        for index, flight in enumerate(self._in_flight):
            _, api_key, _, size_bytes, bucket, sent, reserved_bytes = flight
            is_charged = has_passed and index < len(whole)
            if bucket is not None and not (is_charged and is_awaited(flight)):
                bucket.settle(reserved_bytes)
                if is_charged and api_key == PRODUCE:
                    self._silence(bucket, bucket.charge(size_bytes, now_ms=now_ms), now_ms)
            if sent is not None:
                service = self._end_service()  # nothing for those behind the first
                if has_passed:
                    self._charge_turn(sent, service)
                scale = self.account.listening.quotas.request_time_scale
                for payer, wait_ms in (
                    sent.settle(service, size_bytes, 0, scale=scale, now_ms=now_ms) if is_charged else sent.forget()
                ):
                    self._silence(payer, wait_ms, now_ms)
        self._forget_acks0(had_turn=has_passed)
        self._wake_lines()
        self._leave_line()
        self._in_flight.clear()
        if self._follower is not None:
            self._follower.close()
        if self._quota_requests is not None:
            self._quota_requests.close()
        self._leave_queue()
        if self._login is not None and self._login.is_awaited:
            self.account.listening.counters.login(self._login.mechanism, FAILED)
        self.account.close(now_ms=now_ms)
        return unanswered

    def _unread(self) -> tuple[bytes, int]:
        """Return what of the broker's answers has come and waits here, and how much of an answer has been taken up."""
        begun = self._broker_data[self._broker_at :] if self._broker_pieces is None else self._broker_pieces.join()
        return begun, self._response_left if self._answer is None else self._answer[2]

    def _wake_lines(self) -> None:
        """Have those look again that wait for what this connection has in flight."""
        for flight in self._in_flight:
            bucket = flight[4]
            if bucket is not None and bucket.line is not None:
                bucket.line.wake_first()

    def _forget_acks0(self, *, had_turn: bool) -> None:
        """Charge nobody for a Produce that will have no answer and has not wholly passed, but for the turn it had."""
        if self._acks0 is not None:
            bucket, size_bytes, sent = self._acks0
            self._acks0 = None
            bucket.settle(size_bytes)
            if bucket.line is not None:
                bucket.line.wake_first()
            if sent is not None:
                sent.forget()
                if had_turn:
                    self._charge_turn(sent)

    def _silence(self, bucket: Bucket, wait_ms: int, now_ms: int) -> None:
        if wait_ms > 0 and not self.account.observes(bucket):
            bucket.silence(wait_ms, now_ms=now_ms)
