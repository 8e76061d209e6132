"""From the broker to the client: what a response answers, what is charged for it, and what is changed in it."""

from collections.abc import Mapping
from contextlib import suppress
from struct import Struct
from typing import Final

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol import api_versions, sasl
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.api_versions import CEILINGS, VersionRange
from kafka_quota_proxy.protocol.errors import (
    FrameTooLarge,
    FrameTooSmall,
    ProtocolError,
    UnexpectedResponse,
)
from kafka_quota_proxy.protocol.metadata_query import FIRST_TOPIC_ID
from kafka_quota_proxy.protocol.node_endpoints import EndpointHider, has_no_endpoints
from kafka_quota_proxy.protocol.partial_frame import PartialFrame, bytes_to_wait_for
from kafka_quota_proxy.protocol.throttle_time import client_throttles_itself
from kafka_quota_proxy.proxy.client_quotas.api import VERSIONS
from kafka_quota_proxy.proxy.client_quotas.sources.forwarded_alter import PassingAlteration
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import QuotaKind
from kafka_quota_proxy.proxy.quota.request_time import NO_TIME
from kafka_quota_proxy.proxy.session.address_rewrite import ADDRESSED, MOVED, READABLE, may_name_leaders, streams
from kafka_quota_proxy.proxy.session.client_account import NOBODY
from kafka_quota_proxy.proxy.session.frame_edits import MAX_HELD_RESPONSE_BYTES, NOTHING, Change, response_change
from kafka_quota_proxy.proxy.session.request_charge import Sent, longest
from kafka_quota_proxy.proxy.session.requests import LEAST_EMPTY_MS, Requests
from kafka_quota_proxy.proxy.session.sasl_login import LOGIN_APIS
from kafka_quota_proxy.proxy.session.state import (
    API_VERSIONS,
    EXCHANGED,
    FETCH,
    MAX_IN_FLIGHT,
    PRODUCE,
    Answer,
    charged_bytes,
)

_RESPONSE_HEAD: Final = Struct(">ii").unpack_from  # size_bytes and correlation_id
_RESPONSE_HEAD_BYTES: Final = 8
# In the place of an api_key: a broker's bare token, behind a SaslHandshake v0.
_TOKEN: Final = -1
_LOGIN_ANSWERS: Final = LOGIN_APIS | {_TOKEN}
_METADATA: Final = int(ApiKey.METADATA)
_CHANGED: Final = (API_VERSIONS, EXCHANGED, _METADATA)  # whatever else there is to do
# So is its answer, of which 64 MiB are asked for at the most (in a session, where nothing lags, what he wants).
# What is longer is one enormous batch. Up to v2 there is no such limit, and each partition may bring its own.
MAX_EXCHANGED_BYTES: Final = 512 * 1024 * 1024


class Responses(Requests):
    """The broker's side of a session; what was asked behind it goes on from here."""

    __slots__ = ()

    def _pass_responses(self, data: bytes, start: int, now_ms: int) -> None:  # noqa: C901 - likewise
        """Pass on the responses that have come, from ``start`` on, and may pass; keep the rest."""
        end = len(data)
        position = start + self._response_left
        self._response_left = 0
        if self._hidden is not None:
            start = self._pass_hidden(data, start, position)
        while position < end:
            answer = self._answer
            if answer is None:
                if position + _RESPONSE_HEAD_BYTES > end or not self._in_flight:
                    answer = self._begin_token(data, position)
                    if answer is None:
                        break
                elif not self._most_in_flight and not sasl.has_error_code(data, position):
                    break
                else:
                    answer = self._begin_answer(data, position, now_ms)
            api_key, api_version, frame_bytes, wait_ms, is_delayed = answer
            if (
                wait_ms
                or api_key in _CHANGED
                or (self._reads_responses and not has_no_endpoints(data, position, frame_bytes, api_key, api_version))
            ):
                change = self._response_change(data, position, answer, now_ms)
                if change is None:
                    self._answer = answer
                    break
                self._answer = None
                begin, until, replacement = change or (position, position, b"")
                if is_delayed or self._hidden is not None:
                    self._response_left = frame_bytes + len(replacement) - (until - begin)
                    if replacement:
                        data = data[:begin] + replacement + data[until:]
                    if not is_delayed:
                        self.to_client.append(data[start:position])
                        self._pass_responses(data, position, now_ms)
                        return
                    self.delayed_until_ms = now_ms + wait_ms
                    self._stop_service()
                    break
                if replacement:
                    self.to_client += (data[start:begin], replacement)
                    start = until
                elif until > begin:  # it answers a question of ours
                    self.to_client.append(data[start:begin])
                    start = until
            position += frame_bytes
        if position > end:
            self._response_left = position - end
            position = end
        if position > start:
            self.to_client.append(data[start:position])
        if position < end:
            self._broker_data = data
            self._broker_at = position
            if not self.delayed_until_ms:
                begun = self._answer
                is_read_whole = begun is not None and begun[0] == EXCHANGED  # it may have many MB
                most_bytes = None if is_read_whole else MAX_HELD_RESPONSE_BYTES
                front = self._broker_data = data[position:]
                self._broker_at = 0
                self._broker_pieces = PartialFrame(front, bytes_to_wait_for(front, most_bytes=most_bytes))
        elif self._broker_data:
            self._broker_data = b""
        if self.is_blocked:
            self._pass_requests(self._client_data, self._client_at, now_ms)

    def _response_change(self, data: bytes, position: int, answer: Answer, now_ms: int) -> Change | None:
        """Return what to change in the response at ``position``; None if more bytes are needed to tell."""
        api_key, api_version, frame_bytes, wait_ms, is_delayed = answer
        if api_key == EXCHANGED:
            if frame_bytes > MAX_EXCHANGED_BYTES:
                raise FrameTooLarge(f"an answer of {frame_bytes} bytes, which is to be read whole, is not held")
            return self._exchanged(data, position, answer, now_ms)
        if self._reads_responses and api_key in _LOGIN_ANSWERS:
            return self._take_login_answer(data, position, answer)
        ceilings = CEILINGS if self.account.listening.addresses is None else READABLE
        change: Change = NOTHING
        if api_key == API_VERSIONS and self.account.listening.quotas.limits(QuotaKind.MUTATION):
            self._learn_versions(data, position, answer)
        if wait_ms or api_key == API_VERSIONS:
            own = self._own_versions() if api_key == API_VERSIONS else None
            told_ms = 0 if is_delayed and client_throttles_itself(api_key, api_version) else wait_ms
            throttle = response_change(data, position, frame_bytes, api_key, api_version, told_ms, ceilings, own)
            if throttle is None:
                return None
            change = throttle
        told = self._told(data, position, answer, change)
        if told is not None and change and wait_ms and not is_delayed and api_key != API_VERSIONS:
            # Where the broker's own throttle time is the larger, it is the one that the client was told.
            self.account.mute(int.from_bytes(change[2]), now_ms=now_ms)
        return told

    def _own_versions(self) -> Mapping[int, VersionRange] | None:
        """Return what of his the client, who may not have logged in by now, is answered here."""
        administration = self.account.listening.policy.administration
        is_answered = administration is not None and administration.is_answered_here(self.account.principal)
        return VERSIONS if is_answered else None

    def _told(self, data: bytes, position: int, answer: Answer, change: Change) -> Change | None:
        """Return ``change`` with what a response says of brokers changed as well, where clients come to this proxy."""
        api_key, api_version, frame_bytes, _, _ = answer
        addresses = self.account.listening.addresses
        if addresses is None or api_key not in ADDRESSED:
            hear = self.account.listening.hear
            if hear is not None and api_key == _METADATA:
                hear(data, position, api_version)
            return change
        if api_key not in MOVED:
            front = addresses.change(data, position, api_key, api_version)
            return None if front is None else _throttled(front, position, change)
        come_bytes = len(data) - position
        if not may_name_leaders(api_key, api_version):
            return change
        if streams(api_key, frame_bytes, come_bytes):
            self._hidden = EndpointHider(api_key, api_version)
            return change
        if come_bytes < frame_bytes:
            return None
        return addresses.moved(data, position, frame_bytes, api_key, api_version, change)

    def _exchanged(self, data: bytes, position: int, answer: Answer, now_ms: int) -> Change | None:
        """Replace an answer by what who awaits it makes of it; None if it is not whole."""
        _, api_version, frame_bytes, wait_ms, is_delayed = answer
        exchange = self._exchange
        if position + frame_bytes > len(data) or exchange is None:
            return None
        frame = exchange.answer(data, position, frame_bytes, now_ms=now_ms)
        addresses = self.account.listening.addresses
        if addresses is not None and self._exchange is self._follower and may_name_leaders(FETCH, api_version):
            told = addresses.moved(frame, 0, len(frame), FETCH, api_version, NOTHING)
            if told:
                frame = frame[: told[0]] + told[2] + frame[told[1] :]
        has_waited = is_delayed and client_throttles_itself(exchange.api_key, api_version)
        if wait_ms and frame and not has_waited:  # for other quotas; the longest is told
            throttle = response_change(frame, 0, len(frame), exchange.api_key, api_version, wait_ms)
            if throttle:
                frame = frame[: throttle[0]] + throttle[2] + frame[throttle[1] :]
        if isinstance(exchange, PassingAlteration):
            frame = self._until_it_holds(exchange, frame, is_delayed=is_delayed)
        return position, position + frame_bytes, frame

    def _until_it_holds(self, exchange: PassingAlteration, answer: bytes, *, is_delayed: bool) -> bytes:
        """Return an answer to who has changed quotas; nothing where it has to wait until the change holds here, too.

        One that is delayed for a quota goes its own way: the change holds when its time is over, or soon after.
        """
        self._most_in_flight = MAX_IN_FLIGHT
        requests = self._quota_requests
        ticket = None if is_delayed or requests is None else exchange.await_change(answer, self.owner)
        if ticket is None or requests is None:
            return answer
        requests.hold(ticket)
        self.is_blocked = True
        return b""

    def _learn_versions(self, data: bytes, position: int, answer: Answer) -> None:
        """See whether the broker could be asked for topics by their ids.

        It does not say so to who asks in a version that it does not know: nothing is to be learned from that.
        """
        _, api_version, frame_bytes, _, _ = answer
        if position + frame_bytes <= len(data):
            frame = data[position : position + frame_bytes]
            with suppress(ProtocolError):  # an answer that is none passes as it is
                newest = api_versions.highest_version(frame, api_version, ApiKey.METADATA)
                if newest is not None:
                    self.account.listening.finds_ids = newest >= FIRST_TOPIC_ID

    def _pass_hidden(self, data: bytes, start: int, position: int) -> int:
        """Pass on what has come of a response that streams, up to its end at ``position``; return up to where."""
        until = min(position, len(data))
        if self._hidden is not None:
            self.to_client.append(self._hidden.feed(data[start:until]))
            if until == position:
                self.to_client.append(self._hidden.end())
                self._hidden = None
        return until

    def _begin_answer(self, data: bytes, position: int, now_ms: int) -> Answer:
        """Find out what a response answers, and charge it.

        Produce is charged its request, Fetch and ShareFetch their response, when the response is ready.
        """
        response_bytes, correlation_id = _RESPONSE_HEAD(data, position)
        if response_bytes < 4:
            raise FrameTooSmall(f"a response of {response_bytes} bytes cannot hold a correlation_id")
        expected_id, api_key, api_version, size_bytes, bucket, sent, reserved_bytes = self._in_flight.pop(0)
        if expected_id != correlation_id:
            # A broker answers a connection's requests in their order. This one is still to be given back by close.
            self._in_flight.insert(0, (expected_id, api_key, api_version, size_bytes, bucket, sent, reserved_bytes))
            raise UnexpectedResponse(
                f"a response has correlation_id {correlation_id}, expected was {expected_id} "
                f"(api_key {api_key}, version {api_version})"
            )
        self.answered = api_key if self._exchange is None or api_key != EXCHANGED else self._exchange.api_key
        wait_ms = put_off_ms = 0
        is_login = api_key in LOGIN_APIS and not sasl.is_illegal_sasl_state(data, position, api_key, api_version)
        if is_login and sent is not None:
            sent.forget()  # a login is below the layer that charges
            self._end_service()
            sent = None
        if bucket is not None:
            if bucket.in_flight == reserved_bytes:
                bucket.in_flight = 0
            else:
                bucket.settle(reserved_bytes)
            if api_key == PRODUCE:
                wait_ms = bucket.charge(size_bytes, now_ms=now_ms)
                if bucket.line is not None:
                    bucket.line.end_request(size_bytes)
            else:
                fetched_bytes = charged_bytes(response_bytes, api_key, api_version)
                wait_ms, put_off_ms = self._end_fetch(bucket, fetched_bytes, now_ms)
        elif sent is None and self._call is not None:
            self._move_up(self._call)  # a question of ours: what it was for waits anew
        if sent is not None:
            bucket, wait_ms = self._settle(sent, bucket, wait_ms, size_bytes, response_bytes, now_ms)
        if wait_ms > 0 and bucket is not None:
            wait_ms = self.account.slow_down(bucket, wait_ms, now_ms=now_ms)
            self.account.asked_ms = now_ms
            if wait_ms and self.account.enforcement(bucket) is Enforcement.DELAY:
                return api_key, api_version, 4 + response_bytes, wait_ms, True
        return api_key, api_version, 4 + response_bytes, max(wait_ms, put_off_ms), False

    def _end_fetch(self, bucket: Bucket, fetched_bytes: int, now_ms: int) -> tuple[int, int]:
        """Charge the answer to a consumer.

        Returns:
            How long its bucket must be left alone for it, in milliseconds; and how long its client is to be silent if
            the answer is without records, for its turn in the bucket's line had not come. One of them is 0.
        """
        self._fetches_in_flight -= 1
        if not self._is_put_off:
            self._fetched_bytes = fetched_bytes
            wait_ms = bucket.charge(fetched_bytes, now_ms=now_ms)
            if wait_ms <= 0 and bucket.is_limited and not self.account.observes(bucket):
                wait_ms = bucket.spread_wait_ms(now_ms=now_ms)
            if bucket.line is not None:
                bucket.line.end_request(fetched_bytes)
            return wait_ms, 0
        self._is_put_off = False
        bucket.silence(bucket.charge(fetched_bytes, now_ms=now_ms), now_ms=now_ms)
        wait_ms = max(bucket.line_wait_ms(self._place, now_ms=now_ms), LEAST_EMPTY_MS)
        told_ms = self.account.put_off(bucket, wait_ms, now_ms=now_ms)
        if self._place is not None:
            self._place.line.step_aside(self._place, back_ms=now_ms + told_ms)
        return 0, told_ms

    def _settle(
        self, sent: Sent, bucket: Bucket | None, wait_ms: int, request_bytes: int, response_bytes: int, now_ms: int
    ) -> tuple[Bucket | None, int]:
        """Charge what a request is charged beside its bytes; return whose wait counts, and how long it is."""
        service, begun = NO_TIME, self._service
        if begun is not None:
            self._service = None
            service = begun[3].end(begun, now_ns=self.now_ns)
        call = self._call
        is_last = not self._in_flight
        if call is not None and sent.identity is not None:
            call.answered(sent.asked, sent.identity, service, request_bytes, response_bytes)
            if is_last and self._acks0 is None:
                call.end(self.now_ns // 1_000)
            else:
                self._move_up(call)
        if not is_last:
            self._begin_service()
        if sent.payers is NOBODY:
            return bucket, wait_ms
        scale = self.account.listening.quotas.request_time_scale
        charges = list(sent.settle(service, request_bytes, response_bytes, scale=scale, now_ms=now_ms))
        if bucket is not None:
            charges.insert(0, (bucket, wait_ms))
        return longest(self.account, charges, now_ms=now_ms) or (None, 0)

    # -- logins --

    def _take_login_answer(self, data: bytes, position: int, answer: Answer) -> Change | None:
        """Read the answer to a login's request, which passes as it is; None if more bytes are needed."""
        api_key, api_version, frame_bytes, _, _ = answer
        login = self._login
        if login is not None:
            sasl.check_login_size(frame_bytes - 4)
            if position + frame_bytes > len(data):
                return None
            frame = memoryview(data)[position : position + frame_bytes]
            if api_key == _TOKEN:
                self._conclude(login, login.answer_raw(bytes(frame[4:])))
            else:
                verdict = login.answer(api_key, api_version, frame[_RESPONSE_HEAD_BYTES:])
                login.renew(verdict, now_ms=self.now_ns // 1_000_000)
                self._conclude(login, verdict)
        return NOTHING

    def _begin_token(self, data: bytes, position: int) -> Answer | None:
        """Find out what a response is that answers no request, or is not there: a bare token, or nothing at all."""
        if self._login is not None and self._login.is_raw:
            token_bytes = sasl.read_token_size(data, position)
            return None if token_bytes is None else (_TOKEN, 0, 4 + token_bytes, 0, False)
        if position + _RESPONSE_HEAD_BYTES > len(data):
            return None
        correlation_id = _RESPONSE_HEAD(data, position)[1]
        raise UnexpectedResponse(f"a response with correlation_id {correlation_id} answers no request")


def _throttled(front: Change, position: int, throttle: Change) -> Change:
    """Return the change of a response's front, with its throttle time, which lies in there, changed as well."""
    if not front or not throttle:
        return front
    begin, until, replacement = front
    at = throttle[0] - position
    return begin, until, replacement[:at] + throttle[2] + replacement[at + 4 :]
