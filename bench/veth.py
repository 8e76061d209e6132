"""Measures the bulk rows over veth pairs. Load and broker each have a network namespace, connected to the proxy's.

On the loopback interface, ``splice`` passes on the sender's pages. Over a veth pair it passes on packets.
These rows need root, and are left out without it.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from bench.figures import ENVOY, OURS, OURS_WITHOUT_RELAY, Sample
from bench.peers import Peer, Route, running
from bench.rows import Row
from bench.synthetic import command
from tests.end_to_end.support.processes import Process, free_port, run, scratch, wait_until

# These networks are reserved for documentation (RFC 5737), so no real host has these addresses.
_PROXY_TO_LOAD: Final = "198.51.100.1"
_LOAD: Final = "198.51.100.2"
_PROXY_TO_BROKER: Final = "203.0.113.1"
_BROKER: Final = "203.0.113.2"
_PEERS: Final = (ENVOY, OURS, OURS_WITHOUT_RELAY)


@contextmanager
def measuring(names: Sequence[str]) -> Iterator[tuple[list[Peer], Callable[[Row, Peer], Sample]]]:
    """Start the fake broker and these peers, connected by veth pairs."""
    wanted = [name for name in names if name in _PEERS]
    if os.geteuid() or shutil.which("ip") is None:
        print("left out: rows over veth pairs need root and the command ip")
        wanted = []
    with ExitStack() as stack:
        if not wanted:
            yield [], _measure
            return
        load = stack.enter_context(_namespace("kqp-load", proxy=_PROXY_TO_LOAD, inside=_LOAD))
        broker = stack.enter_context(_namespace("kqp-broker", proxy=_PROXY_TO_BROKER, inside=_BROKER))
        port = stack.enter_context(_broker(broker))
        peers = stack.enter_context(running(wanted, partial(_route, broker_port=port)))
        yield peers, partial(_measure, within=load)


@contextmanager
def _namespace(name: str, *, proxy: str, inside: str) -> Iterator[list[str]]:
    """Add a network namespace with a veth pair to this one. Yields the words before a command that runs in it."""
    within = ["ip", "netns", "exec", name]
    run(["ip", "netns", "add", name])
    try:
        run(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name])
        run(["ip", "address", "add", f"{proxy}/24", "dev", name])
        run(["ip", "link", "set", name, "up"])
        run([*within, "ip", "address", "add", f"{inside}/24", "dev", "eth0"])
        run([*within, "ip", "link", "set", "eth0", "up"])
        yield within
    finally:
        run(["ip", "netns", "delete", name])  # its end of the pair ends, and so does the other


@contextmanager
def _broker(within: Sequence[str]) -> Iterator[int]:
    port = free_port()
    with scratch("fake-broker") as directory:
        words = [*within, sys.executable, "-m", "bench.fake_broker", str(port), _BROKER]
        broker = Process(words, log=directory / "log")
        try:
            wait_until(lambda: "ready" in broker.output(), timeout_s=20, what="the fake broker listens")
            yield port
        finally:
            broker.kill()


def _route(name: str, *, broker_port: int) -> Route:
    return Route(host=_PROXY_TO_LOAD, port=free_port(), upstream_host=_BROKER, upstream_port=broker_port)


def _measure(row: Row, peer: Peer, *, within: Sequence[str] = ()) -> Sample:
    words = [*within, sys.executable, "-m", "bench.load", *command(row), "--host", _PROXY_TO_LOAD]
    out = run([*words, "--port", str(peer.port), "--pid", str(peer.pid)], timeout_s=60)
    sample: Sample = json.loads(out)
    return sample
