"""Tests warnings about addresses of brokers that no broker has."""

from tests.config.test_load import LISTENERS, warnings
from tests.support.cases import each_case


@each_case("address, own", [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "127.0.0.1:2"), ("[::0]:3", "127.0.0.1:3")])
@each_case("key", ["upstream", "bootstrap_servers"])
def test_all_addresses_are_a_warning_as_an_upstream(key: str, address: str, own: str) -> None:
    """Linux takes it for this machine, so it is no error."""
    (found,) = warnings(f"listeners: [{{name: a, bind: 'h:9092', {key}: '{address}'}}]\n")

    assert found == (
        f"f.yaml:1: listeners[0].{key}: warning: {address} is the address of no broker; for one on this machine write "
        f"{own}"
    )


@each_case(
    "section, at",
    [
        ("quotas_from: kafka://0.0.0.0:1/t", "quotas_from"),
        ("quotas_from: {kafka: {bootstrap_servers: '0.0.0.0:1', topic: t}}", "quotas_from.kafka.bootstrap_servers"),
        ("quotas_from: {broker: {bootstrap_servers: 'b:1,0.0.0.0:1'}}", "quotas_from.broker.bootstrap_servers"),
        ("store: {kafka: {bootstrap_servers: '0.0.0.0:1', topic: t}}", "store.kafka.bootstrap_servers"),
        (
            "replication: {from_cluster: true, admin_client: {bootstrap_servers: '0.0.0.0:1'}}",
            "replication.admin_client.bootstrap_servers",
        ),
        (
            "usage_log: {proxy: p, kafka: {bootstrap_servers: '0.0.0.0:1', topic: t}}",
            "usage_log.kafka.bootstrap_servers",
        ),
    ],
)
def test_all_addresses_are_a_warning_for_a_client_of_the_proxy(section: str, at: str) -> None:
    found = [warning for warning in warnings(f"{LISTENERS}{section}\n") if "is the address of no broker" in warning]

    assert [warning.split(":", 2)[2].split(":")[0].strip() for warning in found] == [at]
