"""Tests the section ``replication``, with its rates and lists of replicas, and its faults."""

from pathlib import Path

import pytest

from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.model import Address, AdminClient, Replication
from kafka_quota_proxy.config.security import SaslMechanism, SecurityProtocol
from kafka_quota_proxy.config.throttled_replicas import ALL_REPLICAS, parse
from tests.config.test_load import faults, loaded
from tests.support.cases import each_case

LISTENERS = "listeners: [{name: a, bind: '127.0.0.1:1', upstream: 'k:1', inter_broker: true}]\n"
UNTRUSTED = "listeners: [{name: a, bind: 'h:1', upstream: 'k:1'}]\n"
RATE = "leader.replication.throttled.rate: 50MiB"


def replication(section: str) -> Replication:
    found = loaded(f"{LISTENERS}replication: {{{section}}}\n").config.replication
    assert found is not None
    return found


def only_fault(section: str, listeners: str = LISTENERS) -> str:
    (fault,) = faults(f"{listeners}replication: {{{section}}}\n")
    return fault


def warnings(section: str, listeners: str = LISTENERS) -> list[str]:
    return [str(warning) for warning in loaded(f"{listeners}replication: {{{section}}}\n").warnings]


def test_without_the_section_no_replica_is_throttled() -> None:
    assert loaded(LISTENERS).config.replication is None


def test_every_key_reaches_the_model() -> None:
    found = loaded(
        """\
        listeners: [{name: a, bind: '127.0.0.1:1', upstream: 'k:1', inter_broker: true, node_id: 1},
          {name: b, bind: '127.0.0.1:2', upstream: 'k:2', inter_broker: true, node_id: 2}]
        kafka: {replication.quota.window.num: 5, replication.quota.window.size.seconds: 2}
        replication:
          leader.replication.throttled.rate: 50MiB
          follower.replication.throttled.rate: 20MB
          throttled.replicas: {orders: "0:3", a.b-c_D: "*"}
          poll_interval: 5s
          admin_client:
            bootstrap_servers: [k1:9092, k2:9092]
            security_protocol: SASL_SSL
            sasl_mechanism: SCRAM-SHA-512
            sasl_username: proxy
            sasl_password_file: /run/password
            ssl_cafile: ca.pem
            ssl_certfile: cert.pem
            ssl_keyfile: key.pem
            ssl_check_hostname: false
        """
    )

    assert found.warnings == ()
    assert found.config.listeners[0].node_id == 1
    assert found.config.kafka.replication_quota_window_num == 5
    assert found.config.kafka.replication_quota_window_size_seconds == 2
    assert found.config.replication == Replication(
        leader_rate=52_428_800.0,
        follower_rate=20_000_000.0,
        leader_replicas={"orders": parse("0:3"), "a.b-c_D": ALL_REPLICAS},
        follower_replicas={"orders": parse("0:3"), "a.b-c_D": ALL_REPLICAS},
        poll_interval_ms=5_000,
        admin_client=AdminClient(
            bootstrap_servers=(Address(host="k1", port=9092), Address(host="k2", port=9092)),
            security_protocol=SecurityProtocol.SASL_SSL,
            sasl_mechanism=SaslMechanism.SCRAM_SHA_512,
            sasl_username="proxy",
            sasl_password_file="/run/password",  # noqa: S106
            ssl_cafile="ca.pem",
            ssl_certfile="cert.pem",
            ssl_keyfile="key.pem",
            ssl_check_hostname=False,
        ),
    )


def test_a_rate_without_lists_is_for_every_replica_that_lags() -> None:
    assert replication(RATE) == Replication(leader_rate=52_428_800.0)


def test_a_rate_of_0_is_valid_as_in_kafka() -> None:
    found = replication("leader.replication.throttled.rate: 0, follower.replication.throttled.rate: 0B")

    assert (found.leader_rate, found.follower_rate) == (0.0, 0.0)


def test_one_list_is_for_both_sides() -> None:
    found = replication(f'{RATE}, throttled.replicas: {{orders: "*", payments: "0:1,1:2"}}')

    assert found.leader_replicas == {"orders": ALL_REPLICAS, "payments": parse("0:1,1:2")}
    assert found.follower_replicas == found.leader_replicas


def test_the_settings_may_come_from_the_cluster() -> None:
    assert replication("from_cluster: true").from_cluster


def test_the_documented_section_is_valid() -> None:
    text = """\
        listeners:
          - {name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}
        principals: {brokers: [broker1, broker2]}
        replication:
          leader.replication.throttled.rate: 50MiB
          follower.replication.throttled.rate: 50MiB
          throttled.replicas: {orders: "*", payments: "0:1,1:2"}
          from_cluster: false                 # true: read the three above from the cluster's own dynamic configs
        """

    (warning,) = map(str, loaded(text).warnings)

    assert warning == (
        "f.yaml:7: replication.throttled.replicas: warning: there is no broker to ask for topic ids: followers that "
        "use them are not throttled; give admin_client.bootstrap_servers, or inter_broker: true to the "
        "listener in front of a broker"
    )


def test_paths_of_files_start_from_the_configurations_directory(tmp_path: Path) -> None:
    admin_client = (
        "{security_protocol: SASL_PLAINTEXT, sasl_mechanism: PLAIN, sasl_username: u, sasl_password_file: secret}"
    )
    text = f"{LISTENERS}replication: {{from_cluster: true, admin_client: {admin_client}}}\n"
    (tmp_path / "f.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "secret").write_text("p\n", encoding="utf-8")

    found = load(tmp_path / "f.yaml").config.replication

    assert found is not None
    assert found.admin_client.sasl_password_file == str(tmp_path / "secret")


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    admin_client = "{security_protocol: SSL, ssl_cafile: missing.pem}"
    text = f"{LISTENERS}replication: {{from_cluster: true, admin_client: {admin_client}}}\n"
    (tmp_path / "f.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "f.yaml")

    key = f"{tmp_path / 'f.yaml'}:2: replication.admin_client.ssl_cafile"
    assert str(caught.value) == f"{key}: {tmp_path / 'missing.pem'} cannot be read: No such file or directory"
    assert load(tmp_path / "f.yaml", reads_files=False).config.replication


def test_a_name_that_no_file_can_have_is_a_fault(tmp_path: Path) -> None:
    admin_client = '{security_protocol: SSL, ssl_cafile: "a\\0b"}'
    text = f"{LISTENERS}replication: {{from_cluster: true, admin_client: {admin_client}}}\n"
    (tmp_path / "f.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"ssl_cafile: .* cannot be read: embedded null byte"):
        load(tmp_path / "f.yaml")


@each_case(
    "section, fault",
    [
        (f"{RATE}, throttled_replicas: {{}}", "throttled_replicas: unknown key; did you mean throttled.replicas?"),
        ("leader.replication.throttled.rate: 5MX", "'MX' is not a unit of byte rate"),
        ("leader.replication.throttled.rate: -1", "a byte rate cannot be negative"),
        ("leader.replication.throttled.rate: null", "has no value"),
        (f"{RATE}, poll_interval: 2", "has no unit"),
        (f"{RATE}, poll_interval: 100ms", "must be from 200ms"),
        ("from_cluster: true, lease: 10m", "lease: no longer exists: the throttle of the cluster holds here as long"),
        (f"{RATE}, from_cluster: perhaps", "must be true or false"),
        (f"{RATE}, throttled.replicas: null", "throttled.replicas: must be a mapping of topics, not nothing"),
        (f'{RATE}, throttled.replicas: ["*"]', "must be a mapping of topics, not a list"),
        (f'{RATE}, throttled.replicas: {{a/b: "*"}}', "throttled.replicas.a/b: 'a/b' is not the name of a topic"),
        (f'{RATE}, throttled.replicas: {{..: "*"}}', "'..' is not the name of a topic"),
        (f'{RATE}, throttled.replicas: {{{"a" * 250}: "*"}}', "is not the name of a topic: 1 to 249 letters"),
        (f"{RATE}, throttled.replicas: {{a: 1:2}}", "YAML reads 1:2 as a number in octal, hexadecimal or base 60, so"),
        (
            f'{RATE}, throttled.replicas: {{a: "0:1,2"}}',
            "throttled.replicas.a: '2' is not a replica; write \"*\"",
        ),
        (f'{RATE}, throttled.replicas: {{a: "*,0:1"}}', "'*' cannot be given with other items"),
        (
            f'{RATE}, leader.replication.throttled.replicas: {{a: "*"}}',
            "leader.replication.throttled.replicas: no longer exists; write throttled.replicas, or from_cluster: true",
        ),
        (f"{RATE}, from_cluster: true", "leader.replication.throttled.rate: cannot be given with from_cluster: true"),
        (
            'from_cluster: true, throttled.replicas: {a: "*"}',
            "throttled.replicas: cannot be given with from_cluster: true",
        ),
        (f"{RATE}, paths: []", "replication.paths: no longer exists"),
        ("from_cluster: true, admin_client: {}, x: 1", "replication.x: unknown key; known here: leader.replication"),
        ("from_cluster: true, admin_client: null", "admin_client: must be a mapping, not nothing"),
        ("from_cluster: true, admin_client: {bootstrap_servers: k}", "is not an address"),
        ("from_cluster: true, admin_client: {security_protocol: TLS}", "must be PLAINTEXT, SSL, SASL_PLAINTEXT or"),
        ("from_cluster: true, admin_client: {ssl_cafile: f}", "has no effect with security_protocol PLAINTEXT"),
        ("from_cluster: true, admin_client: {sasl_username: u}", "has no effect with security_protocol PLAINTEXT"),
        (
            "from_cluster: true, admin_client: {security_protocol: SSL, ssl_keyfile: f}",
            "ssl_certfile: is missing; ssl_keyfile has no effect without it",
        ),
        (
            "from_cluster: true, admin_client: {security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: u}",
            "sasl_password_file: is missing; security_protocol SASL_SSL needs it",
        ),
    ],
)
def test_a_faulty_section_is_refused(section: str, fault: str) -> None:
    found = only_fault(section)

    assert found.startswith("f.yaml:2: replication")
    assert fault in found


def test_a_section_without_keys_is_refused() -> None:
    assert faults(f"{LISTENERS}replication:\n") == [
        "f.yaml:2: replication: must be a mapping, not nothing; its keys are leader.replication.throttled.rate, "
        "follower.replication.throttled.rate, throttled.replicas, from_cluster, poll_interval, admin_client"
    ]


def test_a_topic_is_found_in_its_line() -> None:
    (fault,) = faults(f'{LISTENERS}replication:\n  {RATE}\n  throttled.replicas:\n    a: "*"\n    b: none\n')

    assert fault.startswith("f.yaml:6: replication.throttled.replicas.b: 'none' is not a replica")


def test_the_clusters_throttles_need_a_broker_to_ask() -> None:
    listeners = f"{UNTRUSTED}principals: {{brokers: [b]}}\n"

    (found,) = faults(f"{listeners}replication: {{from_cluster: true}}\n")

    assert "from_cluster: there is no broker to ask; give admin_client.bootstrap_servers" in found
    assert warnings("from_cluster: true, admin_client: {bootstrap_servers: 'k:1'}", listeners) == []


def test_a_small_rate_is_a_warning() -> None:
    found = warnings("leader.replication.throttled.rate: 50")

    assert found == [
        "f.yaml:2: replication.leader.replication.throttled.rate: warning: 50 bytes per second is very little; is a "
        "unit missing, such as 50MiB?",
    ]


def test_a_section_that_throttles_nothing_is_a_warning() -> None:
    assert [
        line
        for line in warnings(RATE, UNTRUSTED)
        if "replication: warning: nothing is throttled: replicas are recognised" in line
    ]
    assert [line for line in warnings("poll_interval: 1s") if "nothing is throttled, because there is no rate" in line]


@each_case(
    "others, fault",
    [
        ("{name: b, bind: 'h:2', upstream: 'k:1', node_id: 2}", "the same upstream has node id 1 in line 2"),
        ("{name: b, bind: 'h:2', bootstrap_servers: 'k:2', broker_ports: 5-9, node_id: 1}", "belongs to upstream"),
        ("{name: b, bind: 'h:2', upstream: 'k:2', node_id: x}", "must be a whole number from 0"),
    ],
)
def test_one_broker_with_two_node_ids_is_refused(others: str, fault: str) -> None:
    (found,) = faults(f"listeners:\n  - {{name: a, bind: 'h:1', upstream: 'k:1', node_id: 1}}\n  - {others}\n")

    assert found.startswith("f.yaml:3: listeners[1].node_id: ")
    assert fault in found


def test_listeners_in_front_of_one_broker_may_both_name_it() -> None:
    text = (
        "listeners:\n"
        "  - {name: a, bind: 'h:1', upstream: 'k:1', node_id: 1}\n"
        "  - {name: b, bind: 'h:2', upstream: 'k:1', node_id: 1}\n"
    )

    assert [listener.node_id for listener in loaded(text).config.listeners] == [1, 1]
