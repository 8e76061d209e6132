"""kafka-python, with its own codec, gets the same answers about client quotas from proxy and broker.

None of the Python clients has methods for client quotas, so requests are sent over kafka-python's connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiokafka.admin
import confluent_kafka.admin
import kafka
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_P, _C, _R, _M = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
_RATE: Final = "connection_creation_rate"
_EXACT, _DEFAULT, _ANY = range(3)


class Alter(NamedTuple):
    entity: Sequence[tuple[str, str | None]]
    ops: Sequence[tuple[str, float, bool]]
    validate_only: bool = False


class Describe(NamedTuple):
    components: Sequence[tuple[str, int, str | None]]
    strict: bool = False


_ALTERS: Final = [
    Alter([("user", "u")], [(_P, 1000.0, False)], False),
    Alter([("user", "u"), ("client-id", None)], [(_P, 2000.0, False), (_C, 4000.0, False)], False),
    Alter([("user", "all")], [(_R, 4.0, False), (_M, 3.0, False), (_C, 2.0, False), (_P, 1.0, False)], False),
    Alter([("user", "three")], [(_P, 1.0, False), (_R, 3.0, False), (_C, 2.0, False)], False),
    Alter([("user", "v")], [(_P, 3000.0, False)], True),
    Alter([("ip", "192.0.2.7")], [(_RATE, 5.0, False)], False),
    Alter([("user", "u")], [(_P, 10.5, False)], False),
    Alter([("user", "u")], [("bad", 1.0, False)], False),
    Alter([("user", "u"), ("ip", "192.0.2.7")], [(_P, 1.0, False)], False),
]
_DESCRIBES: Final = [
    Describe([("user", _EXACT, "u")], False),
    Describe([("user", _EXACT, "u")], True),
    Describe([("user", _ANY, None)], True),
    Describe([("user", _ANY, None), ("client-id", _DEFAULT, None)], True),
    Describe([("ip", _ANY, None)], True),
    Describe([], False),
    Describe([("user", _EXACT, None)], False),
    Describe([("other", _ANY, None)], False),
    Describe([("user", _ANY, None), ("ip", _ANY, None)], False),
]


class Client:
    """kafka-python's admin client with both quota requests, in the highest version that the broker announces."""

    def __init__(self, address: str) -> None:
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=address)

    def close(self) -> None:
        self._admin.close()

    def alter(self, what: Alter) -> list[tuple[int, str | None]]:
        request = AlterClientQuotasRequest(entries=[(what.entity, what.ops)], validate_only=what.validate_only)
        answer: Any = self._admin._manager.run(self._admin._manager.send, request)
        return [(one.error_code, one.error_message) for one in answer.entries]

    def describe(self, what: Describe) -> tuple[int, str | None, list[Any]]:
        request = DescribeClientQuotasRequest(components=what.components, strict=what.strict)
        answer: Any = self._admin._manager.run(self._admin._manager.send, request)
        # The order is undefined: Kafka has that of its hash tables.
        entries: list[Any] = sorted(
            (
                sorted((part.entity_type, part.entity_name or "") for part in entry.entity),
                sorted((value.key, value.value) for value in entry.values),
            )
            for entry in answer.entries or ()
        )
        return answer.error_code, answer.error_message, entries


def test_python_clients_have_no_methods_for_quotas() -> None:
    """If a client gets them, test it here, and add it to the docs: reference/clients.md and how-to/set-quotas.md."""
    clients = (confluent_kafka.admin.AdminClient, kafka.KafkaAdminClient, aiokafka.admin.AIOKafkaAdminClient)

    assert [name for client in clients for name in dir(client) if "quota" in name.lower()] == []


def test_kafka_python_gets_the_same_answers_from_proxy_and_broker(kafka_4: Kafka, tmp_path: Path) -> None:
    settings = {"principals": {"admins": ["ANONYMOUS"]}, "store": {"directory": str(tmp_path)}}
    with (
        Proxy(settings, kafka_4) as proxy,
        closing(Client(proxy.address())) as proxy_client,
        closing(Client(kafka_4.listener(DIRECT).address)) as broker,
    ):
        results = [proxy_client.alter(command) for command in _ALTERS]
        shown = [proxy_client.describe(command) for command in _DESCRIBES]
        # Five entities were set at the proxy. None was set at the broker.
        assert proxy.metrics().total("kafka_quota_proxy_quota_changes_total", result="applied") == 5
        assert broker.describe(Describe([])) == (0, "", [])
        assert results == [broker.alter(command) for command in _ALTERS]
        assert [answer[0][0] for answer in results] == [0, 0, 0, 0, 0, 0, 42, 42, 42]

        # A broker applies a change only after its answer.
        wait_until(
            lambda: [broker.describe(command) for command in _DESCRIBES] == shown, timeout_s=5, what="the broker agrees"
        )
        assert shown[0][2] == [
            ([("client-id", ""), ("user", "u")], [(_C, 4000.0), (_P, 2000.0)]),
            ([("user", "u")], [(_P, 1000.0)]),
        ]
        assert [key for key, _ in shown[2][2][0][1]] == sorted([_P, _C, _M, _R])
        assert [len(answer[2]) for answer in shown] == [2, 1, 3, 1, 1, 5, 0, 0, 0]
        assert [answer[0] for answer in shown] == [0, 0, 0, 0, 0, 0, 42, 35, 42]

        for entity, ops, _ in _ALTERS[:6]:
            removal = Alter(entity, [(key, 0.0, True) for key, *_ in ops])
            assert proxy_client.alter(removal) == broker.alter(removal) == [(0, None)]
        wait_until(
            lambda: broker.describe(Describe([])) == proxy_client.describe(Describe([])) == (0, "", []),
            timeout_s=5,
            what="nothing is left",
        )
