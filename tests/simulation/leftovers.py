"""What a proxy that has stopped has not given back."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafka_quota_proxy.proxy.fair_queue.connection_queue import HeldSlot
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue
from kafka_quota_proxy.proxy.server.server import Server

if TYPE_CHECKING:
    from tests.simulation.process import Process


def of_process(process: "Process") -> Iterator[str]:
    """Yield the descriptors, connections, timers and threads that a process still has."""
    yield from (f"descriptor {number}" for number in process.descriptors)
    yield from (f"transport to {transport.end.remote}" for transport in process.transports)
    yield from (f"timer {timer}" for timer in process.loop.open_timers)
    yield from (f"thread {thread.name}" for thread in process.threads if thread.is_alive())


def of_server(server: Server) -> Iterator[str]:
    """Yield what connections that are gone still have in a server."""
    for listener in server.listeners:
        open_count = listener.open_count
        if open_count.total or open_count._by_host or listener.connections or listener.broker_count:
            yield f"listener {listener.name}: {open_count.total} connections"
    for broker in server.brokers.registry.brokers:
        yield from slots_in_use(broker.queue)
        yield from of_quotas(broker.quotas)


def slots_in_use(queue: BrokerQueue | None) -> Iterator[str]:
    """Yield what connections that are gone still have in the fair call queue of a broker."""
    if queue is None:
        return
    dispatcher = queue.dispatcher
    for holder in [one for one in queue._timeouts._at_us if isinstance(one, HeldSlot)]:
        queue._timeouts.discard(holder)  # the broker may still work on a Produce with acks=0
        holder.time_out(0)
    counts = {
        "slots": dispatcher.in_flight,
        "control slots": dispatcher.control_in_flight,
        "waiting requests": len(dispatcher.queue),
        "waiting control requests": dispatcher.control_waiting,
        "deadlines": len(queue._timeouts),
    }
    yield from (f"fair call queue: {number} {name}" for name, number in counts.items() if number)


def of_quotas(quotas: BrokerQuotas) -> Iterator[str]:
    """Yield what connections that are gone still have of the quotas of a broker: buckets, places and reservations."""
    if quotas.connections._by_identity or quotas.connections._by_tags:
        yield f"connections counted as open: {quotas.connections._by_identity}"
    if quotas.lines.waiting:
        yield f"{len(quotas.lines.waiting)} lines in which requests wait"
    for manager in quotas.managers:
        for bucket in manager:
            name = f"bucket {bucket.tags} of {manager.kind.value}"
            if bucket.holders:
                yield f"{name}: {bucket.holders} holders"
            if bucket.reserved.amount:
                yield f"{name}: {bucket.reserved.amount} are set aside for requests in flight"
            if bucket.line:
                yield f"{name}: {len(bucket.line)} places in its line"
