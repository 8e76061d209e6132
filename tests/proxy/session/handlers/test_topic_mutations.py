"""Tests requests that create, grow and delete topics, from a user with a quota on them."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from struct import pack, unpack_from
from uuid import UUID

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, KafkaSettings, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import FrameTooLarge, ProtocolError, UnknownVersion
from kafka_quota_proxy.protocol.topic_mutations import THROTTLING_QUOTA_EXCEEDED, read_response
from kafka_quota_proxy.proxy.session import Session
from tests.support.controller import Controller, create, delete, grow
from tests.support.frames import api_versions_response, framed, other_request, other_response, request_header
from tests.support.wire import Wire

TEN = QuotaRule(user=DEFAULT, controller_mutation_rate=10.0)
CREATE, DELETE, GROW, METADATA = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.METADATA


class Bed:
    """A client, a session and a controller. The burst is 100, which is ten windows of a second."""

    def __init__(self, rule: QuotaRule = TEN, *, num_partitions: int = 1, **topics: int) -> None:
        self.wire = Wire(rule, kafka=KafkaSettings(controller_quota_window_num=10, num_partitions=num_partitions))
        self.controller = Controller(**topics)

    def ask(self, request: bytes) -> dict[str, int]:
        """Send a request, and let the controller answer what the proxy asks. Return the error of each topic."""
        passes = self.wire.client(request)
        answer = self.wire.to_client()
        while passes:
            answer += self.wire.broker(self.controller.answers(passes))
            passes = self.wire.to_broker()
        assert unpack_from(">i", answer)[0] == len(answer) - 4  # exactly one response
        assert answer[4:8] == request[8:12]
        response = read_response(answer, *unpack_from(">hh", request, 4))
        assert response.throttle_time_ms == self.wire.muted_for_ms
        return {(result.name or b"").decode(): result.error_code for result in response.results}

    @property
    def tokens(self) -> float:
        bucket = self.wire.bucket("mutation")
        return next(left for left in range(-2_000, 2_000) if not bucket.has_room(left + 1, now_ms=self.wire.now_ms))


def test_topics_within_the_quota_are_forwarded_and_the_rest_is_refused() -> None:
    """Source: Kafka's ControllerMutationQuotaManagerTest.testControllerMutationQuotaViolation (V38)."""
    bed = Bed()
    for number in range(10):
        assert bed.ask(create((f"t{number}", 10))) == {f"t{number}": 0}
        assert bed.wire.muted_for_ms == 0
        bed.wire.wait(1_000)

    assert bed.ask(create(("large", 110))) == {"large": 0}
    assert bed.wire.muted_for_ms == 0
    assert bed.tokens == -10

    assert bed.ask(create(("larger", 110))) == {"larger": THROTTLING_QUOTA_EXCEEDED}
    assert bed.wire.muted_for_ms == 1_000
    assert "larger" not in bed.controller.topics
    bed.wire.wait(1_000)
    assert bed.ask(create(("larger", 110))) == {"larger": 0}


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_clients_that_lack_the_error_code_wait_after_the_response(version: int) -> None:
    bed = Bed()

    assert set(bed.ask(create(*((f"t{number}", 60) for number in range(4)), version=version)).values()) == {0}

    assert bed.wire.muted_for_ms == 14_000  # 240 - 100 tokens at 10 a second


def test_growth_is_charged_the_added_partitions() -> None:
    bed = Bed(one=30)

    assert bed.ask(grow(("one", 50))) == {"one": 0}

    assert bed.controller.asked == [METADATA, GROW]
    assert bed.tokens == 80


def test_topics_are_found_by_id_if_the_broker_supports_ids() -> None:
    bed = Bed(one=30)
    topic_id = bed.controller.ids["one"]
    bed.wire.client(other_request(1, api_key=ApiKey.API_VERSIONS, version=0))
    bed.wire.broker(api_versions_response(1))  # the broker supports Metadata up to v77

    assert bed.ask(delete(topic_id)) == {"one": 0}

    assert bed.controller.asked == [METADATA, DELETE]
    assert bed.tokens == 70


def test_topic_known_by_id_only_counts_as_one_partition() -> None:
    bed = Bed(one=30)

    assert bed.ask(delete(bed.controller.ids["one"])) == {"one": 0}

    assert bed.controller.asked == [DELETE]
    assert bed.tokens == 99


def test_default_partitions_are_read_from_the_response() -> None:
    bed = Bed()

    bed.ask(create(("one", -1)))

    assert bed.tokens == 97


@pytest.mark.parametrize("version", [5, 7])
def test_enforcement_begins_without_the_debt_of_the_time_before(version: int) -> None:
    bed = Bed(replace(TEN, enforcement=Enforcement.OBSERVE))
    for number in range(4):
        bed.ask(create((f"t{number}", 600), version=version))
    bed.wire.bucket("mutation").enforcement = Enforcement.RESPOND

    assert [bed.ask(create((f"new{number}", 60), version=version)) for number in range(2)] == [{"new0": 0}, {"new1": 0}]


_UNREADABLE = {
    "newer": framed(request_header(CREATE, 99, 1, "etl", is_flexible=True) + bytes(50)),
    "malformed": framed(request_header(CREATE, 4, 1, "etl", is_flexible=False) + pack(">i", 2**31 - 1)),
    "long": framed(request_header(CREATE, 4, 1, "etl", is_flexible=False) + bytes(4 * 1024 * 1024 + 1)),
}


@pytest.mark.parametrize("request_", _UNREADABLE.values(), ids=_UNREADABLE.keys())
def test_observed_requests_that_cannot_be_read_pass_unchanged(request_: bytes) -> None:
    bed = Bed(replace(TEN, enforcement=Enforcement.OBSERVE))

    assert bed.wire.client(request_) == request_
    assert bed.wire.broker(other_response(1)) == other_response(1)

    with pytest.raises(ProtocolError):
        Bed().wire.client(request_)


def test_observed_response_that_cannot_be_read_passes_unchanged() -> None:
    bed = Bed(replace(TEN, enforcement=Enforcement.OBSERVE))
    bed.wire.client(create(("t", 60)))
    broken = framed(pack(">i", unpack_from(">i", create(("t", 60)), 8)[0]) + b"\xff" * 20)

    assert bed.wire.broker(broken) == broken
    assert bed.tokens == 40


def test_unlimited_client_requests_are_not_read() -> None:
    bed = Bed(QuotaRule(user="another", controller_mutation_rate=10.0), one=30)
    request = delete("one")

    assert bed.wire.client(request[:-1]) == request[:-1]


@pytest.mark.parametrize("api_key", [CREATE, DELETE, GROW])
def test_unoffered_version_does_not_bypass_the_limit(api_key: ApiKey) -> None:
    bed = Bed()

    with pytest.raises(UnknownVersion):
        bed.wire.client(framed(request_header(api_key, 99, 1, "etl", is_flexible=True) + bytes(50)))


def test_enormous_request_is_not_buffered() -> None:
    bed = Bed()
    request = request_header(CREATE, 7, 1, "etl", is_flexible=True)

    with pytest.raises(FrameTooLarge):
        bed.wire.client((5_000_000).to_bytes(4) + request + bytes(50))


def test_connection_closed_during_a_broker_query_leaves_no_state() -> None:
    bed = Bed(one=30)
    bed.wire.client(delete("one"))

    bed.wire.session.close(now_ms=bed.wire.now_ms, has_passed=True)

    assert bed.tokens == 100


def test_response_has_the_longer_of_two_throttle_times() -> None:
    bed = Bed(replace(TEN, limits={**TEN.limits, "request_rate": 1.0}))
    waits = []

    for number in range(20):
        bed.ask(create((f"t{number}", 1)))  # asserts that the throttle time equals the mute
        waits.append(bed.wire.muted_for_ms)
        bed.wire.wait(waits[-1])
    assert max(waits) > 0

    bed.wire.wait(60_000)
    for number in range(5):
        bed.ask(create((f"more-{number}", 22)))
    assert bed.ask(create(("last", 1))) == {"last": THROTTLING_QUOTA_EXCEEDED}
    assert bed.wire.muted_for_ms == 1_000


def test_delete_topics_behind_a_partial_response_queries_the_broker_afterwards() -> None:
    bed = Bed(one=30)
    answer = bed.controller.answers(bed.wire.client(create(("two", 5)), delete("one")))

    assert bed.wire.broker(answer[:20]) == b""
    assert bed.wire.to_broker() == b""
    assert bed.wire.broker(answer[20:]) == answer
    question = bed.wire.to_broker()
    assert bed.wire.broker(bed.controller.answers(question)) == b""
    assert bed.wire.broker(bed.controller.answers(bed.wire.to_broker())) != b""
    assert bed.tokens == 100 - 5 - 30


def knows_ids(bed: Bed) -> None:
    bed.wire.client(other_request(1, api_key=ApiKey.API_VERSIONS, version=0))
    bed.wire.broker(api_versions_response(1))  # the broker supports Metadata up to v77


def test_names_and_ids_in_one_request_are_queried_separately() -> None:
    """A broker that is asked for both returns only the ids (``KafkaApis.handleTopicMetadataRequest``)."""
    bed = Bed(one=30, two=40)
    knows_ids(bed)

    assert bed.ask(delete("one", bed.controller.ids["two"], UUID(int=99))) == {"one": 0, "two": 0, "": 3}

    assert bed.controller.asked == [METADATA, METADATA, DELETE]
    assert bed.tokens == 30


def test_default_partitions_are_read_from_the_configuration() -> None:
    bed = Bed(num_partitions=6)

    bed.ask(create(("one", -1), version=4))

    assert bed.tokens == 94


def new_connection(bed: Bed) -> Wire:
    """Return another connection of the same client."""
    wire = copy(bed.wire)
    wire.session = Session(wire.listening, owner=wire)
    return wire


def test_a_stalled_request_delays_others_for_as_long_as_its_partitions_take() -> None:
    """A request of 400 partitions at 10 a second delays others for 40 seconds, and is charged however late it ends."""
    bed = Bed()
    stalled, old = new_connection(bed), new_connection(bed)
    request = create(("stalled", 400), version=4)
    stalled.client(request)
    next_request = create(("next", 5), version=4)
    assert old.client(next_request) == b""

    old.wait(39_999)
    assert old.to_broker() == b""
    bed.wire.wait(39_999)
    assert bed.ask(create(("new", 5))) == {"new": THROTTLING_QUOTA_EXCEEDED}
    old.wait(1)
    assert old.to_broker() == next_request
    old.broker(bed.controller.answers(next_request))
    stalled.wait(40_000)
    stalled.broker(bed.controller.answers(request))

    assert bed.wire.bucket("mutation").usage.amount == 400 + 5


def test_debt_holds_no_request_back_during_a_stop() -> None:
    bed = Bed()
    new_connection(bed).client(create(("large", 300), version=4))
    request = create(("next", 5), version=4)
    assert bed.wire.client(request) == b""

    bed.wire.session.release(now_ms=bed.wire.now_ms)

    assert bed.wire.to_broker() == request


@pytest.mark.parametrize("version", [4, 7])
def test_a_request_that_was_never_sent_is_not_charged(version: int) -> None:
    bed = Bed()
    bed.wire.session.receive_from_client(create(("one", 60), ("two", 30), version=version), now_ms=bed.wire.now_ms)
    assert bed.tokens == 10

    bed.wire.session.close(now_ms=bed.wire.now_ms, has_passed=False)  # the dial has failed

    assert bed.tokens == 100
    assert bed.wire.bucket("mutation").usage.totals[:2] == (0, 0)


@pytest.mark.parametrize("has_passed", [True, False])
def test_a_request_that_was_sent_is_charged_without_an_answer(has_passed: bool) -> None:
    """Even if the broker is lost, it may have made the change."""
    bed = Bed()
    bed.wire.client(create(("one", 60)))

    bed.wire.session.close(now_ms=bed.wire.now_ms, has_passed=has_passed)

    assert bed.tokens == 40
    assert bed.wire.bucket("mutation").usage.amount == 60
    assert bed.wire.bucket("mutation").reserved.amount == 0


def test_a_request_is_charged_if_its_answer_cannot_be_read() -> None:
    bed = Bed()
    bed.wire.client(create(("one", 60)))

    with pytest.raises(ProtocolError):
        bed.wire.broker(framed(bytes.fromhex("00000007") + b"\xff" * 20))
    bed.wire.session.close(now_ms=bed.wire.now_ms, has_passed=True)

    assert bed.wire.bucket("mutation").usage.amount == 60
    assert bed.wire.bucket("mutation").reserved.amount == 0
