"""Tests that rules with any names are written to a file and read again, and that faults have their lines."""

import pytest
from hypothesis import example, given

from kafka_quota_proxy.config.document import parse
from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.proxy.cli.quotas.rules_file import Rules, as_json, as_yaml, not_in_yaml, read
from kafka_quota_proxy.proxy.rules.codec import written_rule
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from tests.support.quota_rules import some_rules

P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
M = "controller_mutation_rate"
RATE = "connection_creation_rate"


def yaml_of(rules: Rules) -> bytes:
    return "\n".join(as_yaml((entity, rule, "") for entity, rule in rules.items())).encode()


@given(some_rules)
@example({Entity("alice"): StoredRule(limits={P: 1e-5 + 1, R: 1e-5})})
def test_json_round_trips(rules: Rules) -> None:
    text = "\n".join(as_json(rules.items()))

    assert read(text.encode(), file="f") == rules
    answer = [written_rule(entity, rule, source="d", can_change=True) for entity, rule in rules.items()]
    assert read(f'{{"rules":[{",".join(answer)}]}}'.encode(), file="f") == rules, "that of the admin port"


@given(some_rules)
@example({Entity("a"): StoredRule(limits={R: 1e-5, P: 9223372036854775807.0})})
@example({Entity("<default>"): StoredRule(limits={P: 1.0})})
@example({Entity("a"): StoredRule(limits={R: 2147483648.0}), Entity("b"): StoredRule(limits={R: 2147483647.0})})
@example({Entity("a"): StoredRule(limits={M: 1e300, P: 1.0}), Entity("b"): StoredRule(limits={R: 5e-324})})
def test_yaml_round_trips_except_for_rules_it_cannot_express(rules: Rules) -> None:
    data = yaml_of(rules)
    wanted = {entity: rule for entity, rule in rules.items() if not_in_yaml(entity, rule) is None}

    assert read(data, file="f") == wanted
    assert data.count(b"# left out: ") == len(rules) - len(wanted)


def test_yaml_is_written_as_by_hand() -> None:
    rules = {
        Entity("alice", DEFAULT): StoredRule(limits={P: 10.0 * 2**20, R: 50.0}),
        Entity(ip="10.0.0.7"): StoredRule(limits={RATE: 5.0}),
        Entity("<default>"): StoredRule(limits={P: 1.0}),
        Entity("bob"): StoredRule(limits={R: 1e10}),
        Entity("carol"): StoredRule(limits={"of_a_later_version": 5.0}),
    }

    assert list(as_yaml((entity, rule, "p.yaml:3") for entity, rule in rules.items())) == [
        "quotas:",
        '  - {user: "alice", client-id: <default>, producer_byte_rate: 10MiB, request_percentage: 50}  # p.yaml:3',
        '  - {ip: "10.0.0.7", connection_creation_rate: 5}  # p.yaml:3',
        '  # left out: {user: "<default>", producer_byte_rate: 1}: the name of a user is <default>, which means '
        "the default in YAML; export as JSON",
        '  # left out: {user: "bob", request_percentage: 10000000000}: request_percentage cannot be written in YAML: a '
        "percentage is at most 2147483647 (no limit in Kafka), got 10000000000",
        '  # left out: {user: "carol", of_a_later_version: 5}: of_a_later_version is unknown',
    ]
    assert read(b"quotas: []", file="f") == {}
    assert parse("\n".join(as_yaml([])), file="f").data == {"quotas": []}


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
        ('{"rules":{}}', "f:1: rules: must be a list"),
        (
            '{"rules":[{"entity":{"user":"a"},"limits":{}}]}',
            "f:1: rules[0].limits: must be at least one key with a number",
        ),
        ('{"rules":[{"entity":{},"limits":{"a":1}}]}', "f:1: rules[0].entity: names no user, client-id or ip"),
        (
            '{"rules":[{"entity":{"ip":null},"limits":{"a":1}},{"entity":{"ip":null},"limits":{"a":1}}]}',
            "f:1: rules[1].entity: has two rules",
        ),
        (
            '{"rules":[{"entity":{"user":"a"},"limits":{"a":1},"terms":{"expires":"soon"}}]}',
            "f:1: rules[0].terms.expires: 'soon' is not an instant",
        ),
        # An import removes the rules that the file does not have.
        (
            '{"rules":[{"entity":{"user":"a"},"limits":{"a":1},"term":{"enforcement":"observe"}}]}',
            "f:1: rules[0]: 'term' is unknown; known: entity, limits, terms, source, can_change, now",
        ),
        (
            '{"rules":[],"changes":[{"entity":{"user":"a"},"limits":{"a":1}}]}',
            "f:1: (body): 'changes' is unknown; known: rules",
        ),
    ],
)
def test_a_faulty_file_is_reported(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text.encode(), file="f")

    assert str(caught.value).startswith(said)
