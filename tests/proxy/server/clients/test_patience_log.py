"""Tests the warning about requests that wait for longer than their clients do."""

import logging

import pytest

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.proxy.server.clients.patience_log import PatienceLog
from tests.support.frames import produce_request, produce_response
from tests.support.wire import Wire

RULE = QuotaRule(client_id="etl", producer_byte_rate=1_000.0, source="proxy.yaml:2")
# ``timeout_ms`` of ``produce_request`` is 30 s.
PAID_AFTER_MS = 40_000


def waiting(*, timeout_is_known: bool = True) -> Wire:
    """Return a connection whose Produce waits until a debt is paid, which takes longer than its client waits."""
    wire = Wire(RULE)
    wire.client(produce_request(1, size_bytes=10_000 + PAID_AFTER_MS))
    wire.broker(produce_response(1))
    wire.session.account.muted_until_ms = 0
    request = produce_request(2)
    wire.client(request if timeout_is_known else request[:25])
    return wire


def test_line_that_outlasts_its_clients_is_logged_with_rule_and_remedy(caplog: pytest.LogCaptureFixture) -> None:
    wire = waiting()
    impatient = wire.listening.counters.newly_impatient
    log = PatienceLog()

    with caplog.at_level(logging.WARNING):
        log.write(impatient, now_ms=wire.now_ms)
        log.write(impatient, now_ms=wire.now_ms + 299_999)

    (record,) = caplog.records
    assert "up to 40.0 s for user='' client-id='etl', and the clients give up after 30.0 s" in record.getMessage()
    assert "producer_byte_rate: limit 1000" in record.getMessage()
    assert "proxy.yaml:2" in record.getMessage()
    assert "request.timeout.ms" in record.getMessage()
    assert record.__dict__["event"] == "wait_exceeds_patience"
    assert (record.__dict__["wait_ms"], record.__dict__["patience_ms"]) == (40_000, 30_000)


def test_it_is_logged_again_after_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    wire = waiting()
    log = PatienceLog()

    with caplog.at_level(logging.WARNING):
        for at_ms in (0, 300_000):
            log.write(wire.listening.counters.newly_impatient, now_ms=wire.now_ms + at_ms)

    assert len(caplog.records) == 2


def test_short_waits_are_not_noted() -> None:
    wire = Wire(RULE)
    wire.client(produce_request(1, size_bytes=12_000))
    wire.broker(produce_response(1))
    wire.session.account.muted_until_ms = 0
    wire.client(produce_request(2))

    assert wire.session.state.blocked_by is not None
    assert not wire.listening.counters.newly_impatient
