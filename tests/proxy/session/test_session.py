"""What passes, what waits, what is charged: a session between a client, a broker and a clock."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule, Shaping
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.protocol.errors import FrameTooLarge, HeadTooLong, ProtocolError, UnexpectedResponse
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import EffectiveRules
from kafka_quota_proxy.proxy.session.counters import OTHER
from kafka_quota_proxy.proxy.session.in_flight import MAX_IN_FLIGHT
from tests.support.frames import (
    api_versions_response,
    fetch_request,
    fetch_response,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.rules_in_force import change, update
from tests.support.wire import Wire

PRODUCE_VERSIONS = range(14)
FETCH_VERSIONS = range(19)
AN_EXPIRY_MS = 1_800_000_000_000
A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


# -- without a quota: everything passes, at once and unchanged


def test_a_whole_request_passes_as_the_very_bytes_that_were_read() -> None:
    wire = Wire()
    request = produce_request()

    wire.session.receive_from_client(request, now_ms=wire.now_ms)

    assert wire.session.state.to_broker[0] is request


def test_a_body_passes_piece_by_piece_and_nothing_of_it_is_kept() -> None:
    wire = Wire()
    request = produce_request(size_bytes=1_000_000)

    passed = [wire.client(request[at : at + 65_536]) for at in range(0, len(request), 65_536)]

    assert [len(piece) for piece in passed] == [65_536] * 15 + [len(request) - 15 * 65_536]
    assert b"".join(passed) == request


def test_a_response_body_passes_piece_by_piece() -> None:
    wire = Wire()
    wire.client(fetch_request())
    response = fetch_response(size_bytes=1_000_000)

    passed = [wire.broker(response[at : at + 65_536]) for at in range(0, len(response), 65_536)]

    assert max(len(piece) for piece in passed) == 65_536
    assert b"".join(passed) == response


def test_a_head_waits_until_it_is_whole() -> None:
    wire = Wire()
    request = produce_request(version=9)

    assert wire.client(request[:20]) == b""
    assert not wire.session.state.is_blocked  # it waits for bytes, not for time
    assert wire.client(request[20:]) == request


def test_requests_are_sent_ahead_and_answered_in_order() -> None:
    wire = Wire()
    requests = [produce_request(1), fetch_request(2), other_request(3), produce_request(4)]
    responses = [produce_response(1), fetch_response(2), other_response(3), produce_response(4)]

    assert wire.client(b"".join(requests)) == b"".join(requests)
    assert wire.broker(*responses) == b"".join(responses)
    assert wire.session.is_idle


def test_traffic_without_a_quota_is_counted() -> None:
    wire = Wire()

    wire.client(produce_request(1, size_bytes=700), fetch_request(2))
    wire.broker(produce_response(1), fetch_response(2, size_bytes=900))

    assert (wire.bucket("produce").amount, wire.bucket("produce").requests) == (700, 1)
    assert (wire.bucket("fetch").amount, wire.bucket("fetch").requests) == (900, 1)


# -- the produce quota


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_spike_over_quota_waits_as_long_as_in_kafka(version: int) -> None:
    """Source: ClientQuotaManagerTest.testQuotaViolation, with a connection around it."""
    wire = Wire(A_TIGHT_RULE)
    for number in range(10):
        wire.client(produce_request(number, version=version, size_bytes=400))
        assert wire.broker(produce_response(number, version=version)) == produce_response(number, version=version)
        wire.wait(1_000)
    wire.wait(500)

    wire.client(produce_request(10, version=version, size_bytes=2_300))
    answer = wire.broker(produce_response(10, version=version))

    # (400 B * 10 + 2,300 B) / 10.5 s = 600 B/s; (600 - 500) / 500 * 10.5 s = 2.1 s
    assert answer == produce_response(10, version=version, throttle_time_ms=2_100)
    assert wire.muted_for_ms == 2_100


def test_a_muted_client_that_sends_all_the_same_waits() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))

    assert wire.client(produce_request(2), other_request(3)) == b""
    assert wire.session.state.is_blocked
    wire.wait(1_999)
    assert wire.to_broker() == b""
    wire.wait(1)
    assert wire.to_broker() == produce_request(2) + other_request(3)


def test_requests_sent_ahead_pass_while_the_bucket_has_room_for_all_of_them() -> None:
    wire = Wire(A_TIGHT_RULE)  # room for 5,000 bytes

    assert wire.client(*(produce_request(number, size_bytes=1_000) for number in range(6))) == b"".join(
        produce_request(number, size_bytes=1_000) for number in range(5)
    )
    assert wire.session.state.is_blocked


def test_over_its_room_a_client_has_one_request_at_the_broker_as_in_kafka() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(*(produce_request(number, size_bytes=5_000) for number in range(3)))

    assert wire.broker(produce_response(0)) == produce_response(0)
    assert wire.to_broker() == produce_request(1, size_bytes=5_000)
    assert wire.broker(produce_response(1)) == produce_response(1, throttle_time_ms=10_000)
    assert wire.to_broker() == b""
    wire.wait(10_000)
    assert wire.to_broker() == produce_request(2, size_bytes=5_000)


def test_the_room_is_shared_by_all_connections_of_a_bucket() -> None:
    wire = Wire(A_TIGHT_RULE)
    other = Wire(A_TIGHT_RULE)
    other.session.state.context = other.session.account.context = wire.listening

    wire.client(produce_request(1, size_bytes=4_000))

    assert other.client(produce_request(1, size_bytes=600)) != b""  # alone on its connection: as in Kafka it passes
    assert other.client(produce_request(2, size_bytes=600)) == b""


def test_lost_broker_gives_reservations_back() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=4_000))

    wire.session.close(now_ms=wire.now_ms, has_passed=False)

    assert wire.bucket().in_flight == 0
    assert wire.bucket().amount == 0


@pytest.mark.parametrize("acks_of_the_last", [0, 1])
def test_a_client_that_leaves_before_its_answer_pays_for_what_has_passed_whole(acks_of_the_last: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=1_000), produce_request(2, acks=acks_of_the_last, size_bytes=2_000)[:500])

    wire.session.close(now_ms=wire.now_ms, has_passed=True)

    assert wire.bucket().in_flight == 0
    assert wire.bucket().amount == 1_000


def test_without_acks_the_end_of_the_request_is_charged_and_mutes() -> None:
    wire = Wire(A_TIGHT_RULE)
    request = produce_request(1, acks=0, size_bytes=6_000)

    wire.client(request[:5_000])
    assert wire.bucket().amount == 0
    wire.client(request[5_000:])

    assert wire.bucket().amount == 6_000
    assert wire.muted_for_ms == 2_000
    assert wire.session.is_idle  # no answer is awaited


def test_a_flood_without_acks_in_one_read_is_stopped_at_the_request_that_is_too_much() -> None:
    wire = Wire(A_TIGHT_RULE)
    flood = [produce_request(number, acks=0, size_bytes=2_000) for number in range(50)]

    passed = wire.client(b"".join(flood))

    assert passed == b"".join(flood[:3])  # 6,000 B / 10 s is over 500 B/s
    wire.wait(2_000)
    assert wire.to_broker() == flood[3]


def test_the_answer_to_a_request_with_acks_is_not_taken_for_one_without() -> None:
    wire = Wire()
    wire.client(produce_request(1, acks=0), produce_request(2, acks=1), produce_request(3, acks=0), other_request(4))

    assert wire.broker(produce_response(2), other_response(4)) == produce_response(2) + other_response(4)


# -- the fetch quota


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_over_quota_is_delivered_charged_and_muted(version: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    charge = 6_000 if version < 12 else 5_999  # the tag section of the response's header is not charged

    wire.client(fetch_request(1, version=version))
    answer = wire.broker(fetch_response(1, version=version, size_bytes=6_000))

    wait_ms = (charge - 5_000) * 2
    assert answer == fetch_response(1, version=version, size_bytes=6_000, throttle_time_ms=wait_ms)
    assert wire.muted_for_ms == wait_ms
    assert wire.bucket("fetch").amount == charge


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_asks_for_no_more_than_the_quota_allows_in_a_window(version: int) -> None:
    """KAFKA-9677; section 4.3: limit * (N - 1) * W. Half of it: a whole window at once would be waited for too long."""
    wire = Wire(A_TIGHT_RULE)

    passed = wire.client(fetch_request(1, version=version, max_bytes=1_000_000, min_bytes=9_000))

    if version < 3:
        assert passed == fetch_request(1, version=version, max_bytes=1_000_000, min_bytes=9_000)
    else:
        assert passed == fetch_request(1, version=version, max_bytes=2_500, min_bytes=2_500)


def test_a_fetch_that_asks_for_less_is_left_alone() -> None:
    wire = Wire(A_TIGHT_RULE)
    request = fetch_request(max_bytes=2_499)

    wire.session.receive_from_client(request, now_ms=wire.now_ms)

    assert wire.session.state.to_broker[0] is request


def test_paced_a_fetch_asks_for_no_more_than_a_burst() -> None:
    wire = Wire(A_TIGHT_RULE, shaping=Shaping.PACED)

    assert wire.client(fetch_request(max_bytes=4_999)) == fetch_request(max_bytes=500)


def test_fetches_sent_ahead_go_one_at_a_time_under_a_limit() -> None:
    wire = Wire(A_TIGHT_RULE)

    assert wire.client(fetch_request(1, max_bytes=9), fetch_request(2, max_bytes=9)) == fetch_request(1, max_bytes=9)
    wire.broker(fetch_response(1, size_bytes=100))

    assert wire.to_broker() == fetch_request(2, max_bytes=9)


def test_a_heartbeat_is_not_held_behind_a_long_poll() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(fetch_request(1, max_bytes=9))

    assert wire.client(other_request(2, api_key=12, version=3)) == other_request(2, api_key=12, version=3)


@pytest.mark.parametrize(("brokers_ms", "told_ms"), [(0, 2_000), (1_999, 2_000), (2_001, 2_001), (9_000, 9_000)])
def test_of_the_brokers_throttle_time_and_ours_the_larger_counts(brokers_ms: int, told_ms: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(fetch_request(1))

    answer = wire.broker(fetch_response(1, size_bytes=6_000, throttle_time_ms=brokers_ms))

    assert answer == fetch_response(1, size_bytes=6_000, throttle_time_ms=told_ms)
    assert wire.muted_for_ms == told_ms


def test_within_the_quota_the_brokers_throttle_time_stays() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(fetch_request(1))

    assert wire.broker(fetch_response(1, throttle_time_ms=77)) == fetch_response(1, throttle_time_ms=77)


# -- how a client is slowed


def test_delay_holds_the_answer_and_then_gives_it() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(fetch_request(1), other_request(2))
    answers = fetch_response(1, size_bytes=6_000) + other_response(2)

    assert wire.broker(answers[:100], answers[100:3_000]) == b""
    assert wire.session.state.delayed_until_ms == wire.now_ms + 2_000
    assert wire.broker(answers[3_000:]) == b""
    wire.wait(1_999)
    assert wire.to_client() == b""
    wire.wait(1)
    assert wire.to_client() == fetch_response(1, size_bytes=6_000) + other_response(2)
    assert wire.session.is_idle


@pytest.mark.parametrize(("version", "told_ms"), [(5, 2_000), (6, 0)])
def test_held_answer_tells_its_throttle_time_only_to_a_client_that_does_not_wait_once_more(
    version: int, told_ms: int
) -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, version=version, size_bytes=6_000))
    wire.broker(produce_response(1, version=version))

    wire.wait(2_000)

    assert wire.to_client() == produce_response(1, version=version, throttle_time_ms=told_ms)


def test_held_answer_tells_the_brokers_own_throttle_time() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1, throttle_time_ms=70))

    wire.wait(2_000)

    assert wire.to_client() == produce_response(1, throttle_time_ms=70)


def test_delay_takes_up_no_request_until_the_answer_is_out() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))

    assert wire.client(other_request(2)) == b""
    wire.wait(2_000)
    assert wire.to_client() == produce_response(1)
    assert wire.to_broker() == other_request(2)


@pytest.mark.parametrize("version", [0, 7, 13])
def test_delay_takes_up_no_request_while_the_answer_comes_in_pieces(version: int) -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, version=version, size_bytes=6_000))
    response = produce_response(1, version=version)
    wire.client(produce_request(2, version=version))

    for at in range(len(response)):
        wire.broker(response[at : at + 1])
        assert wire.to_broker() == b"", at
    wire.client(produce_request(3, version=version))
    assert wire.to_broker() == b""
    wire.wait(2_000)

    assert wire.to_broker() == produce_request(2, version=version)


def test_delay_without_an_answer_mutes() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)

    wire.client(produce_request(1, acks=0, size_bytes=6_000))

    assert wire.muted_for_ms == 2_000


def test_delay_answers_what_came_before_the_held_answer() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(other_request(1), fetch_request(2))

    assert wire.broker(other_response(1) + fetch_response(2, size_bytes=6_000)) == other_response(1)


def test_observe_changes_no_byte_and_mutes_no_client() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.OBSERVE)

    assert wire.client(produce_request(1, size_bytes=6_000), fetch_request(2), fetch_request(3)) == (
        produce_request(1, size_bytes=6_000) + fetch_request(2) + fetch_request(3)
    )
    assert wire.broker(produce_response(1)) == produce_response(1)
    assert wire.muted_for_ms == 0
    assert wire.bucket().throttling.observed_time_ms == 2_000
    assert (wire.bucket().throttling.requests, wire.bucket().throttling.time_ms) == (0, 0)


def test_a_rule_may_observe_under_a_listener_that_enforces() -> None:
    wire = Wire(replace(A_TIGHT_RULE, enforcement=Enforcement.OBSERVE))
    wire.client(produce_request(1, size_bytes=6_000))

    assert wire.broker(produce_response(1)) == produce_response(1)


def test_a_throttle_time_is_bounded() -> None:
    wire = Wire(A_TIGHT_RULE, max_throttle_time_ms=25_000)
    wire.client(produce_request(1, size_bytes=1_000_000))

    assert wire.broker(produce_response(1)) == produce_response(1, throttle_time_ms=25_000)
    assert wire.muted_for_ms == 25_000


def test_of_two_waits_the_longer_counts() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=5_000), fetch_request(2))
    wire.broker(produce_response(1), fetch_response(2, size_bytes=7_000))
    assert wire.muted_for_ms == 4_000

    wire.session.account.mute(1_000, now_ms=wire.now_ms)

    assert wire.muted_for_ms == 4_000


# -- who pays


def test_another_client_id_in_mid_connection_charges_another_bucket() -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.client(produce_request(1, client_id="one"), produce_request(2, client_id="two", size_bytes=401))
    wire.broker(produce_response(1), produce_response(2))

    assert wire.bucket(client_id="one").amount == 400
    assert wire.bucket(client_id="two").amount == 401


def test_an_exempt_principal_is_not_throttled() -> None:
    wire = Wire(A_TIGHT_RULE, principals=Principals(exempt=frozenset({"ANONYMOUS"})))
    wire.client(produce_request(1, size_bytes=6_000))

    assert wire.broker(produce_response(1)) == produce_response(1)


@pytest.mark.parametrize("version", [11, 14, 15, 18])
def test_unbelieved_replica_id_pays_as_a_consumer(version: int) -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.client(fetch_request(1, version=version, replica_id=2))
    wire.broker(fetch_response(1, version=version, size_bytes=6_000))

    assert wire.bucket("fetch").amount > 0


@pytest.mark.parametrize("version", [3, 11, 14, 15, 18])
def test_a_follower_on_an_inter_broker_listener_pays_nothing(version: int) -> None:
    wire = Wire(A_TIGHT_RULE, is_inter_broker=True)
    request = fetch_request(1, version=version, replica_id=2)

    assert wire.client(request[:60], request[60:]) == request
    assert wire.broker(fetch_response(1, version=version, size_bytes=6_000)) == fetch_response(
        1, version=version, size_bytes=6_000
    )
    assert wire.bucket("fetch").amount == 0


@pytest.mark.parametrize("version", [3, 14, 15])
def test_a_consumer_on_an_inter_broker_listener_pays(version: int) -> None:
    wire = Wire(A_TIGHT_RULE, is_inter_broker=True)

    wire.client(fetch_request(1, version=version))
    wire.broker(fetch_response(1, version=version, size_bytes=6_000))

    assert wire.muted_for_ms > 0


def test_a_changed_rule_holds_from_the_next_request_on_and_keeps_what_was_used() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=5_000))
    assert wire.broker(produce_response(1)) == produce_response(1)

    update(
        wire.listening.quotas,
        replace(
            wire.config, quotas=(replace(A_TIGHT_RULE, limits={**A_TIGHT_RULE.limits, "producer_byte_rate": 250.0}),)
        ),
    )
    wire.client(produce_request(2, size_bytes=400))

    assert wire.broker(produce_response(2)) == produce_response(2, throttle_time_ms=11_600)  # (540 - 250) / 250 * 10 s


def _by_reload(wire: Wire) -> None:
    update(wire.listening.quotas, replace(wire.config, quotas=()))


def _by_time(wire: Wire) -> None:
    in_force = EffectiveRules(wire.config, name="", now_ms=wire.now_ms)
    changes = in_force.advance(9, now_ms=AN_EXPIRY_MS)
    assert changes is not None
    change(wire.listening.quotas, replace(wire.config, quotas=in_force.quotas), changes.rules)


@pytest.mark.parametrize("end", [_by_reload, _by_time])
def test_a_rule_that_ends_during_a_mute_leaves_that_mute_its_end(end: Callable[[Wire], None]) -> None:
    """As in Kafka, whose throttled channels wait for the time that they were given."""
    wire = Wire(replace(A_TIGHT_RULE, expires_ms=AN_EXPIRY_MS))
    wire.client(produce_request(1, size_bytes=6_000))
    assert wire.broker(produce_response(1)) == produce_response(1, throttle_time_ms=2_000)
    wire.wait(500)

    end(wire)

    assert wire.muted_for_ms == 1_500
    assert wire.client(produce_request(2, size_bytes=6_000)) == b""
    wire.wait(1_499)
    assert wire.to_broker() == b""
    wire.wait(1)
    assert wire.to_broker() == produce_request(2, size_bytes=6_000)
    assert wire.broker(produce_response(2)) == produce_response(2)


# -- what we do not know


def test_an_unknown_api_passes_and_is_counted() -> None:
    wire = Wire()

    assert wire.client(other_request(1, api_key=999, version=0)) == other_request(1, api_key=999, version=0)
    assert wire.broker(other_response(1)) == other_response(1)
    assert wire.listening.counters.unknown_apis == {999: 1}


def test_a_thousand_unknown_keys_do_not_make_a_thousand_labels() -> None:
    wire = Wire()

    for key in range(1_000, 2_000):
        wire.client(other_request(key, api_key=key))
        wire.broker(other_response(key))

    counted = wire.listening.counters.unknown_apis
    assert sum(counted.values()) == 1_000
    assert len(counted) < 100
    assert counted[OTHER] > 900


@pytest.mark.parametrize("acks", [0, 1])
def test_unknown_produce_version_is_charged(acks: int) -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.client(produce_request(1, version=14, acks=acks, size_bytes=6_000))
    if acks:
        wire.broker(produce_response(1, version=14))

    assert wire.muted_for_ms == 2_000
    assert wire.listening.counters.unknown_apis == {0: 1}


def test_announced_versions_are_narrowed_to_what_can_be_read() -> None:
    wire = Wire()
    wire.client(other_request(1, api_key=18, version=0))
    answer = api_versions_response(1, produce_max=99, fetch_max=99)

    assert wire.broker(answer[:20]) == b""
    assert wire.broker(answer[20:]) == api_versions_response(1, produce_max=13, fetch_max=18)


# -- hostile bytes


def test_an_answer_to_nothing_ends_the_connection() -> None:
    wire = Wire()

    with pytest.raises(UnexpectedResponse):
        wire.broker(other_response(1))


def test_an_answer_to_another_request_ends_the_connection() -> None:
    wire = Wire()
    wire.client(other_request(1))

    with pytest.raises(UnexpectedResponse):
        wire.broker(other_response(2))


def test_an_answer_to_another_request_reserves_nothing_for_ever() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=400), produce_request(2, size_bytes=400))

    with pytest.raises(UnexpectedResponse):
        wire.broker(produce_response(2))
    wire.session.close(now_ms=wire.now_ms, has_passed=False)

    assert wire.bucket().in_flight == 0


def test_a_request_that_its_client_cut_off_is_not_waited_for() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=400), produce_request(2, size_bytes=4_000)[:100])

    wire.session.receive_end_from_client()

    assert wire.bucket().in_flight == 400
    assert not wire.session.is_idle
    wire.broker(produce_response(1))
    assert wire.session.is_idle
    assert wire.bucket().in_flight == 0


def test_a_cut_off_request_without_acks_leaves_the_answers_before_it_to_come() -> None:
    wire = Wire()
    wire.client(other_request(1), produce_request(2, acks=0, size_bytes=4_000)[:100])

    wire.session.receive_end_from_client()

    assert not wire.session.is_idle
    wire.broker(other_response(1))
    assert wire.session.is_idle
    assert wire.bucket().amount == 0


def test_a_few_bytes_that_wait_do_not_keep_the_whole_read_in_memory() -> None:
    wire = Wire()
    requests = b"".join(produce_request(number, size_bytes=1_000) for number in range(200))

    wire.client(requests + produce_request(200)[:5])

    assert len(wire.session._requests._data) == 5


def test_requests_before_a_broken_frame_pass() -> None:
    wire = Wire(max_frame_size_bytes=1_000)

    with pytest.raises(FrameTooLarge):
        wire.client(produce_request(1, acks=0) + produce_request(2, size_bytes=1_001))

    assert wire.to_broker() == produce_request(1, acks=0)


def test_a_head_without_end_is_not_waited_for() -> None:
    wire = Wire()
    endless = other_request(1, api_key=3, version=12)[4:]
    header = endless[:8] + b"\x00\x01x" + b"\xff\x01" + b"\x00\xff\xff\x7f"  # tags whose first has 2 MiB

    with pytest.raises(HeadTooLong):
        wire.client((50_000_000).to_bytes(4, "big") + header, *([bytes(10_000)] * 30))


def test_a_client_that_never_reads_its_answers_is_held_at_a_number_of_requests() -> None:
    wire = Wire()

    passed = wire.client(b"".join(other_request(number) for number in range(10_000)))

    assert passed == b"".join(other_request(number) for number in range(MAX_IN_FLIGHT))
    wire.broker(other_response(0))
    assert wire.to_broker() == other_request(MAX_IN_FLIGHT)


@given(data=st.lists(st.binary(max_size=300), max_size=5))
def test_any_bytes_of_a_client_pass_or_are_a_protocol_error(data: list[bytes]) -> None:
    wire = Wire(A_TIGHT_RULE)

    with suppress(ProtocolError):
        wire.client(*data)


@given(data=st.lists(st.binary(max_size=300), max_size=5))
def test_any_bytes_of_a_broker_pass_or_are_a_protocol_error(data: list[bytes]) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(0), fetch_request(0), other_request(0, api_key=18, version=0))

    with suppress(ProtocolError):
        wire.broker(*data)


# -- however the bytes are cut


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if end > start]


_REQUESTS = st.lists(
    st.one_of(
        st.builds(
            produce_request,
            version=st.sampled_from(PRODUCE_VERSIONS),
            acks=st.sampled_from([0, 1, -1]),
            size_bytes=st.integers(100, 900),
            client_id=st.sampled_from(["etl", "", "x" * 50]),
        ),
        st.builds(fetch_request, version=st.sampled_from(FETCH_VERSIONS), max_bytes=st.sampled_from([100, 1_000_000])),
        st.builds(other_request, version=st.sampled_from([5])),
    ),
    min_size=1,
    max_size=6,
)


@given(requests=_REQUESTS, cuts=st.lists(st.integers(0, 10_000), max_size=8), byte_by_byte=st.booleans())
@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_requests_pass_alike_however_they_are_cut(
    enforcement: Enforcement, requests: list[bytes], cuts: list[int], byte_by_byte: bool
) -> None:
    stream = b"".join(requests)
    whole = Wire(A_TIGHT_RULE, enforcement=enforcement)
    cut = Wire(A_TIGHT_RULE, enforcement=enforcement)

    pieces = [bytes([byte]) for byte in stream] if byte_by_byte else _pieces(stream, cuts)

    assert cut.client(*pieces) == whole.client(stream)
    assert cut.session.state.is_blocked == whole.session.state.is_blocked
    assert cut.muted_for_ms == whole.muted_for_ms
    assert cut.bucket().amount == whole.bucket().amount


@given(
    versions=st.lists(
        st.tuples(st.sampled_from(["produce", "fetch", "other"]), st.integers(0, 13), st.integers(60, 3_000)),
        min_size=1,
        max_size=5,
    ),
    cuts=st.lists(st.integers(0, 20_000), max_size=8),
    byte_by_byte=st.booleans(),
)
@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_responses_pass_alike_however_they_are_cut(
    enforcement: Enforcement, versions: list[tuple[str, int, int]], cuts: list[int], byte_by_byte: bool
) -> None:
    requests, answers = [], []
    for number, (kind, version, size_bytes) in enumerate(versions):
        if kind == "produce":
            requests.append(produce_request(number, version=version, size_bytes=max(size_bytes, 100)))
            answers.append(produce_response(number, version=version))
        elif kind == "fetch":
            requests.append(fetch_request(number, version=version, max_bytes=100))
            answers.append(fetch_response(number, version=version, size_bytes=size_bytes))
        else:
            requests.append(other_request(number))
            answers.append(other_response(number, size_bytes=size_bytes))

    def answered(pieces: list[bytes]) -> tuple[bytes, int, int, int]:
        # The rule becomes tight once all has been asked, or only the first fetch would have been passed on.
        wire = Wire(enforcement=enforcement)
        wire.client(*requests)
        update(
            wire.listening.quotas,
            replace(
                wire.config, quotas=(replace(A_TIGHT_RULE, limits={**A_TIGHT_RULE.limits, "producer_byte_rate": 50.0}),)
            ),
        )
        for bucket in (wire.bucket("produce"), wire.bucket("fetch")):
            assert bucket.generation >= 0
        early = wire.broker(*pieces)
        wire.wait(3_000_000)
        return early + wire.to_client(), wire.muted_for_ms, wire.bucket().amount, wire.bucket("fetch").amount

    stream = b"".join(answers)
    pieces = [bytes([byte]) for byte in stream] if byte_by_byte else _pieces(stream, cuts)

    assert answered(pieces) == answered([stream])


# -- ends in good order --


def test_release_sends_a_held_response_and_ends_throttling() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, size_bytes=6_000) + produce_request(2, size_bytes=6_000))
    assert wire.broker(produce_response(1)) == b""

    wire.session.release(now_ms=wire.now_ms)

    assert wire.to_client() == produce_response(1)
    assert wire.to_broker() == produce_request(2, size_bytes=6_000)
    assert wire.broker(produce_response(2)) == produce_response(2)
    assert (wire.session.state.delayed_until_ms, wire.muted_for_ms) == (0, 0)


@pytest.mark.parametrize("acks", [0, 1])
def test_released_a_muted_clients_requests_pass_at_once(acks: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    ahead = [produce_request(number, acks=acks, size_bytes=3_000) for number in (2, 3, 4)]
    assert wire.client(*ahead) == b""

    wire.session.release(now_ms=wire.now_ms)

    assert wire.to_broker() == b"".join(ahead)
    assert not wire.session.state.is_blocked
    assert wire.bucket().amount == (
        15_000 if acks == 0 else 6_000
    )  # without an answer it is charged when it has passed


@pytest.mark.parametrize("enforcement", [Enforcement.DELAY, Enforcement.RESPOND])
def test_released_while_an_answer_comes_in_pieces_nothing_waits_behind_it(enforcement: Enforcement) -> None:
    """The answer had been charged, and slowed the client down when its end had come."""
    wire = Wire(A_TIGHT_RULE, enforcement=enforcement)
    wire.client(produce_request(1, size_bytes=6_000))
    response = produce_response(1)
    assert wire.broker(response[:12]) == b""
    assert wire.client(produce_request(2)) == b""

    wire.session.release(now_ms=wire.now_ms)

    assert len(wire.broker(response[12:])) == len(response)
    assert wire.to_broker() == produce_request(2)
    assert (wire.session.state.delayed_until_ms, wire.muted_for_ms, wire.session.state.is_blocked) == (0, 0, False)


def test_a_release_changes_nothing_for_who_is_not_slowed() -> None:
    wire = Wire()

    wire.session.release(now_ms=wire.now_ms)

    assert wire.client(produce_request()) == produce_request()
    assert wire.broker(produce_response()) == produce_response()


def test_at_the_end_what_has_begun_is_finished_and_nothing_more_is_taken_up() -> None:
    wire = Wire()
    request = produce_request(1, size_bytes=5_000)
    wire.client(request[:3_000])

    wire.session.take_no_more()

    assert not wire.session.is_idle
    assert wire.client(request[3_000:] + produce_request(2)) == request[3_000:]
    assert wire.session.state.is_blocked
    assert not wire.session.has_answered
    assert wire.broker(produce_response(1)) == produce_response(1)
    assert wire.session.is_idle
    assert wire.to_broker() == b""
    assert wire.session.wake_at_ms == 0
    assert wire.muted_for_ms == 0


def test_at_the_end_a_release_takes_up_nothing_more() -> None:
    """Found by fuzzing: its answer would have come when the client had been told that there are no more."""
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1))
    assert wire.client(produce_request(2)) == b""

    wire.session.take_no_more()
    wire.session.release(now_ms=wire.now_ms)

    assert wire.client(produce_request(3)) == b""
    assert wire.session.is_idle


def test_at_the_end_a_head_that_is_not_whole_is_not_waited_for() -> None:
    wire = Wire()
    wire.client(produce_request()[:9])

    wire.session.take_no_more()

    assert wire.session.is_idle


def test_who_is_owed_an_answer_is_not_idle_and_who_stalls_is() -> None:
    wire = Wire()
    request = produce_request(1, size_bytes=5_000)

    wire.client(request[:3_000])
    assert not wire.session.is_owed  # nobody waits for us
    wire.client(request[3_000:])
    assert wire.session.is_owed
    wire.broker(produce_response(1)[:12])
    assert wire.session.is_owed
    wire.broker(produce_response(1)[12:])
    assert not wire.session.is_owed
    wire.client(produce_request(2, acks=0, size_bytes=5_000)[:3_000])
    assert not wire.session.is_owed


def test_who_stalls_behind_a_request_is_owed_its_answer() -> None:
    wire = Wire()
    wire.client(produce_request(1) + produce_request(2)[:100])

    assert wire.session.is_owed
    wire.broker(produce_response(1))
    assert not wire.session.is_owed


def test_who_produces_without_acks_awaits_no_answers() -> None:
    wire = Wire()
    assert not wire.session.awaits_no_answers
    wire.client(produce_request(1))
    assert not wire.session.awaits_no_answers
    wire.client(produce_request(2, acks=0))
    assert wire.session.awaits_no_answers
    wire.client(fetch_request(3))
    assert not wire.session.awaits_no_answers


@given(
    kinds=st.lists(st.sampled_from(["produce", "acks0", "fetch", "other"]), min_size=1, max_size=6),
    cut=st.integers(0, 3_000),
    piece=st.integers(1, 700),
    is_limited=st.booleans(),
)
def test_wherever_it_ends_whole_requests_have_passed_and_those_that_had_come_are_among_them(
    kinds: list[str], cut: int, piece: int, is_limited: bool
) -> None:
    wire = Wire(*([A_TIGHT_RULE] if is_limited else []))
    requests = [
        {
            "produce": produce_request(number),
            "acks0": produce_request(number, acks=0, size_bytes=700),
            "fetch": fetch_request(number),
            "other": other_request(number),
        }[kind]
        for number, kind in enumerate(kinds)
    ]
    sent = b"".join(requests)
    passed = wire.client(sent[:cut])

    wire.session.release(now_ms=wire.now_ms)
    wire.session.take_no_more()
    passed += wire.to_broker()
    for at in range(cut, len(sent), piece):
        if wire.session.state.is_blocked:
            break  # the shell does not read on
        passed += wire.client(sent[at : at + piece])

    ends = [0, *accumulate(map(len, requests))]
    assert len(passed) in ends
    assert len(passed) >= max(end for end in ends if end <= cut)
    assert wire.bucket().in_flight == sum(
        len(request) - 4
        for request, end, kind in zip(requests, ends[1:], kinds, strict=True)
        if kind == "produce" and end <= len(passed)
    )
