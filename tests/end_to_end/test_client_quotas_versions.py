"""Client quotas are set and shown at a proxy in front of a broker of 2.8."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.kafka import DIRECT
from tests.end_to_end.support.kafka_configs import run_configs
from tests.end_to_end.support.old_kafka import OldKafka
from tests.end_to_end.support.processes import free_ports
from tests.end_to_end.support.proxy import Proxy


@pytest.mark.long
def test_command_of_4_4_sets_a_quota_at_a_proxy_in_front_of_2_8(
    tmp_path: Path,
) -> None:
    with OldKafka() as kafka:
        first = free_ports(3)
        rewrites = {
            "name": "clients",
            "bind": f"127.0.0.1:{first}",
            "bootstrap_servers": kafka.bootstrap_servers,
            "broker_ports": f"{first + 1}-{first + 2}",
        }
        settings = {
            "listeners": [rewrites],
            "principals": {"admins": ["ANONYMOUS"], "forward_quota_requests": True},
            "store": {"directory": str(tmp_path)},
        }
        show = "--describe|--entity-type|users|--entity-default"
        with Proxy(settings) as proxy:
            _, shown, at_broker = run_configs(
                kafka,
                KAFKA_4,
                proxy.address("clients"),
                "--alter|--add-config|producer_byte_rate=7000|--entity-type|users|--entity-default",
                show,
                f"{show}|--bootstrap-server|{kafka.listener(DIRECT).address}",
            )
            assert shown == ["0", "Quota configs for the default user-principal are producer_byte_rate=7000.0"]
            assert at_broker == ["0"]
