"""Tests that a ShareFetch is charged to the quotas of consumers, as a Fetch is."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule, Shaping
from kafka_quota_proxy.proxy.quota.entity_usage import UsageTotals
from tests.protocol.support import kio_messages
from tests.support.frames import (
    other_response,
    share_fetch_request,
    share_fetch_response,
)
from tests.support.wire import Wire

SHARE_ACKNOWLEDGE = 79
VERSIONS = range(3)
# The quota allows 5,000 bytes in ten windows of a second.
A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, consumer_byte_rate=500.0)


@pytest.mark.parametrize("version", VERSIONS)
def test_share_fetch_over_quota_is_delivered_charged_and_muted(version: int) -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.client(share_fetch_request(1, version=version))
    answer = wire.broker(share_fetch_response(1, size_bytes=6_000))

    assert wire.muted_for_ms > 0
    assert answer == share_fetch_response(1, size_bytes=6_000, throttle_time_ms=wire.muted_for_ms)
    # The tag byte of the response's header is not charged.
    assert wire.bucket("fetch").usage.totals == UsageTotals(5_999, 1, 1, wire.muted_for_ms)


@pytest.mark.parametrize("version", [1, 2])
def test_share_fetch_that_is_held_tells_no_throttle_time(version: int) -> None:
    """From Kafka 4.4 on, a client waits for a throttle time that it is told, so it would wait twice."""
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)

    wire.client(share_fetch_request(1, version=version))
    assert wire.broker(share_fetch_response(1, size_bytes=6_000)) == b""
    wire.wait(60_000)

    assert wire.to_client() == share_fetch_response(1, size_bytes=6_000)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("shaping", "most"), [(Shaping.SAMPLED, 2_500), (Shaping.PACED, 500)])
def test_share_fetch_asks_for_no_more_than_the_quota_allows_in_a_window(
    version: int, shaping: Shaping, most: int
) -> None:
    wire = Wire(A_TIGHT_RULE, shaping=shaping)
    asked = share_fetch_request(1, version=version, max_bytes=1_000_000, min_bytes=9_000)

    passed = wire.client(asked)

    at = asked.index((1_000_000).to_bytes(4))  # in v0 each partition has such a limit too, which stays
    assert passed == asked[: at - 4] + most.to_bytes(4) * 2 + asked[at + 4 :]


@pytest.mark.parametrize("piece_bytes", [1, 7])
def test_share_fetch_in_pieces_is_capped(piece_bytes: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    request = share_fetch_request(1, max_bytes=1_000_000, min_bytes=9_000)

    pieces = [request[at : at + piece_bytes] for at in range(0, len(request), piece_bytes)]

    assert wire.client(*pieces) == share_fetch_request(1, max_bytes=2_500, min_bytes=2_500)


def test_share_fetch_that_is_only_observed_is_neither_capped_nor_muted() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.OBSERVE)
    request = share_fetch_request(1)

    assert wire.client(request) == request
    assert wire.broker(share_fetch_response(1, size_bytes=6_000)) == share_fetch_response(1, size_bytes=6_000)
    assert wire.muted_for_ms == 0
    assert wire.bucket("fetch").usage.throttling.observed_requests == 1


def test_acknowledgement_is_forwarded_while_a_share_fetch_waits_for_data() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(share_fetch_request(1, max_bytes=9))
    message = kio_messages.example(kio_messages.request_class(SHARE_ACKNOWLEDGE, 2))
    acknowledge = kio_messages.request_frame(message, correlation_id=2)

    assert wire.client(acknowledge) == acknowledge
    assert wire.broker(share_fetch_response(1), other_response(2))
    assert wire.bucket("fetch").usage.requests == 1


# The quota is 500 bytes a second, and the burst is a second.
PACED = QuotaRule(client_id=DEFAULT, consumer_byte_rate=500.0, shaping=Shaping.PACED)


def in_debt(size_bytes: int, *, enforcement: Enforcement = Enforcement.RESPOND) -> Wire:
    """Return a connection with a bucket that was charged ``size_bytes`` at once, and owes all but the burst."""
    wire = Wire(PACED, enforcement=enforcement)
    wire.client(share_fetch_request(1))
    wire.broker(share_fetch_response(1, size_bytes=size_bytes + 1))
    return wire


@pytest.mark.parametrize("version", VERSIONS)
def test_share_fetch_is_forwarded_without_room_for_records_if_its_turn_is_late(version: int) -> None:
    other = in_debt(5_500).beside()
    asked = share_fetch_request(2, version=version)

    passed = other.client(asked)

    limit = (50 * 1024 * 1024).to_bytes(4)
    emptied = share_fetch_request(2, version=version, max_wait_ms=0, min_bytes=0, max_records=0)
    # The first of these limits is that of the request. In v0 a partition has a limit too.
    assert passed == emptied.replace(limit, bytes(4), 1)
    assert len(passed) == len(asked)


def test_response_to_an_emptied_share_fetch_has_a_throttle_time() -> None:
    wire = in_debt(5_500)
    other = wire.beside()
    other.client(share_fetch_request(2))
    other.wait(3)

    answer = other.broker(share_fetch_response(2, size_bytes=61))

    # The debt is 5,000 bytes and the 60 bytes of this response.
    assert other.muted_for_ms == 10_000 - 3 + 120
    assert answer == share_fetch_response(2, size_bytes=61, throttle_time_ms=other.muted_for_ms)
    # Time in which both connections wait counts once.
    assert wire.bucket("fetch").usage.totals == UsageTotals(5_560, 2, 2, 3 + other.muted_for_ms)


def put_off(other: Wire) -> None:
    assert other.client(share_fetch_request(2)) != b""
    other.broker(share_fetch_response(2, size_bytes=61))
    assert other.muted_for_ms > 0


def test_share_fetch_postponed_first_has_its_turn_first() -> None:
    wire = in_debt(5_500)
    first, second = wire.beside(), wire.beside()
    put_off(first)
    put_off(second)
    for other in (second, first):
        other.wait(15_000)
    bucket = wire.bucket("fetch")
    bucket.silence(bucket.charge(700, now_ms=second.now_ms), now_ms=second.now_ms)

    for other in (second, first):
        assert other.client(share_fetch_request(3)) == b""
    for other in (second, first):
        other.now_ms += 450
        other.take_turn()

    assert first.to_broker() != b"" == second.to_broker()


def test_postponed_share_fetch_keeps_its_place_while_its_client_waits() -> None:
    wire = in_debt(5_500)
    first = wire.beside()
    put_off(first)
    line = wire.bucket("fetch").line
    assert line is not None

    line.sweep(now_ms=first.now_ms + first.muted_for_ms)

    assert len(line) == 1


def test_share_fetch_waits_and_gets_records_if_its_turn_is_in_time() -> None:
    other = in_debt(700).beside()
    assert other.client(share_fetch_request(2)) == b""

    other.wait(450)

    passed = other.to_broker()
    assert passed in {share_fetch_request(2, max_bytes=room) for room in range(1, 501)}


def test_share_fetch_that_only_renews_is_forwarded_at_once() -> None:
    """A broker refuses a request that renews and also asks for records (KIP-1222)."""
    other = in_debt(5_500).beside()
    renews = share_fetch_request(2, max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0)

    assert other.client(renews) == renews


def test_empty_response_does_not_lower_the_next_reservation() -> None:
    wire = Wire(PACED)
    other = wire.beside()
    other.client(share_fetch_request(1))
    other.broker(share_fetch_response(1, size_bytes=201))
    wire.client(share_fetch_request(2))
    wire.broker(share_fetch_response(2, size_bytes=5_501))
    other.client(share_fetch_request(3))
    other.broker(share_fetch_response(3, size_bytes=61))
    other.wait(other.muted_for_ms)

    other.client(share_fetch_request(4))

    assert wire.bucket("fetch").reserved.amount == 200


def test_postponed_share_fetch_is_charged_as_a_request() -> None:
    wire = Wire(PACED, QuotaRule(user=DEFAULT, request_rate=1_000.0))
    wire.client(share_fetch_request(1))
    wire.broker(share_fetch_response(1, size_bytes=5_501))
    other = wire.beside()
    other.client(share_fetch_request(2))
    other.broker(share_fetch_response(2, size_bytes=61))

    assert wire.bucket("request_rate").usage.requests == 2
    assert other.muted_for_ms >= 10_000
