"""A proxy is killed while it changes quotas. Acknowledged changes are kept, and no change is stored by half."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from kafka_quota_proxy.protocol.client_quotas import EntityParts
from tests.end_to_end.support.processes import free_port
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quota_fleet import Admin

pytestmark = pytest.mark.proof

_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate")
_ALTERS: Final = 100
_KILLED_AT: Final = (30, 60, 90)  # the proxy is killed after the answers to these requests


@contextmanager
def _proxy(store: Path) -> Iterator[Proxy]:
    """Run a proxy with a broker that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as broker:
        settings = {
            "listeners": [
                {
                    "name": "PROXIED",
                    "bind": f"127.0.0.1:{free_port()}",
                    "upstream": f"127.0.0.1:{broker.getsockname()[1]}",
                }
            ],
            "principals": {"admins": ["ANONYMOUS"]},
            "store": {"directory": str(store)},
        }
        with Proxy(settings) as proxy:
            yield proxy


def _entities(number: int) -> tuple[EntityParts, EntityParts]:
    """Return the two entities of the request with this number."""
    return (("user", f"u{number}"),), (("client-id", f"c{number}"),)


def _limits(number: int) -> dict[str, float]:
    return dict.fromkeys(_KEYS, float(number))


class Altering:
    """An administrator that numbers its requests. A request sets two keys of two entities to its number."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.acknowledged: list[int] = []

    def go_on(self, port: int, count: int, is_reached: Event) -> None:
        """Send the remaining requests until the proxy is killed. Set the event after ``count`` acknowledgements."""
        with suppress(OSError), Admin(port) as admin:
            while len(self.sent) < _ALTERS:
                number = len(self.sent) + 1
                self.sent.append(number)
                changes = [(entity, _limits(number)) for entity in _entities(number)]
                assert [result.error_code for result in admin.alter_all(changes)] == [0, 0]
                self.acknowledged.append(number)
                if number >= count:
                    is_reached.set()


def _entities_by_request(proxy: Proxy) -> dict[int, int]:
    """Return the number of entities that each request has set. Fails if an entity has only one of the keys."""
    with Admin(proxy.port()) as admin:
        found = admin.describe()
    counts: dict[int, int] = {}
    for entity, limits in found.items():
        number = int(limits[_KEYS[0]])
        assert entity in map(frozenset, _entities(number))
        assert limits == _limits(number)
        counts[number] = counts.get(number, 0) + 1
    return counts


def test_kill_while_altering_keeps_acknowledged_changes_and_no_partial_ones(tmp_path: Path) -> None:
    altering = Altering()
    with _proxy(tmp_path / "quotas.d") as proxy, ThreadPoolExecutor(1) as pool:
        for count in (*_KILLED_AT, _ALTERS):
            is_reached = Event()
            done = pool.submit(altering.go_on, proxy.port(), count, is_reached)
            assert is_reached.wait(30)
            proxy.kill()
            done.result(30)
            proxy.start()

            counts = _entities_by_request(proxy)
            assert set(altering.acknowledged) <= counts.keys() <= set(altering.sent)
            assert set(counts.values()) == {2}
            assert "is damaged" not in proxy.log
    # Each kill loses at most the request in flight.
    assert len(altering.sent) == _ALTERS
    assert len(altering.acknowledged) >= _ALTERS - len(_KILLED_AT)
