"""Rows with the fake broker."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from bench.figures import DIRECT, ENVOY, OURS, OURS_QUEUEING, Sample
from bench.peers import (
    Peer,
    running,
    synthetic_route,
    two_routes,
    with_and_without_queue,
    with_and_without_rewriting,
)
from bench.rows import Row, Section
from tests.end_to_end.support.processes import Process, free_port, run, scratch, wait_until
from tests.support.certificates import Authority

# The seconds of a run, after its warm-up.
SECONDS = {
    Section.BULK: 2.0,
    Section.TLS: 2.0,
    Section.VETH: 2.0,
    Section.REQUESTS: 3.0,
    Section.LATENCY: 4.0,
    Section.IDLE: 0.0,
    Section.ADDRESSES: 4.0,
    Section.QUEUE: 4.0,
}
_SHAPES = {
    Section.BULK: "pipeline",
    Section.TLS: "pipeline",
    Section.VETH: "pipeline",
    Section.REQUESTS: "pipeline",
    Section.LATENCY: "latency",
    Section.IDLE: "idle",
    Section.ADDRESSES: "pipeline",
    Section.QUEUE: "pipeline",
}


@contextmanager
def measuring(names: Sequence[str]) -> Iterator[tuple[list[Peer], Callable[[Row, Peer], Sample]]]:
    """Start the fake broker and these peers. Yields the peers, and a function that measures one of them once."""
    with _fake_broker() as port, running(names, partial(synthetic_route, broker_port=port)) as peers:
        yield peers, measure


@contextmanager
def measuring_rewriting(names: Sequence[str]) -> Iterator[tuple[list[Peer], Callable[[Row, Peer], Sample]]]:
    """Do the same for our proxy, with and without rewriting."""
    with ExitStack() as stack:
        port = stack.enter_context(_fake_broker())
        yield stack.enter_context(with_and_without_rewriting(port)) if OURS in names else [], measure


@contextmanager
def measuring_queue(names: Sequence[str]) -> Iterator[tuple[list[Peer], Callable[[Row, Peer], Sample]]]:
    """Do the same for our proxy, with and without a queue."""
    with ExitStack() as stack:
        port = stack.enter_context(_fake_broker())
        yield (
            stack.enter_context(with_and_without_queue(two_routes(port, OURS_QUEUEING))) if OURS in names else [],
            measure,
        )


@contextmanager
def measuring_fresh(names: Sequence[str]) -> Iterator[tuple[list[Peer], Callable[[Row, Peer], Sample]]]:
    """Do the same, but restart the peer for each run, because a process does not return memory."""
    with _fake_broker() as port:
        route = partial(synthetic_route, broker_port=port)

        def measure_fresh(row: Row, peer: Peer) -> Sample:
            with running([peer.name], route) as started:
                return measure(row, started[0])

        yield [Peer(name=name, port=port) for name in names if name != DIRECT], measure_fresh


@contextmanager
def measuring_tls(names: Sequence[str]) -> Iterator[tuple[list[Peer], Callable[[Row, Peer], Sample]]]:
    """Do the same for clients with TLS. Only Envoy and our proxy are configured for TLS."""
    with scratch("tls") as directory, _fake_broker() as port:
        authority = Authority("bench authority")
        certificate, key = authority.issue("bench", hosts=["127.0.0.1"]).save(directory, "bench")
        ca = authority.save(directory, "ca")
        route = partial(synthetic_route, broker_port=port, tls=(certificate, key))
        with running([name for name in names if name in (ENVOY, OURS)], route) as peers:
            yield peers, partial(measure, ca=ca)


@contextmanager
def _fake_broker() -> Iterator[int]:
    port = free_port()
    with scratch("fake-broker") as directory:
        broker = Process([sys.executable, "-m", "bench.fake_broker", str(port)], log=directory / "log")
        try:
            wait_until(lambda: "ready" in broker.output(), timeout_s=20, what="the fake broker listens")
            yield port
        finally:
            broker.kill()


def command(row: Row) -> list[str]:
    """Return the arguments of ``python -m bench.load``, without those of the peer."""
    return [
        _SHAPES[row.section],
        *("--api", row.api),
        *(("--api-version", str(row.api_version)) if row.api_version else ()),
        *("--size", str(row.size_bytes)),
        *("--connections", str(row.connections)),
        *("--in-flight", str(row.in_flight)),
        *("--seconds", f"{SECONDS[row.section]:g}"),
    ]


def measure(row: Row, peer: Peer, *, ca: str | None = None) -> Sample:
    """Run the load generator once, over TLS if ``ca`` is given."""
    more = [*(("--pid", str(peer.pid)) if peer.pid else ()), *(("--tls", ca) if ca else ())]
    out = run([sys.executable, "-m", "bench.load", *command(row), "--port", str(peer.port), *more], timeout_s=60)
    sample: Sample = json.loads(out)
    return sample
