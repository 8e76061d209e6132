"""``kafka_server_…`` in ``/metrics`` equal the broker's MBeans under one load, in name and value.

The proxy enforces the broker's quotas, so both measure the same requests against the same limits. The windows are so
many that a rate is a sum, which stays as it is while both are read.
"""

from __future__ import annotations

import re
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.end_to_end.support import tools
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.broker_quotas import BrokerQuotas, Entity
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, MIB, batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.request_rates import SUM_WINDOWS

_STEADY, _MAKES = "steady one", "makes"
_P, _C, _R, _M = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
_LIMITS: Final = {
    Entity("ANONYMOUS", _STEADY): {_P: 10.0 * MIB, _C: 20.0 * MIB, _R: 1_000.0},
    Entity(None, _MAKES): {_M: 5.0},
}
_RATES: Final = ("kafka_server_produce_byte_rate", "kafka_server_fetch_byte_rate")
_QUOTA_VALUES: Final = {
    "kafka_server_produce_byte_quota_value": _P,
    "kafka_server_fetch_byte_quota_value": _C,
    "kafka_server_request_request_quota_value": _R,
}
_BEAN: Final = re.compile(r"(?P<domain>[^:]+):type=(?P<kind>[^,]+),(?P<labels>.+):(?P<attribute>[^:]+)")
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_]")


def _series(bean: str) -> tuple[str, dict[str, str]]:
    """Name an attribute as Prometheus' JMX exporter does by default, in lower case."""
    found = _BEAN.fullmatch(bean)
    assert found is not None, bean
    name = "_".join((found["domain"], found["kind"], found["attribute"]))
    labels = (label.split("=", 1) for label in found["labels"].split(","))
    return _ILLEGAL.sub("_", name).lower(), {_ILLEGAL.sub("_", key): value for key, value in labels}


def test_every_client_attribute_is_a_series_of_the_same_name_and_value() -> None:
    windows: dict[str, str | int] = {"quota.window.num": SUM_WINDOWS}
    with (
        Kafka(KAFKA_4, jmx=True, config=windows) as kafka,
        BrokerQuotas(kafka) as quotas,
        Proxy({"quotas_from": "broker", "kafka": windows}, kafka) as proxy,
    ):
        quotas.replace(_LIMITS)
        wait_until(
            lambda: len(proxy.metrics().values("kafka_quota_proxy_quota_limit")) >= sum(map(len, _LIMITS.values())),
            timeout_s=30,
            what="the proxy has the broker's quotas",
        )
        topic, batch = create_topic(kafka), batch_of(16 * KIB)
        with raw_client(proxy.port(), client_id=_STEADY) as client:
            for _ in range(10):
                client.produce(topic, batch)
                client.fetch(topic, offset=0, max_bytes=16 * KIB)
        admin = AdminClient({"bootstrap.servers": proxy.address(), "client.id": _MAKES, **QUIET})
        admin.create_topics([NewTopic("made", 20, replication_factor=1)])["made"].result(timeout=30)

        beans = tools.jmx(kafka, "kafka.server:client-id=*,*")
        scrape = proxy.metrics()

    kafkas = [
        (*_series(bean), value)
        for bean, value in beans.items()
        if re.search(f"client-id=({_STEADY}|{_MAKES})[,:]", bean)
    ]
    assert len(kafkas) > 10
    assert [name for name, labels, _ in kafkas if len(scrape.values(name, **labels)) != 1] == []
    rates = [(name, labels, value) for name, labels, value in kafkas if name in _RATES and value]
    assert {name for name, _, _ in rates} == set(_RATES)
    for name, labels, value in rates:
        assert scrape.total(name, **labels) == pytest.approx(value, rel=1e-3), (name, labels)
    ((steady, limits), _) = _LIMITS.items()
    for name, key in _QUOTA_VALUES.items():
        assert scrape.values(name, user=steady.user or "", client_id=_STEADY) == [limits[key]]
