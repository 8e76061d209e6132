"""Tests that what a stopped proxy still has of its quotas and of the fair call queue is found."""

from kafka_quota_proxy.config.fair_call_queue_options import settings
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Ticket
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.open_connections import Identity
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue
from tests.proxy.quota.test_broker import CONFIG
from tests.simulation import leftovers


def test_buckets_places_and_open_connections_are_found() -> None:
    quotas = BrokerQuotas(CONFIG)
    bucket = quotas.bucket(QuotaKind.PRODUCE, principal="alice", client_id="etl", now_ms=0)
    assert [*leftovers.of_quotas(quotas)] == []

    quotas.hold(bucket)
    bucket.reserved.add(7, now_ms=0)
    quotas.line(bucket).wait(quotas.line(bucket).take(None))
    identity = Identity("alice", "etl")
    quotas.connections.enter(identity, quotas.connections.check(identity))

    found = "; ".join(leftovers.of_quotas(quotas))
    for part in ("counted as open", "1 lines", "holders", "7 are set aside", "1 places in its line"):
        assert part in found


def test_slots_that_are_in_use_are_found() -> None:
    queue = BrokerQueue(settings({"max_in_flight": 1}))
    first, second = Ticket("first"), Ticket("second")
    queue.dispatcher.ask(first, 0)
    queue.dispatcher.ask(second, 0)
    assert [*leftovers.slots_in_use(queue)] == ["fair call queue: 1 slots", "fair call queue: 1 waiting requests"]
    queue.dispatcher.leave(second, 1)
    queue.dispatcher.leave(first, 1)
    assert [*leftovers.slots_in_use(queue), *leftovers.slots_in_use(None)] == []
