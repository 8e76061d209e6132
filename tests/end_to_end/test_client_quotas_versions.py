"""Which versions of both APIs of client quotas a client is told, in front of an old broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT
from tests.end_to_end.support.kafka_configs import said
from tests.end_to_end.support.old_kafka import OldKafka
from tests.end_to_end.support.processes import free_port
from tests.end_to_end.support.proxy import Proxy

_BOTH: Final = (48, 49)


def _told(port: int) -> list[tuple[int, int] | None]:
    """Return the versions of both APIs that somebody is told who has not logged in."""
    with raw_client(port) as client:
        told = client.api_versions()
    return [told.get(api_key) for api_key in _BOTH]


@pytest.mark.long
def test_what_is_answered_here_is_told_and_of_what_is_not_what_the_broker_says(tmp_path: Path) -> None:
    with OldKafka() as kafka:
        brokers = _told(kafka.listener(DIRECT).port)
        assert brokers == [(0, 1), (0, 1)]
        settings = {
            "listeners": [
                {"name": "clients", "bind": f"127.0.0.1:{free_port()}", "upstream": kafka.listener(DIRECT).address}
            ],
            "principals": {"admins": ["admin"]},
            "store": {"directory": str(tmp_path)},
        }
        with Proxy(settings) as proxy:
            assert _told(proxy.port("clients")) == [(0, 1), (0, 1)]

            assert proxy.reload({**settings, "principals": {"admins": ["admin"], "forward_quota_requests": True}})
            assert _told(proxy.port("clients")) == brokers

            assert proxy.reload({**settings, "principals": {"admins": ["ANONYMOUS"], "forward_quota_requests": True}})
            assert _told(proxy.port("clients")) == [(0, 1), (0, 1)]
            _, shown = said(
                kafka,
                KAFKA_4,
                proxy.address("clients"),
                "--alter|--add-config|producer_byte_rate=7000|--entity-type|users|--entity-default",
                "--describe|--entity-type|users|--entity-default",
            )
            assert shown == ["0", "Quota configs for the default user-principal are producer_byte_rate=7000.0"]
