"""Tests the key ``quotas_from``, which lists other sources of rules, and its faults."""

from pathlib import Path

import pytest

from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.load import Loaded, load, load_bytes
from kafka_quota_proxy.config.model import Address, AdminClient, QuotasFrom, QuotasFromBroker
from tests.support.cases import each_case

LISTENERS = "listeners: [{name: a, bind: 'h:1', upstream: 'k:1', node_id: 1}]\n"
TWO = (Address(host="k1", port=9092), Address(host="k2", port=9093))


def loaded(section: str) -> Loaded:
    return load_bytes(f"{LISTENERS}quotas_from: {section}\n".encode(), file="d/f.yaml")


def only_fault(section: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(section)
    (fault,) = str(caught.value).splitlines()
    return fault


def test_without_quotas_from_the_file_has_all_rules() -> None:
    assert load_bytes(LISTENERS.encode(), file="f.yaml").config.quotas_from is None


def test_a_topic_is_given_as_a_mapping() -> None:
    found = loaded("{kafka: {bootstrap_servers: 'k1:9092,k2:9093', topic: limits.of-all}}")

    assert found.config.quotas_from == QuotasFrom(topic="limits.of-all", client=AdminClient(bootstrap_servers=TWO))
    assert str(found.config.quotas_from) == "kafka://k1:9092,k2:9093/limits.of-all"
    assert found.warnings == ()


@each_case("section", ["broker", "{broker: {}}"])
def test_the_brokers_quotas_are_given_as_a_word(section: str) -> None:
    found = loaded(section)

    assert found.config.quotas_from == QuotasFromBroker(every_ms=2_000, client=AdminClient())
    assert str(found.config.quotas_from) == "broker"
    assert found.warnings == ()


def test_the_brokers_quotas_are_given_as_a_mapping() -> None:
    found = loaded("{broker: {every: 500ms, bootstrap_servers: 'k1:9092,k2:9093'}}").config.quotas_from

    assert found == QuotasFromBroker(every_ms=500, client=AdminClient(bootstrap_servers=TWO))


def test_an_unreadable_file_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        f"{LISTENERS}quotas_from: {{kafka: {{bootstrap_servers: 'k:1', security_protocol: SSL, ssl_cafile: no}}}}\n"
    )
    with pytest.raises(ConfigError, match=r"f.yaml:2: quotas_from.kafka.ssl_cafile:.*"):
        load(file)


@each_case(
    "section, hint",
    [
        ("kafka://k1:9092/t", "quotas_from: must be broker, or a mapping such as {kafka: {bootstrap_servers: broker1"),
        ("", "quotas_from: has no value; write broker, or a mapping"),
        ("{}", "quotas_from: names no topic; give kafka"),
        ("{kafka: {topic: t}}", "quotas_from.kafka.bootstrap_servers: is missing"),
        ("{kafka: {bootstrap_servers: 'k:1', ssl_cafile: x}}", "has no effect with security_protocol PLAINTEXT"),
        (
            "{kafka: {bootstrap_servers: 'k:1'}, broker: {}}",
            "quotas_from.broker: cannot be given with kafka; remove one of them",
        ),
        ("{broker: {every: 2}}", "quotas_from.broker.every: "),
        ("{broker: {every: 1ms}}", "quotas_from.broker.every: must be from"),
        ("{broker: {topic: t}}", "quotas_from.broker.topic: unknown key"),
        ("{broker: {ssl_cafile: x}}", "has no effect with security_protocol PLAINTEXT"),
    ],
)
def test_other_values_of_quotas_from_are_refused(section: str, hint: str) -> None:
    assert hint in only_fault(section)
