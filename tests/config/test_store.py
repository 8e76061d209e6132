"""Tests the values, faults and warnings of ``store`` and ``principals.admins``."""

import pytest

from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.load import Loaded, load_bytes
from kafka_quota_proxy.config.model import Store
from tests.support.cases import each_case

LISTENERS = "listeners: [{name: a, bind: '127.0.0.1:9092', upstream: '127.0.0.1:19092'}]\n"

FROM_TOPIC = "quotas_from: {kafka: {bootstrap_servers: 'k:9092', topic: t}}\n"


def loaded(text: str) -> Loaded:
    return load_bytes((LISTENERS + text).encode(), file="conf/f.yaml")


def fault(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    (only,) = caught.value.faults
    return str(only)


def test_a_store_and_its_administrators_are_read() -> None:
    found = loaded("store: {directory: quotas.d}\nprincipals: {admins: [admin, 'CN=ops']}\n")

    assert found.config.store == Store(directory="conf/quotas.d")
    assert found.config.principals.admins == {"admin", "CN=ops"}
    assert found.warnings == ()


def test_a_store_may_be_a_topic() -> None:
    found = loaded(
        "store:\n"
        "  kafka: {bootstrap_servers: 'k:9092', topic: t.q, security_protocol: SSL, ssl_cafile: ca.pem}\n"
        "principals: {admins: [admin]}\n"
    )

    store = found.config.store
    assert store is not None
    assert (store.directory, str(store)) == (None, "kafka://k:9092/t.q")
    assert store.topic is not None
    assert store.topic.client.ssl_cafile == "conf/ca.pem"
    assert found.warnings == ()


def test_without_the_section_there_is_no_store_and_no_administrator() -> None:
    config = loaded("").config

    assert config.store is None
    assert config.principals.admins == frozenset()


def test_the_rate_of_changes_and_the_audit_log_are_read() -> None:
    store = loaded("store: {directory: d, changes_per_second: 2.5, audit_log: a.jsonl}\n").config.store
    unlimited = loaded("store: {directory: d, changes_per_second: null}\n").config.store

    assert store == Store(directory="conf/d", changes_per_second=2.5, audit_log="conf/a.jsonl")
    assert unlimited == Store(directory="conf/d", changes_per_second=None)
    assert Store(directory="d").changes_per_second == 100


def test_a_token_file_is_enough_to_change_the_store() -> None:
    found = loaded("store: {directory: d}\nadmin: {bind: '127.0.0.1:0', quotas_token_file: t}\n")

    assert found.config.admin is not None
    assert found.config.admin.quotas_token_file == "conf/t"  # noqa: S105 - a path
    assert found.warnings == ()


@each_case(
    "text, said",
    [
        (
            "store: {}\nprincipals: {admins: [a]}\n",
            "conf/f.yaml:2: store: has no location; give directory, or for several proxies kafka",
        ),
        ("store: {directory: ''}\nprincipals: {admins: [a]}\n", "conf/f.yaml:2: store.directory: "),
        (
            "store: {directory: d, changes_per_second: 0}\nprincipals: {admins: [a]}\n",
            "conf/f.yaml:2: store.changes_per_second: a rate of changes",
        ),
        (
            "store:\n  directory: d\n  changes_per_second:\nprincipals: {admins: [a]}\n",
            "conf/f.yaml:4: store.changes_per_second: has no value",
        ),
        (
            "admin: {bind: '127.0.0.1:0', quotas_token_file: 7}\nstore: {directory: d}\n",
            "conf/f.yaml:2: admin.quotas_token_file: must be the path of a file",
        ),
        (
            "store: {kafka: {topic: t}}\nprincipals: {admins: [a]}\n",
            "conf/f.yaml:2: store.kafka.bootstrap_servers: is missing; write brokers of the topic's cluster",
        ),
        (
            "store:\n  kafka: {bootstrap_servers: 'k:9', sasl_mechanism: PLAIN}\nprincipals: {admins: [a]}\n",
            "conf/f.yaml:3: store.kafka.",
        ),
        (
            f"{FROM_TOPIC}store: {{kafka: {{bootstrap_servers: 'k:9092'}}}}\n",
            "conf/f.yaml:3: store: cannot be given with quotas_from",
        ),
        (
            "store: {directory: d, kafka: {bootstrap_servers: 'k:9'}}\nprincipals: {admins: [a]}\n",
            "conf/f.yaml:2: store.directory: cannot be given with kafka",
        ),
        ("principals:\n  admins:\n  - UNKNOWN\n", "conf/f.yaml:4: principals.admins[0]: UNKNOWN is every client"),
        (
            "principals: {forward_quota_requests: true}\n",
            "conf/f.yaml:2: principals.forward_quota_requests: no longer exists",
        ),
        (
            f"{FROM_TOPIC}principals:\n  admins: [a]\n",
            "conf/f.yaml:4: principals.admins: cannot be given with quotas_from in line 2; administrators would",
        ),
        (
            "quotas_from: broker\nprincipals:\n  admins: [a]\n",
            "conf/f.yaml:4: principals.admins: cannot be given with quotas_from in line 2; requests about quotas go",
        ),
        (
            "quotas_from: {broker: {}}\nstore: {directory: d}\n",
            "conf/f.yaml:3: store: cannot be given with quotas_from",
        ),
    ],
)
def test_a_faulty_store_is_refused_with_its_line(text: str, said: str) -> None:
    assert fault(text).startswith(said)


def test_administrators_with_quotas_from_are_refused() -> None:
    assert loaded(f"{FROM_TOPIC}principals: {{admins: []}}\n").config.principals.admins == frozenset()


@each_case(
    "text, said",
    [
        ("store: {directory: d}\n", "conf/f.yaml:2: store: warning: has no user who may change quotas"),
        (
            "admin: {bind: '127.0.0.1:0', quotas_token_file: t}\n",
            "conf/f.yaml:2: admin.quotas_token_file: warning: is for changing quotas, but quotas cannot be changed",
        ),
        (
            "store: {directory: d}\nprincipals: {admins: [a, ANONYMOUS]}\n",
            "conf/f.yaml:3: principals.admins[1]: warning: ANONYMOUS is every client without a login",
        ),
    ],
)
def test_doubtful_settings_of_a_store_are_warnings(text: str, said: str) -> None:
    (warning,) = loaded(text).warnings

    assert said in str(warning)
