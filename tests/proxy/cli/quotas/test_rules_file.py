"""Tests that rules with any names are written to a file and read again, and that faults have their lines."""

import pytest
from hypothesis import example, given

from kafka_quota_proxy.config.document import parse
from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.proxy.cli.quotas.rules_file import Rules, as_yaml, not_in_yaml, read
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from tests.support.quota_rules import some_rules

P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
M = "controller_mutation_rate"
RATE = "connection_creation_rate"


def yaml_of(rules: Rules) -> bytes:
    return "\n".join(as_yaml(rules)).encode()


@given(some_rules)
@example({Entity("a"): StoredRule(limits={R: 1e-5, P: 9223372036854775807.0})})
@example({Entity("<default>"): StoredRule(limits={P: 1.0})})
@example({Entity("a"): StoredRule(limits={R: 2147483648.0}), Entity("b"): StoredRule(limits={R: 2147483647.0})})
@example({Entity("a"): StoredRule(limits={M: 1e300, P: 1.0}), Entity("b"): StoredRule(limits={R: 5e-324})})
def test_yaml_round_trips_except_for_rules_it_cannot_express(rules: Rules) -> None:
    data = yaml_of(rules)
    wanted = {entity: rule for entity, rule in rules.items() if not_in_yaml(entity, rule) is None}

    assert read(data, file="f") == wanted


def test_yaml_is_written_as_by_hand() -> None:
    rules = {
        Entity("alice", DEFAULT): StoredRule(limits={P: 10.0 * 2**20, R: 50.0}),
        Entity(ip="10.0.0.7"): StoredRule(limits={RATE: 5.0}),
        Entity("<default>"): StoredRule(limits={P: 1.0}),
        Entity("bob"): StoredRule(limits={R: 1e10}),
        Entity("carol"): StoredRule(limits={"of_a_later_version": 5.0}),
    }

    assert list(as_yaml(rules)) == [
        "quotas:",
        '  - {user: "alice", client-id: <default>, producer_byte_rate: 10MiB, request_percentage: 50}',
        '  - {ip: "10.0.0.7", connection_creation_rate: 5}',
    ]
    assert [reason for one in rules.items() if (reason := not_in_yaml(*one))] == [
        "the name of a user is <default>, which means the default in YAML",
        "request_percentage cannot be written in YAML: a percentage is at most 2147483647 (no limit in Kafka), got "
        "10000000000",
        "of_a_later_version is unknown",
    ]
    assert read(b"quotas: []", file="f") == {}
    assert parse("\n".join(as_yaml({})), file="f").data == {"quotas": []}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f:1: (file): cannot be imported; the file may have only quotas"),
        ("[]", "f:1: (file): cannot be imported"),
        ("quotas: []\nlisteners: []\n", "f:2: listeners: cannot be imported; the file may have only quotas"),
        (
            "quotas:\n- {user: a, producer_byte_rate: 10MiBs}\n",
            "f:2: quotas[0].producer_byte_rate: 'MiBs' is not a unit",
        ),
    ],
)
def test_a_faulty_file_is_reported(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text.encode(), file="f")

    assert str(caught.value).startswith(said)
