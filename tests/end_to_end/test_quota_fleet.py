"""A quota that is set at any proxy of a fleet is in force at all of them, in the same order of changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from kafka_quota_proxy.protocol.client_quotas import EntityParts
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import is_throttled
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quota_fleet import Admin, came_into_force, detail, fleet

_P, _C = "producer_byte_rate", "consumer_byte_rate"
_RATE = "connection_creation_rate"
_ETL: EntityParts = (("client-id", "etl"),)
_ALICE: EntityParts = (("user", "alice"), ("client-id", None))
_IP: EntityParts = (("ip", "192.0.2.7"),)
_TOPIC = "kafka_quota_proxy_store_topic"
# The longest time from a change until it is in force at every proxy.
_EVERYWHERE_S = 2


def _until(what: str, is_so: Callable[[], object], timeout_s: float = 20) -> None:
    wait_until(lambda: bool(is_so()), timeout_s=timeout_s, what=what)


def _store(kafka: Kafka, **config: str) -> str:
    return create_topic(kafka, config={"cleanup.policy": "compact", **config})


def _last_in_force_at(proxy: Proxy) -> float:
    """Return the Unix time at which the last change came into force."""
    return max(datetime.fromisoformat(at).timestamp() for at, _, _ in came_into_force(proxy))


def test_quota_set_at_one_proxy_holds_at_the_other_and_is_kept(mortal_kafka: Kafka) -> None:
    topic, store = create_topic(mortal_kafka), _store(mortal_kafka)
    with fleet(mortal_kafka, store, 2) as (one, other):
        with (
            Admin(one.port()) as at_one,
            Admin(other.port()) as at_other,
            raw_client(other.port(), client_id="etl") as client,
        ):
            assert not is_throttled(client, topic)
            changes = [(_ETL, {_P: 1_000.0}), (_ALICE, {_P: 7.0, _C: 8.0}), (_IP, {_RATE: 5.0})]
            asked_at = time.time()
            assert [one.error_code for one in at_one.alter_all(changes)] == [0, 0, 0]
            _until("the changes are in force at the other", lambda: len(came_into_force(other)) == 3)
            assert is_throttled(client, topic)
            for proxy in (one, other):
                assert _last_in_force_at(proxy) - asked_at < _EVERYWHERE_S

            # Each proxy deletes and changes quotas that were set at the other. No change undoes another.
            assert at_other.alter(_ALICE, {_P: None}).error_code == at_one.alter(_ALICE, {_C: 9.0}).error_code == 0
            assert at_other.alter(_IP, {_RATE: None}).error_code == 0
            wanted = {frozenset(_ETL): {_P: 1_000.0}, frozenset(_ALICE): {_C: 9.0}}
            assert at_other.describe() == wanted
            _until("both have the same", lambda: at_one.describe() == wanted)
            refused = at_one.alter(_ALICE, {"bad": 1.0})
            assert refused.error_message == "Invalid configuration key bad"

        # After a kill it reads everything again before it serves.
        other.kill()
        other.start()
        with Admin(other.port()) as admin:
            assert admin.describe() == wanted
        assert detail(other) == {
            "topic": f"kafka://{mortal_kafka.bootstrap_servers}/{store}",
            "connected": True, "read": True, "entities": 2, "offset": 7,
        }  # fmt: skip
        assert "Traceback" not in one.log + other.log
