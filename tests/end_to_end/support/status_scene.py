"""A proxy with everything that its status page can show: throttled clients, clients near a limit, a queue, changes.

The broker is the embedded one, and the clients are real: librdkafka's.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.end_to_end.support.endless import consume_endlessly, produce_endlessly
from tests.end_to_end.support.processes import HarnessError, Process, free_port, scratch, wait_until
from tests.end_to_end.support.proxy import Proxy

_ROOT: Final = Path(__file__).parents[3]
_BROKER: Final = "kafka_quota_proxy.proxy.cli.demo.embedded_broker"
TOKEN: Final = "f" * 32  # of nobody

# The bytes per second that each producer of the scene writes. 0: as many as it may.
PRODUCERS: Final[Mapping[str, int]] = {
    "clickstream": 0,
    "etl-nightly": 0,
    "orders-service": 850_000,
    "billing": 235_000,
    "audit-shipper": 60_000,
    "search-indexer": 30_000,
}
CONSUMERS: Final = ("analytics", "reporting")
RULES: Final[tuple[Mapping[str, Any], ...]] = (
    {"client-id": "clickstream", "producer_byte_rate": "2MiB", "shaping": "paced"},
    {"client-id": "etl-nightly", "producer_byte_rate": "512KiB", "shaping": "paced"},
    {"client-id": "orders-service", "producer_byte_rate": "1MB"},
    {"client-id": "billing", "producer_byte_rate": "250kB"},
    {"client-id": "analytics", "consumer_byte_rate": "1MiB", "shaping": "paced"},
    {"client-id": "<default>", "producer_byte_rate": "5MB", "consumer_byte_rate": "10MB"},
)
_CHANGES: Final[tuple[Mapping[str, float], ...]] = (
    {"producer_byte_rate": 1_000_000},
    {"producer_byte_rate": 2_000_000, "request_percentage": 50},
)


@contextmanager
def _traffic(address: str) -> Iterator[None]:
    """Let clients produce and consume through a proxy until the ``with`` block ends."""
    end = threading.Event()
    with ThreadPoolExecutor(len(PRODUCERS) + len(CONSUMERS)) as pool:
        running = [
            pool.submit(produce_endlessly, address, "orders", name, end, bytes_a_second=rate, record_bytes=10_000)
            for name, rate in PRODUCERS.items()
        ]
        running += [pool.submit(consume_endlessly, address, "orders", name, end) for name in CONSUMERS]
        try:
            yield
        finally:
            end.set()
    for client in running:
        client.result()


@contextmanager
def embedded_broker(advertised: str) -> Iterator[str]:
    """Run the embedded broker, which gives clients the address ``advertised``. Yield its own address."""
    with scratch("broker") as directory:
        words = [sys.executable, "-m", _BROKER, "--advertise", advertised, "--port", str(free_port())]
        broker = Process(words, log=directory / "broker.log", cwd=_ROOT)
        try:
            wait_until(lambda: "ready on " in broker.output(), timeout_s=20, what="the embedded broker starts")
            yield broker.output().rpartition("ready on ")[2].strip()
        finally:
            broker.kill()


@contextmanager
def proxy_before_broker(settings: Mapping[str, Any]) -> Iterator[Proxy]:
    """Run a proxy with these settings in front of an embedded broker."""
    bind = f"127.0.0.1:{free_port()}"
    with embedded_broker(bind) as broker:
        listener = {"name": "clients", "bind": bind, "upstream": broker, "node_id": 1}
        with Proxy({"listeners": [listener], **settings}) as proxy:
            yield proxy


def administered(directory: Path) -> dict[str, Any]:
    """Return the settings of a proxy with a store in this directory, which takes changes of quotas with ``TOKEN``."""
    token = directory / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    return {
        "admin": {"bind": f"127.0.0.1:{free_port()}", "quotas_token_file": str(token)},
        "store": {"directory": str(directory / "quotas.d")},
        "principals": {"admins": ["operator"]},
    }


@contextmanager
def scene() -> Iterator[Proxy]:
    """Run the proxy, its broker and its clients, with some changes of quotas and a reload of the file."""
    with ExitStack() as stack:
        directory = stack.enter_context(scratch("scene"))
        settings = administered(directory) | {
            "fair_call_queue": {"max_in_flight": 4},
            "quotas": [dict(rule) for rule in RULES[:-1]],
        }
        proxy = stack.enter_context(proxy_before_broker(settings))
        stack.enter_context(_traffic(proxy.address("clients")))
        for limits in _CHANGES:
            change_quota(proxy, "alice", limits)
        proxy.reload({**settings, "quotas": [dict(rule) for rule in RULES]})
        yield proxy


def change_quota(proxy: Proxy, user: str, limits: Mapping[str, float]) -> None:
    """Change a user's quotas at the admin port of a proxy whose token is that of the scene."""
    changes = [{"entity": {"user": user, "client-id": None}, "limits": dict(limits)}]
    request = urllib.request.Request(
        f"http://{proxy.admin_address}/quotas",
        json.dumps({"changes": changes}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        answer = json.load(response)
    if answer["results"][0]["error"] is not None:
        raise HarnessError(f"the quota of {user} was not changed: {answer}")
