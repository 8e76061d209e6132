"""Tests that a configuration file is loaded as a whole, or refused with every fault at its line."""

from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from textwrap import dedent

import pytest
from yaml import MappingNode

from kafka_quota_proxy.config import load as load_module
from kafka_quota_proxy.config.document import Document, parse
from kafka_quota_proxy.config.errors import (
    ConfigError,
    Severity,
)
from kafka_quota_proxy.config.load import Loaded, load, load_bytes
from kafka_quota_proxy.config.model import (
    DEFAULT,
    Address,
    Admin,
    Cluster,
    Enforcement,
    KafkaSettings,
    Listener,
    Log,
    LogFormat,
    ProxyConfig,
    ProxyProtocol,
    QuotaRule,
    Shaping,
)
from kafka_quota_proxy.config.principal_mapping import DEFAULT_RULES
from kafka_quota_proxy.config.principals import Fold, Principals
from kafka_quota_proxy.config.schema import FILE
from kafka_quota_proxy.config.security import ClientAuth, Sasl, TlsVersion, UpstreamTls
from kafka_quota_proxy.config.units import UNLIMITED
from tests.support.cases import each_case

LISTENERS = "listeners: [{name: clients, bind: 0.0.0.0:9092, upstream: 127.0.0.1:19092}]\n"


def loaded(text: str) -> Loaded:
    return load_bytes(dedent(text).encode(), file="f.yaml")


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    return str(caught.value).splitlines()


def warnings(text: str) -> list[str]:
    return [str(warning) for warning in loaded(text).warnings]


def listener_with(key: str) -> str:
    return f"listeners:\n  - name: a\n    bind: a:1\n    upstream: b:2\n    {key}\n"


def only_fault(text: str) -> str:
    (fault,) = faults(text)
    return fault


def test_a_file_with_one_listener_has_defaults_for_all_else() -> None:
    config = loaded(LISTENERS).config

    assert config == ProxyConfig(
        listeners=(
            Listener(
                name="clients",
                bind=Address(host="0.0.0.0", port=9092),  # noqa: S104
                upstream=Address(host="127.0.0.1", port=19092),
            ),
        )
    )


def test_every_key_reaches_the_model() -> None:
    config = loaded(
        """\
        listeners:
          - name: inside
            bind: "[::1]:9092"
            upstream: broker:9093
            inter_broker: true
            max_frame_size: 1MiB
            max_connections: 500
            max_connections_per_ip: 20
            login_timeout: 5s
            idle_timeout: 10m
            max_connection_age: 1h
            max_connection_creation_rate: 7
            sasl: {oauthbearer_claim: azp}
            proxy_protocol: {from: [10.0.0.0/8, "2001:db8::/32", 192.0.2.7]}
            enforcement: delay
            shaping: paced
        enforcement: observe
        max_throttle_time: 5s
        shaping: paced
        burst: 500ms
        request_time_scale: 1.5
        max_buckets: 5000
        drain_timeout: 5s
        max_buffered: 64MiB
        kafka:
          quota.window.num: 5
          quota.window.size.seconds: 2
          client.quota.metric.value.enable: false
          quota.producer.default: 1MB
          quota.consumer.default: 9223372036854775807
          controller.quota.window.num: 1
          controller.quota.window.size.seconds: 3
          max.connection.creation.rate: 20
          num.partitions: 12
        quotas:
          - {user: <default>, client-id: etl, producer_byte_rate: 1.5MiB, enforcement: respond, shaping: sampled}
          - {client-id: <default>, consumer_byte_rate: 2000}
        principals:
          fold: [{match: 'ANON(.*)', to: 'A\\1'}]
          exempt: [ANONYMOUS]
          brokers: [ANONYMOUS]
        admin: {bind: 127.0.0.1:9308}
        log: {format: json, level: debug}
        """
    ).config

    assert config == ProxyConfig(
        listeners=(
            Listener(
                name="inside",
                bind=Address(host="::1", port=9092),
                upstream=Address(host="broker", port=9093),
                inter_broker=True,
                max_frame_size_bytes=1_048_576,
                max_connections=500,
                max_connections_per_ip=20,
                login_timeout_ms=5_000,
                idle_timeout_ms=600_000,
                max_connection_age_ms=3_600_000,
                max_connection_creation_rate=7,
                sasl=Sasl(oauthbearer_claim="azp"),
                proxy_protocol=ProxyProtocol(
                    sources=(ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"), ip_network("192.0.2.7"))
                ),
                enforcement=Enforcement.DELAY,
                shaping=Shaping.PACED,
            ),
        ),
        enforcement=Enforcement.OBSERVE,
        max_throttle_time_ms=5_000,
        shaping=Shaping.PACED,
        burst_ms=500,
        request_time_scale=1.5,
        max_buckets=5_000,
        drain_timeout_ms=5_000,
        max_buffered_bytes=67_108_864,
        kafka=KafkaSettings(
            quota_window_num=5,
            quota_window_size_seconds=2,
            client_quota_metric_value_enable=False,
            quota_producer_default=1_000_000,
            quota_consumer_default=UNLIMITED,
            controller_quota_window_num=1,
            controller_quota_window_size_seconds=3,
            max_connection_creation_rate=20,
            num_partitions=12,
        ),
        quotas=(
            QuotaRule(
                user=DEFAULT,
                client_id="etl",
                producer_byte_rate=1_572_864.0,
                enforcement=Enforcement.RESPOND,
                shaping=Shaping.SAMPLED,
                source="f.yaml:36",
            ),
            QuotaRule(client_id=DEFAULT, consumer_byte_rate=2_000.0, source="f.yaml:37"),
        ),
        principals=Principals(
            fold=(Fold(match="ANON(.*)", to="A\\1"),),
            exempt=frozenset({"ANONYMOUS"}),
            brokers=frozenset({"ANONYMOUS"}),
        ),
        admin=Admin(bind=Address(host="127.0.0.1", port=9308)),
        log=Log(format=LogFormat.JSON, level="debug"),
    )


def test_the_example_shows_every_key_and_is_valid() -> None:
    example = Path("config/example.yaml")

    found = load(example)

    assert found.warnings == ()
    written = example.read_text(encoding="utf-8")
    # The keys come from the schema, so the test fails if the example lacks a new key.
    for _, section in FILE.within():
        for key in section.keys:
            assert key in written, key


def test_null_lifts_the_limits_of_a_listener() -> None:
    nulls = "max_connections: null\n    login_timeout: null\n    idle_timeout: null\n    max_connection_age: null"

    (listener,) = loaded(listener_with(f"{nulls}\n    max_connections_per_ip: null")).config.listeners

    assert (listener.max_connections, listener.max_connections_per_ip) == (None, None)
    assert (listener.login_timeout_ms, listener.idle_timeout_ms, listener.max_connection_age_ms) == (None, None, None)


@each_case("text, expected", [("true", ProxyProtocol()), ("false", None)])
def test_the_proxy_protocol_is_required_or_off(text: str, expected: ProxyProtocol | None) -> None:
    (listener,) = loaded(listener_with(f"proxy_protocol: {text}")).config.listeners

    assert listener.proxy_protocol == expected


def test_the_hash_is_that_of_the_bytes() -> None:
    one, other = loaded(LISTENERS), loaded(LISTENERS + "# a comment\n")

    assert one.hash != other.hash
    assert one.hash == loaded(LISTENERS).hash
    assert len(one.hash) == 16


def test_all_faults_are_reported_at_once_in_order_of_lines() -> None:
    assert faults(
        """\
        listeners:
          - name: a
            bind: 0.0.0.0:99999
            upstrem: 127.0.0.1:19092
        shapng: paced
        quotas:
          - {client-id: x, producer_byte_rate: 10mib}
          - {client-id: x, producer_byte_rate: 1, producer_byte_rate: 2}
        """
    ) == [
        "f.yaml:2: listeners[0].upstream: is missing; write the address of the broker, such as 127.0.0.1:19092, "
        "or give bootstrap_servers",
        "f.yaml:3: listeners[0].bind: port 99999 is out of range; a port is at most 65535",
        "f.yaml:4: listeners[0].upstrem: unknown key; did you mean upstream?",
        "f.yaml:5: shapng: unknown key; did you mean shaping?",
        "f.yaml:7: quotas[0].producer_byte_rate: 'mib' is not a unit of byte rate; did you mean MiB?",
        "f.yaml:8: quotas[1].producer_byte_rate: is given twice, first in line 8; keep one of them",
        "f.yaml:8: quotas[1]: client-id x has a rule in line 7 already; put all limits of it into one rule",
        "f.yaml:8: quotas[1].producer_byte_rate: warning: 1 bytes per second is very little; is a unit missing, "
        "such as 1MiB?",
    ]


FAIR = "fair_call_queue: {{callqueue.impl: {}, decay-scheduler.period-ms: 9, weighted-cost.queue: 1, {}}}"


@each_case(
    "text, key",
    [
        (FAIR.format("lifo", "cost-provider.impl: weighted"), "fair_call_queue.callqueue.impl"),
        (FAIR.format("fair", "cost-provider.impl: 1"), "fair_call_queue.cost-provider.impl"),
        ("fair_call_queue: {max_in_flight: null}", "fair_call_queue.max_in_flight"),
        ("quotas: [{user: a, client-id: 7, connections: 1}, {user: a, connections: 1}]", "quotas[0].client-id"),
        ("quotas: [{client-id: a, user: null, connections: 1}]\nprincipals: {exempt: []}", "quotas[0].user"),
        ("quotas: [{user: a, connections: 1, enforcement: watch}]\nenforcement: observe", "quotas[0].enforcement"),
        ("quotas_from: 0.0.0.0:9092", "quotas_from"),
        ("testing: true\nadmin: 9644", "admin"),
        ("replication: {from_cluster: perhaps}\nprincipals: {brokers: [b]}", "replication.from_cluster"),
    ],
)
def test_an_invalid_value_leads_to_no_second_fault(text: str, key: str) -> None:
    assert [fault.split(": ")[1] for fault in faults(f"{LISTENERS}{text}\n")] == [key]


@each_case(
    "key, value, other",
    [("shaping", "even", "paced"), ("upstream", "b", "b:2"), ("node_id", "x", "1"), ("name", "''", "''")],
)
def test_an_invalid_value_of_one_listener_is_not_compared_with_another(key: str, value: str, other: str) -> None:
    listeners = [
        {"name": "a", "bind": "a:1", "upstream": "b:2"} | {key: value},
        {"name": "b", "bind": "a:3", "upstream": "b:2"} | {key: other},
    ]
    lines = ("".join(f", {name}: {given}" for name, given in one.items())[2:] for one in listeners)

    found = faults("listeners:\n" + "".join(f"  - {{{line}}}\n" for line in lines))

    assert {fault.split(": ")[1] for fault in found} <= {f"listeners[0].{key}", f"listeners[1].{key}"}
    assert len(found) == 1 + (value == other)


@each_case(
    "rule, hint",
    [
        ("{client_id: x, producer_byte_rate: 1MB}", "quotas[0].client_id: unknown key; did you mean client-id?"),
        ("{clientId: x, producer_byte_rate: 1MB}", "quotas[0].clientId: unknown key; did you mean client-id?"),
        ("{client-id: x, bind: 1, producer_byte_rate: 1MB}", "bind: unknown key; it belongs under listeners"),
        ("{client-id: x, zzz: 1, producer_byte_rate: 1MB}", "zzz: unknown key; known here: user, client-id"),
        ("{producer_byte_rate: 1MB}", "quotas[0]: names no entity"),
        ("{client-id: x}", "quotas[0]: limits nothing"),
        ("{client-id: x, enforcement: observe}", "quotas[0]: limits nothing"),
        ("{client-id: x, producer_byte_rate: }", "producer_byte_rate: has no value"),
        ("{client-id: x, producer_byte_rate: 0}", "must be above 0"),
        ("{client-id: x, producer_byte_rate: -1MB}", "cannot be negative"),
        ("{client-id: x, producer_byte_rate: .inf}", "must be finite"),
        ("{client-id: x, producer_byte_rate: yes}", "YAML reads yes as true or false"),
        ("{client-id: x, producer_byte_rate: [1MB]}", "must be bytes per second"),
        ("{client-id: x, producer_byte_rate: 0100000}", "YAML reads 0100000 as a number in octal"),
        (
            "{client-id: 7, producer_byte_rate: 1MB}",
            'client-id: must be a name or <default>; YAML reads 7 as a number, so quote it: "7"',
        ),
        ("{client-id: 007, producer_byte_rate: 1MB}", 'so quote it: "007"'),
        ("{client-id: 2024-01-01, producer_byte_rate: 1MB}", 'so quote it: "2024-01-01"'),
        ("{client-id: 1.5, producer_byte_rate: 1MB}", 'so quote it: "1.5"'),
        ("{client-id: null, producer_byte_rate: 1MB}", "client-id: has no value"),
        ("{client-id: '', producer_byte_rate: 1MB}", "client-id: must not be empty"),
        (
            "{client-id: x, producer_byte_rate: 1MB, enforcement: off}",
            "must be respond, delay or observe; YAML reads off",
        ),
        ("{client-id: x, producer_byte_rate: 1MB, shaping: smooth}", "must be sampled or paced, not 'smooth'"),
        ("{client-id: x, producer_byte_rate: 1MB, shaping: null}", "shaping: has no value"),
        ("just text", "quotas[0]: must be a mapping, not text"),
        ("{client-id: x, request_percentage: 0}", "request_percentage: a percentage must be above 0"),
        ("{client-id: x, request_percentage: 50%}", "'50%' is not a percentage; write a number such as 50"),
        ("{client-id: x, request_percentage: 3000000000}", "a percentage is at most 2147483647"),
        ("{client-id: x, request_percentage: .nan}", "a percentage must be finite"),
        ("{client-id: x, request_percentage: true}", "YAML reads true as true or false"),
        ("{client-id: x, request_rate: -1}", "a request rate cannot be negative"),
        ("{client-id: x, request_rate: 5/s}", "'5/s' is not a request rate; write a number such as 100"),
        ("{client-id: x, request_rate: }", "request_rate: has no value; write requests per second"),
        ("{client-id: x, controller_mutation_rate: 0}", "a mutation rate must be above 0"),
        ("{client-id: x, controller_mutation_rate: 5MB}", "'MB' is not a unit of mutation rate"),
        ("{client-id: x, connections: 0}", "connections: must be a whole number from 1 to 2147483647, open at once"),
        ("{client-id: x, connections: 2.5}", "connections: must be a whole number from 1"),
    ],
)
def test_a_faulty_rule_is_refused(rule: str, hint: str) -> None:
    fault = only_fault(f"{LISTENERS}quotas:\n  - {rule}\n")

    assert fault.startswith("f.yaml:3: quotas[0]")
    assert hint in fault


@each_case("value, hint", [("eth0", "is not an IP address"), ("10", "must be an IP address"), ("''", "empty")])
def test_an_invalid_upstream_bind_is_refused(value: str, hint: str) -> None:
    assert hint in only_fault(f"{LISTENERS}upstream_bind: {value}\n")


@each_case(
    "text, hint",
    [
        ("{}\n", "f.yaml:1: listeners: is missing"),
        ("listeners: []\n", "f.yaml:1: listeners: is empty"),
        ("listeners:\n", "f.yaml:1: listeners: must be a list, not nothing"),
        ("listeners: {name: a}\n", "f.yaml:1: listeners: must be a list, not a mapping"),
        ("listeners: [{bind: a:1, upstream: b:2}]\n", "listeners[0].name: is missing"),
        ("listeners: [{name: a, upstream: b:2}]\n", "listeners[0].bind: is missing"),
        ("listeners: [{name: a, bind: 9092, upstream: b:2}]\n", "bind: must be HOST:PORT"),
        ("listeners: [{name: a, bind: a:1, upstream: b:0}]\n", "port 0 is out of range for an upstream"),
        ("listeners: [{name: a, bind: a:1, upstream: b:2, inter_broker: 1}]\n", "must be true or false"),
        ("listeners: [{name: a, bind: a:1, upstream: b:2, max_frame_size: 2GiB}]\n", "must be from 1 to 2147483647"),
        ("listeners: [{name: a, bind: a:1, upstream: b:2, max_frame_size: 0}]\n", "must be from 1 to 2147483647"),
        ("listeners: [{name: a, bind: a:1, upstream: a:1}]\n", "a:1 is bound by this proxy in line 1"),
        ("listeners: [{name: a, bind: 0.0.0.0:1, upstream: localhost:1}]\n", "localhost:1 is bound by this proxy"),
        (LISTENERS + "max_throttle_time: 25\n", "25 has no unit"),
        (LISTENERS + "max_throttle_time: 0s\n", "must be above 0"),
        (LISTENERS + "max_throttle_time:\n", "has no value; write one, or the word null"),
        (LISTENERS + "max_throttle_time: 600h\n", "at most 2147483647ms"),
        (listener_with("max_connections: 0"), "must be a whole number from 1 to 2147483647, or null for no limit"),
        (listener_with("max_connections: "), "has no value; write one, or the word null for none"),
        (listener_with("max_connections_per_ip: 1.5"), "must be a whole number from 1"),
        (listener_with("max_connection_creation_rate: 0"), "must be a whole number from 1 to 2147483647, connections"),
        (listener_with("max_connection_creation_rate: null"), "must be a whole number from 1 to 2147483647, conn"),
        (LISTENERS + "kafka: {max.connection.creation.rate: 0}\n", "must be a whole number from 1 to 2147483647, conn"),
        (listener_with("login_timeout: 30"), "30 has no unit"),
        (listener_with("idle_timeout: 0s"), "must be above 0"),
        (listener_with("max_connection_age: "), "has no value; write one, or the word null for none"),
        (listener_with("max_connection_age: true"), "must be a duration such as 30s, or null for none"),
        (
            listener_with("proxy_protocol: required"),
            "must be false, true (each connection begins with a header) or {from",
        ),
        (listener_with("proxy_protocol: {form: [10.0.0.0/8]}"), "must be false, true"),
        (listener_with("proxy_protocol: {from: 10.0.0.0/8}"), "must be false, true"),
        (listener_with("proxy_protocol: {from: []}"), "from is empty, so no client could connect"),
        (listener_with("proxy_protocol: {from: [10.0.0.7/8]}"), "10.0.0.7/8 has host bits set; write a network"),
        (listener_with("proxy_protocol: {from: [balancer]}"), "write a network such as 10.0.0.0/8"),
        (listener_with("proxy_protocol: {from: [10]}"), "a network, such as 10.0.0.0/8"),
        (LISTENERS + "drain_timeout: 0s\n", "drain_timeout: must be above 0"),
        (LISTENERS + "drain_timeout: null\n", "drain_timeout: has no value"),
        (LISTENERS + "max_buffered: 1MiB\n", "max_buffered: must be 16MiB or more"),
        (LISTENERS + "burst: 0s\n", "burst: must be above 0"),
        (LISTENERS + "burst: null\n", "burst: has no value"),
        (LISTENERS + "request_time_scale: 0\n", "request_time_scale: must be a number from 0.1 to 10"),
        (LISTENERS + "max_buckets: 0\n", "max_buckets: must be a whole number from 1 to"),
        (LISTENERS + "quota.window.num: 5\n", "unknown key; it belongs under kafka"),
        (LISTENERS + "kafka: {quota.window.num: 1}\n", "must be a whole number from 2"),
        (LISTENERS + "kafka: {quota.window.size.seconds: 0}\n", "must be a whole number from 1"),
        (LISTENERS + "kafka: {quota.producer.default: 0}\n", "must be above 0"),
        (LISTENERS + "kafka: {client.quota.metric.value.enable: 'true'}\n", "must be true or false (without quotes)"),
        (LISTENERS + "quotas: {client-id: a}\n", "quotas: must be a list, not a mapping"),
        (LISTENERS + "principals: {exempt: [7]}\n", 'so quote it: "7"'),
        (LISTENERS + "principals: {brokers: [<default>]}\n", "<default> cannot be used here"),
        (LISTENERS + "principals: {fold: [{match: '(a', to: b}]}\n", "fold[0].match: is not a regular expression"),
        (LISTENERS + "principals: {fold: [{match: a, to: '\\1'}]}\n", "the pattern has no group 1"),
        (LISTENERS + "principals: {fold: [{match: a, to: '\\n'}]}\n", r"'\\n' is none of \1 to \99 and"),
        (LISTENERS + "principals: {fold: [{match: '(a)\\1', to: b}]}\n", "back-references and possessive repetitions"),
        (LISTENERS + "principals: {fold: [{match: 'a(?!b)', to: b}]}\n", "invalid perl operator: (?!"),
        (LISTENERS + "principals: {fold: [{to: x}]}\n", "fold[0].match: is missing"),
        (LISTENERS + "principals: {fold: [{match: x, to: ''}]}\n", "to: must not be empty"),
        (LISTENERS + "admin: {}\n", "admin.bind: is missing"),
        (LISTENERS + "admin: {bind: 127.0.0.1:9092}\n", "is already bound in line 1"),
        (LISTENERS + "admin: {bind: 127.0.0.1:1, metrics_bind: 127.0.0.1:1}\n", "metrics_bind: 127.0.0.1:1 is already"),
        (LISTENERS + "admin: {bind: 127.0.0.1:1, metrics_bind: null}\n", "admin.metrics_bind: "),
        (LISTENERS + "admin: {bind: 127.0.0.1:1, hosts: p.example}\n", "admin.hosts: must be a list, not text"),
        (LISTENERS + "admin: {bind: 127.0.0.1:1, hosts: ['p.example:9308']}\n", "is not a host name or an IP address"),
        (LISTENERS + "log: {level: INFO}\n", "must be debug, info, warning or error, not 'INFO'"),
        (LISTENERS + "log: {format: xml}\n", "must be text or json, not 'xml'"),
    ],
)
def test_a_faulty_key_is_refused(text: str, hint: str) -> None:
    assert hint in only_fault(text)


def test_two_rules_for_one_entity_are_a_fault_with_both_lines() -> None:
    fault = only_fault(
        LISTENERS
        + "quotas:\n"
        + "  - {user: <default>, client-id: etl, producer_byte_rate: 1MB}\n"
        + "  - {client-id: etl, producer_byte_rate: 1MB}\n"
        + "  - {user: '<default>', client-id: etl, consumer_byte_rate: 1MB}\n"
    )

    assert fault == (
        "f.yaml:5: quotas[2]: user <default>, client-id etl has a rule in line 3 already; "
        "put all limits of it into one rule"
    )


def test_a_bare_rate_below_1000_is_accepted_with_a_warning() -> None:
    text = f"{LISTENERS}quotas: [{{client-id: a, producer_byte_rate: 999, consumer_byte_rate: 1000}}]\n"

    assert warnings(text) == [
        "f.yaml:2: quotas[0].producer_byte_rate: warning: 999 bytes per second is very little; is a unit missing, "
        "such as 999MiB?"
    ]
    assert loaded(text).config.quotas[0].limits["producer_byte_rate"] == 999.0


def test_the_windows_of_mutations_may_be_a_single_one() -> None:
    found = loaded(
        f"{LISTENERS}kafka: {{controller.quota.window.num: 1, controller.quota.window.size.seconds: 3, "
        "max.connection.creation.rate: 20}\n"
    )

    assert found.warnings == ()
    assert found.config.kafka == KafkaSettings(
        controller_quota_window_num=1, controller_quota_window_size_seconds=3, max_connection_creation_rate=20
    )


def test_num_partitions_is_read() -> None:
    found = loaded(f"{LISTENERS}kafka: {{num.partitions: 12}}\n")

    assert found.warnings == ()
    assert found.config.kafka == KafkaSettings(num_partitions=12)
    assert loaded(LISTENERS).config.kafka.num_partitions == 1


def test_a_listeners_limit_of_connections_per_second_is_read() -> None:
    limited, unlimited = (
        loaded(listener_with(key)).config.listeners[0] for key in ("max_connection_creation_rate: 7", "")
    )

    assert (limited.max_connection_creation_rate, unlimited.max_connection_creation_rate) == (7, None)


def test_the_oauthbearer_claim_is_a_setting_of_a_listener() -> None:
    text = """
        listeners:
          - {name: a, bind: 'h:1', upstream: 'h:2'}
          - {name: b, bind: 'h:3', upstream: 'h:2', sasl: {oauthbearer_claim: azp}}
    """

    assert [one.sasl.oauthbearer_claim for one in loaded(text).config.listeners] == ["sub", "azp"]


def test_an_empty_oauthbearer_claim_is_refused() -> None:
    listeners = LISTENERS.replace("}]", ", sasl: {oauthbearer_claim: ''}}]")

    assert only_fault(listeners) == (
        "f.yaml:1: listeners[0].sasl.oauthbearer_claim: must not be empty; write the name of a claim, such as sub"
    )


def test_errors_and_warnings_have_different_severities() -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(f"{LISTENERS}shapng: 1\nquotas: [{{client-id: a, producer_byte_rate: 1}}]\n")

    assert [fault.severity for fault in caught.value.faults] == [Severity.ERROR, Severity.WARNING]


@each_case("text, what", [("", "is empty"), ("# all\n", "is empty"), ("- a\n", "is a list"), ("a\n", "is text")])
def test_a_file_that_is_no_mapping_is_refused(text: str, what: str) -> None:
    assert only_fault(text).startswith(f"f.yaml:1: (file): {what}; a configuration is a mapping")


def test_a_syntax_error_is_the_only_fault() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:2: \(yaml\): "):
        loaded("shapng: x\nlisteners: [\n")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml:1: \(file\): cannot be read: No such file"):
        load(tmp_path / "absent.yaml")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path)


def test_bytes_that_are_not_utf_8_are_refused_with_their_line() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml:2: \(file\): byte 0xff is not UTF-8"):
        load_bytes(b"a: 1\nb: \xff\n", file="f.yaml")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + LISTENERS.encode())

    assert load(path).config.listeners[0].name == "clients"


def test_the_sources_of_kafkas_keys_are_known() -> None:
    found = loaded(f"{LISTENERS}kafka:\n  quota.window.num: 5\n  quota.producer.default: 1MB\n")

    assert found.kafka_sources == {"quota.window.num": "f.yaml:3", "quota.producer.default": "f.yaml:4"}


def test_thousands_of_rules_are_loaded_each_with_its_line() -> None:
    rules = "".join(f"  - {{client-id: c{n}, producer_byte_rate: {n + 1}MiB}}\n" for n in range(2_000))

    config = loaded(f"{LISTENERS}quotas:\n{rules}").config

    assert [rule.source for rule in config.quotas] == [f"f.yaml:{n + 3}" for n in range(2_000)]
    assert config.quotas[-1].limits.get("producer_byte_rate") == 2_000 * 1_048_576


def test_a_cluster_is_given_by_its_bootstrap_servers() -> None:
    config = loaded(
        """\
        listeners:
          - name: laptop
            bind: 127.0.0.1:9192
            bootstrap_servers: broker1:9092, broker2:9092,broker1:9092
            advertised_host: proxy.example
            broker_ports: 9300-9309
        """
    ).config

    servers = (Address(host="broker1", port=9092), Address(host="broker2", port=9092))
    assert config.listeners[0].upstream is None
    assert config.listeners[0].cluster == Cluster(
        bootstrap_servers=servers, advertised_host="proxy.example", first_port=9300, last_port=9309
    )


def test_the_brokers_of_a_cluster_have_the_hundred_ports_behind_the_bootstrap_port() -> None:
    config = loaded("listeners: [{name: a, bind: '[::1]:9192', bootstrap_servers: [b:1, c:2]}]\n").config

    cluster = config.listeners[0].cluster
    assert cluster
    assert (cluster.advertised_host, cluster.first_port, cluster.last_port) == ("::1", 9193, 9292)
    assert [cluster.port_of(node_id) for node_id in (-1, 0, 99, 100)] == [None, 9193, 9292, None]


@each_case(
    "listener, fault",
    [
        ("bind: a:1, upstream: b:2, bootstrap_servers: c:3", "bootstrap_servers: cannot be given with upstream"),
        ("bind: a:1, upstream: b:2, advertised_host: c", "advertised_host: belongs to bootstrap_servers"),
        ("bind: a:1, upstream: b:2, broker_ports: 3-4", "broker_ports: belongs to bootstrap_servers"),
        ("bind: '[::]:1', bootstrap_servers: b:2", "advertised_host: is missing; clients cannot connect to ::"),
        ("bind: a:0, bootstrap_servers: b:2", "broker_ports: is missing; bind to port 0"),
        ("bind: a:65500, bootstrap_servers: b:2", "broker_ports: is missing; behind port 65500 there is no room for"),
        ("bind: a:1, bootstrap_servers: 'b:2,c'", "bootstrap_servers: 'c' is not an address"),
        ("bind: a:1, bootstrap_servers: []", "bootstrap_servers: must be HOST:PORT,HOST:PORT"),
        ("bind: a:1, bootstrap_servers: b:0", "bootstrap_servers: b:0 has port 0"),
        ("bind: a:1, bootstrap_servers: 'b:2,a:1'", "bootstrap_servers: a:1 is bound by this proxy in line 1"),
        ("bind: a:1, bootstrap_servers: b:2, advertised_host: 'c:3'", "advertised_host: 'c:3' is not a host name"),
        ("bind: '*:1', bootstrap_servers: b:2", "bind: '*:1' names no address; write 0.0.0.0:1 to listen on all"),
        ("bind: a:1, bootstrap_servers: '*:2'", "bootstrap_servers: '*:2' is not an address; write HOST:PORT"),
        ("bind: '[::0]:1', bootstrap_servers: b:2", "advertised_host: is missing; clients cannot connect to ::0"),
        ("bind: 'a:1', bootstrap_servers: 'b:2', advertised_host: '*'", "advertised_host: '*' is not a host name or"),
        (
            "bind: 'a:1', bootstrap_servers: 'b:2', advertised_host: 0.0.0.0",
            "advertised_host: no client can connect to 0.0.0.0, which means all addresses; write the host that clients",
        ),
        ("bind: 'a:1', bootstrap_servers: 'b:2', advertised_host: '::'", "advertised_host: no client can connect to :"),
        ("bind: a:1, bootstrap_servers: b:2, broker_ports: 9000", "broker_ports: must be FIRST-LAST"),
        ("bind: a:1, bootstrap_servers: b:2, broker_ports: 9-8", "broker_ports: '9-8' is not a range within"),
        ("bind: a:1, bootstrap_servers: b:2, broker_ports: 9-99999", "broker_ports: '9-99999' is not a range within"),
        ("bind: a:1, bootstrap_servers: b:2, broker_ports: 9 to 10", "broker_ports: '9 to 10' is not a range of ports"),
        ("bind: a:5, bootstrap_servers: b:2, broker_ports: 1-9", "broker_ports: 5 is already bound in line 1"),
    ],
)
def test_a_faulty_cluster_is_refused(listener: str, fault: str) -> None:
    assert f"f.yaml:1: listeners[0].{fault}" in only_fault(f"listeners: [{{name: x, {listener}}}]\n")


@each_case(
    "section, fault",
    [
        ("admin: {bind: '*:1'}", "admin.bind: '*:1' names no address; write 0.0.0.0:1 to listen on all of them"),
        ("admin: {bind: 'a:1', metrics_bind: '*:2'}", "admin.metrics_bind: '*:2' names no address; write 0.0.0.0:2"),
        ("usage_log: {kafka: {bootstrap_servers: '*:1'}}", "usage_log.kafka.bootstrap_servers: '*:1' is not an addr"),
    ],
)
def test_an_address_that_nobody_can_use_is_refused(section: str, fault: str) -> None:
    assert f"f.yaml:2: {fault}" in "\n".join(faults(f"{LISTENERS}{section}\n"))


@each_case("bind", ["0.0.0.0:9092", "'[::]:9092'", "127.0.0.1:0"])
def test_an_address_on_which_one_can_listen_is_no_fault(bind: str) -> None:
    more = "advertised_host: proxy, broker_ports: 9093-9099"

    assert warnings(f"listeners: [{{name: a, bind: {bind}, bootstrap_servers: 'b:2', {more}}}]\n") == []


CLIENT_TLS = """\
listeners:
  - name: clients
    bind: 0.0.0.0:9092
    upstream: 127.0.0.1:19092
    client_tls:
      certificate: a.pem
      key: a.key
"""


def test_tls_of_a_listener() -> None:
    (listener,) = loaded(
        CLIENT_TLS
        + """\
      client_ca: ca.pem
      client_auth: requested
      principal_mapping_rules: ["RULE:^CN=(.*?),.*$/$1/L", "RULE:a/b/, DEFAULT"]
      min_version: 1.3
    upstream_tls: {certificate: b.pem, key: b.key, check_hostname: false}
"""
    ).config.listeners

    assert listener.client_tls is not None
    assert (listener.client_tls.certificate, listener.client_tls.client_ca) == ("a.pem", "ca.pem")
    assert listener.client_tls.client_auth is ClientAuth.REQUESTED
    assert listener.client_tls.min_version is TlsVersion.TLS_1_3
    rules = [rule.source for rule in listener.client_tls.principal_mapping_rules]
    assert rules == ["RULE:^CN=(.*?),.*$/$1/L", "RULE:a/b/", "DEFAULT"]
    assert listener.upstream_tls == UpstreamTls(certificate="b.pem", key="b.key", check_hostname=False)


def test_without_rules_the_whole_name_is_the_user() -> None:
    (listener,) = loaded(f"{CLIENT_TLS}    upstream_tls: {{}}\n").config.listeners

    assert listener.client_tls is not None
    assert listener.client_tls.principal_mapping_rules == DEFAULT_RULES
    assert listener.upstream_tls == UpstreamTls()


ASKING = "      client_auth: requested\n      client_ca: ca\n"


@each_case(
    "text, hint",
    [
        ("      client_auth: required\n", "client_tls.client_ca: is missing; without it no client's certificate"),
        ("      client_auth: perhaps\n", "client_tls.client_auth: "),
        ("      client_ca: ca.pem\n", "client_tls.client_ca: has no effect, since clients are not asked"),
        ("      principal_mapping_rules: [DEFAULT]\n", "principal_mapping_rules: has no effect"),
        (
            f"{ASKING}      principal_mapping_rules: ['a']\n",
            "'a' does not begin with a rule",
        ),
        (f"{ASKING}      principal_mapping_rules: []\n", "is empty"),
        ("      min_version: 1.1\n", "client_tls.min_version: "),
        ("      ca: ca.pem\n", "client_tls.ca: "),
        (
            "    upstream_tls: {certificate: b.pem}\n",
            "upstream_tls.key: is missing; certificate has no effect without it",
        ),
        ("    upstream_tls: {key: b.key}\n", "upstream_tls.certificate: is missing"),
        ("    upstream_tls:\n", "upstream_tls: must be a mapping"),
        ("    upstream_tls: {check_hostname: 1}\n", "upstream_tls.check_hostname: must be true or false"),
    ],
)
def test_a_fault_of_tls(text: str, hint: str) -> None:
    assert hint in only_fault(CLIENT_TLS + text)


def test_a_tls_section_without_its_files_is_refused() -> None:
    found = faults("listeners: [{name: a, bind: a:1, upstream: b:2, client_tls: {}}]\n")

    assert ["certificate: is missing; write the path" in found[0], "key: is missing; write the path" in found[1]] == [
        True,
        True,
    ]


def test_listeners_of_one_broker_have_equal_upstream_tls() -> None:
    fault = only_fault(
        "listeners:\n- {name: a, bind: a:1, upstream: b:2}\n- {name: b, bind: a:3, upstream: b:2, upstream_tls: {}}\n"
    )

    assert fault == (
        "f.yaml:3: listeners[1].upstream_tls: the listener in line 2 has another upstream_tls and the same upstream; "
        "give both the same"
    )


LONG = 2_000_000


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        (
            f"quotas: [{{user: a, producer_byte_rate: {'9' * LONG}}}]",
            "quotas[0].producer_byte_rate",
            f"must be bytes per second, such as 10MB or 10MiB; YAML reads {'9' * 60}… as a number of {LONG} digits",
        ),
        (f"quotas: [{{user: -{'9' * LONG}, producer_byte_rate: 1MB}}]", "quotas[0].user", "so quote it"),
        (f"max_buckets: {'9' * LONG}", "max_buckets", "must be a whole number from"),
        (f"testing: {'9' * LONG}", "testing", "must be true or false"),
        (f"enforcement: {'x' * LONG}", "enforcement", "must be respond, delay or observe, not 'xxx"),
        (f"enforcement: {'x y ' * LONG}z", "enforcement", "must be respond, delay or observe, not 'x y"),
        (f"testing: !!bool {'x' * LONG}", "testing", "is not what its tag"),
        (f"? {'x' * LONG}\n: 1", "x" * 50, "unknown key"),
    ],
    ids=["rate", "name", "whole number", "boolean", "word", "words", "tag", "key"],
)
def test_a_huge_value_is_shown_once_and_shortened(text: str, key: str, said: str) -> None:
    (told, *more) = faults(f"{LISTENERS}{text}\n")

    assert told.startswith(f"f.yaml:2: {key}"), told[:200]
    assert said in told
    assert len(told) < 2_500
    assert len(more) == ("tag" in said)  # a wrong tag has its own line, as for a short value


@each_case("quota", ["producer_byte_rate: 1MB", "producer_byte_rate: fast"])
def test_nodes_of_a_list_are_freed_one_by_one(quota: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step, those of 100,000 rules would hold the interpreter, and so the event loop, for 0.1 s."""
    documents: list[Document] = []

    def parsed(text: str, *, file: str) -> Document:
        documents.append(parse(text, file=file))
        return documents[0]

    monkeypatch.setattr(load_module, "parse", parsed)

    with suppress(ConfigError):
        load_bytes(f"{LISTENERS}quotas: [{{user: a, {quota}}}]\n".encode(), file="f")

    (document,) = documents
    assert isinstance(document.root, MappingNode)
    assert [section.value for _, section in document.root.value] == [[], []]
