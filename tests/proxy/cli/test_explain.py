"""Tests that ``explain`` names the quota in force and its level, and says why the other levels do not count."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.rules.model import Change, StoredRule
from kafka_quota_proxy.proxy.rules.model import Entity as StoredEntity
from tests.support.stores import damage_header, set_version, write_rules

CONFIG = """\
listeners:
  - {name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}
  - {name: shadow, bind: 127.0.0.1:9093, upstream: 127.0.0.1:19093, enforcement: observe, shaping: paced}
max_throttle_time: 5s
burst: 2s
kafka: {quota.consumer.default: 2MB}
quotas:
  - {user: alice, client-id: etl, producer_byte_rate: 10MiB, consumer_byte_rate: 20MiB}
  - {user: alice, client-id: <default>, producer_byte_rate: 5MiB}
  - {user: <default>, producer_byte_rate: 1MiB, enforcement: delay}
  - {client-id: etl, producer_byte_rate: 3MiB}
principals: {fold: [{match: 'alice-[0-9]+', to: alice}], exempt: [admin]}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    return path


Explained = Callable[..., str]


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Explained:
    """Return a function that runs ``explain`` for a configuration file, and returns the output."""

    def run(file: Path, *arguments: str) -> str:
        assert main(["explain", str(file), *arguments]) == 0
        return capsys.readouterr().out

    return run


def test_text_says_how_the_client_is_charged_and_what_lost(path: Path, explained: Explained) -> None:
    text = explained(path, "--user", "alice-77", "--client-id", "x")

    assert text.startswith(
        "user alice-77, client-id x\n"
        "  folded       charged as user alice (principals.fold)\n"
        "  pauses       at most 5 s each (max_throttle_time)\n"
        "\n"
        "producer_byte_rate: 5242880 bytes (5 MiB) per second\n"
        f"  rule         user alice, client-id <default> ({path}:9)\n"
        "  level        2 of 8: user, default client-id\n"
        "  bucket       user alice with client-id x; all such connections to a broker share it\n"
    )
    assert (
        "  bucket       client-id x; shared by all users at a broker, except those with a rule of their own\n"
        "  listener     clients: respond, sampled\n"
        "               the max_bytes of a fetch is lowered to 20000000 bytes (20 MB)\n"
        "  listener     shadow: observe, paced\n"
    ) in text
    path.write_text(CONFIG.replace("consumer_byte_rate: 20MiB", "consumer_byte_rate: 1MB, enforcement: respond"))
    enforced = explained(path, "--user", "alice", "--client-id", "etl")
    assert (
        "  listener     shadow: respond, paced\n               the max_bytes of a fetch is lowered to 2000000"
        in enforced
    )
    by_address = explained(path, "--ip", "10.0.0.8")
    assert by_address.startswith("user ANONYMOUS, no client-id\n")
    assert by_address.endswith("\nconnection_creation_rate of 10.0.0.8: not limited\n")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--user", ""], 2, "ANONYMOUS"),
        (["--ip", "10.0.0.0/8"], 2, "kafka-quota-proxy explain: --ip: "),
        (["--at", "tomorrow"], 2, "--at: 'tomorrow' is not an instant with its zone, such as 2030-01-31T00:00:00Z or "),
    ],
)
def test_wrong_usage_is_reported(
    arguments: list[str], status: int, said: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(path), *arguments]) == status

    output = capsys.readouterr()
    assert (output.out, said in output.err) == ("", True)


def test_an_invalid_file_is_shown_as_check_does(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(f"{CONFIG}shapng: paced\n")

    assert main(["explain", str(path)]) == 2
    assert f"{path}:13: shapng: unknown key; did you mean shaping?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (("--client-id", "my-ap"), "client-id='my-app'"),
        (("--client-id", "x", "--user", "Alise"), "user='alice'"),
        (("--client-id", "nothing-like-it"), ""),
        (("--client-id", "my-app"), ""),
        (("--client-id", "later"), ""),
        (("--client-id", "my-app-2", "--user", "admin"), ""),
    ],
)
def test_of_a_client_without_a_rule_the_nearest_name_is_suggested(
    path: Path, explained: Explained, arguments: tuple[str, ...], guess: str
) -> None:
    path.write_text(
        "listeners: [{name: a, bind: 127.0.0.1:9192, upstream: 127.0.0.1:9092}]\n"
        "principals: {exempt: [admin]}\n"
        "quotas:\n"
        "- {client-id: my-app, producer_byte_rate: 1MB}\n"
        "- {client-id: late, producer_byte_rate: 1MB}\n"
        "- {client-id: later, producer_byte_rate: 1MB, expires: 2020-01-01T00:00:00Z}\n"
        "- {user: alice, connections: 5}\n"
    )

    lines = [line for line in explained(path, *arguments).splitlines() if "no rule" in line]

    assert lines == ([f"  no rule      applies to this client; did you mean {guess}?"] if guess else [])


OTHER_KINDS = """\
listeners:
  - {name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}
  - {name: shadow, bind: 127.0.0.1:9093, upstream: 127.0.0.1:19093, enforcement: observe}
quotas:
  - {user: alice, request_percentage: 250.5, request_rate: 0.5, connections: 3, enforcement: delay}
  - {user: <default>, controller_mutation_rate: 10, connections: 20}
  - {ip: <default>, connection_creation_rate: 5}
  - {ip: 10.0.0.7, connection_creation_rate: 0.5}
principals: {exempt: [admin]}
"""


@pytest.fixture
def other_kinds(path: Path) -> Path:
    path.write_text(OTHER_KINDS)
    return path


def test_every_kind_has_its_limit_in_its_own_unit(other_kinds: Path, explained: Explained) -> None:
    assert explained(other_kinds, "--user", "alice", "--ip", "::ffff:10.0.0.7") == (
        "user alice, no client-id\n"
        "  pauses       at most 25 s each (max_throttle_time)\n"
        "\n"
        "producer_byte_rate: not limited\n"
        "\n"
        "consumer_byte_rate: not limited\n"
        "\n"
        "request_percentage: 250.5 % of a thread's time\n"
        f"  rule         user alice ({other_kinds}:5)\n"
        "  level        3 of 8: user\n"
        "  bucket       user alice; shared by its client-ids at a broker, except those with a rule of their own\n"
        "  listener     clients: delay, sampled\n"
        "  listener     shadow: delay, sampled\n"
        "\n"
        "request_rate: 0.5 requests per second\n"
        f"  rule         user alice ({other_kinds}:5)\n"
        "  level        3 of 8: user\n"
        "  bucket       user alice; shared by its client-ids at a broker, except those with a rule of their own\n"
        "  listener     clients: delay, sampled\n"
        "  listener     shadow: delay, sampled\n"
        "\n"
        "controller_mutation_rate: 10 partitions per second, created or deleted\n"
        f"  rule         user <default> ({other_kinds}:6)\n"
        "  level        6 of 8: default user\n"
        "  bucket       user alice; shared by its client-ids at a broker, except those with a rule of their own\n"
        "  listener     clients: respond, paced\n"
        "  listener     shadow: observe, paced\n"
        "\n"
        "connections: 3 connections open at once\n"
        f"  rule         user alice ({other_kinds}:5)\n"
        "  level        3 of 8: user\n"
        "  bucket       user alice; shared by its client-ids at a broker, except those with a rule of their own\n"
        "  listener     clients: delay, closes connections above the limit\n"
        "  listener     shadow: delay, closes connections above the limit\n"
        f"  lost         user <default>, 20 connections open at once ({other_kinds}:6)\n"
        "               level 6: level 3 (user) is more specific\n"
        "\n"
        "connection_creation_rate of 10.0.0.7: 0.5 connections per second\n"
        f"  rule         ip 10.0.0.7 ({other_kinds}:8)\n"
        "  bucket       10.0.0.7; all connections from this address to a broker, for any user\n"
        f"  lost         ip <default>, 5 connections per second ({other_kinds}:7)\n"
        "               the address has a rule of its own\n"
    )


def test_json_has_an_object_for_every_kind(other_kinds: Path, explained: Explained) -> None:
    found = json.loads(explained(other_kinds, "--user", "alice", "--ip", "10.0.0.7", "--json"))
    assert list(found) == [*(kind.key for kind in BUCKET_KINDS), "connections", "connection_creation_rate"]
    assert [one and one["limit"] for one in found.values()] == [None, None, 250.5, 0.5, 10, 3, 0.5]
    lost = {"rule": {"user": "<default>"}, "limit": 20, "level": 6, "source": f"{other_kinds}:6"}
    lost["in_words"] = "20 connections open at once"
    assert found["connections"] == {
        "limit": 3,
        "in_words": "3 connections open at once",
        "rule": {"user": "alice"},
        "level": 3,
        "source": f"{other_kinds}:5",
        "bucket": {"user": "alice", "client-id": ""},
        "charged_user": "alice",
        "listeners": {"clients": {"enforcement": "delay"}, "shadow": {"enforcement": "delay"}},
        "lost": [lost | {"reason": "level 3 (user) is more specific"}],
    }
    lost = {"rule": {"ip": "<default>"}, "limit": 5, "source": f"{other_kinds}:7"}
    lost["in_words"] = "5 connections per second"
    assert found["connection_creation_rate"] == {
        "limit": 0.5,
        "in_words": "0.5 connections per second",
        "rule": {"ip": "10.0.0.7"},
        "source": f"{other_kinds}:8",
        "bucket": {"ip": "10.0.0.7"},
        "lost": [lost | {"reason": "the address has a rule of its own"}],
    }


OF_BROKERS = """\
listeners:
  - {name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}
  - {name: internal, bind: 127.0.0.1:9093, upstream: 127.0.0.1:19092, inter_broker: true}
quotas:
  - {user: <default>, connections: 20}
  - {client-id: etl, connections: 5}
principals: {brokers: [kafka, kafka-9], fold: [{match: 'kafka-[0-9]+', to: nodes}]}
"""


def connections_of(path: Path, user: str, explained: Explained) -> str:
    text = explained(path, "--user", user, "--client-id", "etl")
    return text[text.index("connections: ") :]


def test_open_connections_of_brokers_and_at_inter_broker_listeners_have_no_limit(
    path: Path, explained: Explained
) -> None:
    path.write_text(OF_BROKERS)
    for user in ("kafka", "kafka-9"):  # the name before folding counts
        assert connections_of(path, user, explained) == ("connections: not limited\n")
    assert json.loads(explained(path, "--user", "kafka", "--client-id", "etl", "--json"))["connections"] is None

    assert connections_of(path, "kafka-8", explained) == (
        "connections: 20 connections open at once\n"
        f"  rule         user <default> ({path}:5)\n"
        "  level        6 of 8: default user\n"
        "  bucket       user nodes; shared by its client-ids at a broker, except those with a rule of their own\n"
        "  listener     clients: respond, closes connections above the limit\n"
        "  listener     internal: not limited (inter_broker)\n"
        f"  lost         client-id etl, 5 connections open at once ({path}:6)\n"
        "               level 7: level 6 (default user) is more specific\n"
    )
    listeners = json.loads(explained(path, "--user", "alice", "--json"))["connections"]["listeners"]
    assert listeners == {"clients": {"enforcement": "respond"}, "internal": None}


@pytest.mark.parametrize(
    ("written", "where", "others"),
    [
        (
            "{kafka: {bootstrap_servers: 'k1:9092,k2:9092', topic: store}}",
            "kafka://k1:9092,k2:9092/store",
            "the topic may have rules for other entities",
        ),
        ("broker", "broker", "the brokers may have quotas for other entities: see kafka-configs.sh --describe"),
    ],
)
def test_other_sources_of_rules_are_named(
    written: str, where: str, others: str, path: Path, explained: Explained
) -> None:
    path.write_text(f"{CONFIG}quotas_from: {written}\n")

    assert explained(path, "--user", "admin").endswith(f"\nquotas_from {where}: only the file was read; {others}\n")
    assert json.loads(explained(path, "--json"))["quotas_from"] == where


# -- a store


LISTENER = "listeners: [{name: a, bind: '127.0.0.1:9092', upstream: '127.0.0.1:19092'}]\n"
ADMINS = "principals: {admins: [admin]}\n"


def stored(directory: Path) -> None:
    changes = [
        Change(StoredEntity("alice"), StoredRule(limits={"producer_byte_rate": 1_000.0})),
        Change(StoredEntity("filed"), StoredRule(limits={"producer_byte_rate": 1_000.0})),
        Change(StoredEntity(ip="10.0.0.7"), StoredRule(limits={"connection_creation_rate": 5.0})),
    ]
    write_rules(directory, changes)


def test_rules_of_the_store_are_explained_with_those_of_the_file(
    path: Path, explained: Explained, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(
        f"{LISTENER}{ADMINS}store: {{directory: quotas.d}}\nquotas: [{{user: filed, producer_byte_rate: 2MiB}}]\n"
    )
    store = path.parent / "quotas.d"

    def found(user: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(explained(path, "--json", "--ip", "10.0.0.7", "--user", user))
        return said

    assert found("alice")["producer_byte_rate"] is None
    stored(store)
    of_store, of_file = found("alice"), found("filed")["producer_byte_rate"]
    assert (of_store["producer_byte_rate"]["limit"], of_store["producer_byte_rate"]["source"]) == (1_000, str(store))
    assert of_store["connection_creation_rate"]["limit"] == 5
    assert (of_file["limit"], of_file["source"]) == (2 * 1024 * 1024, f"{path}:4")

    set_version(store, 2)
    assert main(["explain", str(path), "--user", "alice"]) == 1
    assert "the store cannot be read: " in capsys.readouterr().err
    damage_header(store)
    assert main(["explain", str(path), "--user", "alice"]) == 1
    assert "is damaged" in capsys.readouterr().err


def test_rules_of_a_topic_are_not_read(path: Path, explained: Explained) -> None:
    path.write_text(f"{LISTENER}{ADMINS}store: {{kafka: {{bootstrap_servers: 'k1:9092', topic: store}}}}\n")
    assert explained(path, "--user", "alice").endswith(
        "\nstore kafka://k1:9092/store: only the file was read; the topic may have rules for other entities; "
        "to read the topic: kafka-quota-proxy quotas describe\n"
    )
    assert json.loads(explained(path, "--json"))["store"] == {"topic": "kafka://k1:9092/store"}


TIMED = """\
listeners: [{name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}]
quotas:
  - {user: alice, producer_byte_rate: 1000, expires: 2026-12-01T00:00:00Z}
  - {client-id: etl, producer_byte_rate: 2000, schedule: {days: [mon-fri], hours: 08:00-18:00, time_zone: UTC}}
  - client-id: <default>
    producer_byte_rate: 4000
    ramp: {from: {producer_byte_rate: 8000}, begins: 2026-12-01T00:00:00Z, over: 4h, steps: 4}
  - {ip: <default>, connection_creation_rate: 5, expires: 2026-12-01T00:00:00Z}
"""


def said_at(instant: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, *more: str) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(TIMED)
    assert main(["explain", str(path), "--user", "alice", "--client-id", "etl", "--at", instant, *more]) == 0
    return capsys.readouterr().out.replace(f"{tmp_path}/", "")


def test_another_instant_may_have_another_rule(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # On the Tuesday after this Monday, the first rule has expired.
    monday = said_at("2026-11-30T12:00:00Z", capsys, tmp_path, "--ip", "10.0.0.7")
    tuesday = said_at("2026-12-01T01:30:00Z", capsys, tmp_path, "--ip", "10.0.0.7")
    noon = said_at("2026-12-01T12:00:00Z", capsys, tmp_path)

    assert "  rule         user alice (c.yaml:3)\n  time         expires at 2026-12-01T00:00:00Z\n" in monday
    assert "  rule         ip <default> (c.yaml:8)\n  time         expires at 2026-12-01T00:00:00Z\n" in monday
    assert (
        "producer_byte_rate: 7000 bytes (7 kB) per second\n"
        "  rule         client-id <default> (c.yaml:5)\n"
        "  time         ramp: step 1 of 4, the next at 2026-12-01T02:00:00Z\n"
    ) in tuesday
    assert (
        "  not now      user alice, 1000 bytes (1 kB) per second (c.yaml:3)\n"
        "               level 3: expired at 2026-12-01T00:00:00Z\n"
        "  not now      client-id etl, 2000 bytes (2 kB) per second (c.yaml:4)\n"
        "               level 7: outside its schedule (mon-fri 08:00-18:00 UTC), again at 2026-12-01T08:00:00Z\n"
    ) in tuesday
    assert (
        "connection_creation_rate of 10.0.0.7: not limited\n"
        "  not now      ip <default>, 5 connections per second (c.yaml:8)\n"
        "               expired at 2026-12-01T00:00:00Z\n"
    ) in tuesday
    assert "  time         within its schedule (mon-fri 08:00-18:00 UTC) until 2026-12-01T18:00:00Z\n" in noon


def test_json_has_times_and_inactive_rules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = json.loads(said_at("2026-12-01T01:30:00Z", capsys, tmp_path, "--json", "--ip", "10.0.0.7"))

    produce = found["producer_byte_rate"]
    assert (produce["limit"], produce["times"]) == (7_000, ["ramp: step 1 of 4, the next at 2026-12-01T02:00:00Z"])
    outside = "outside its schedule (mon-fri 08:00-18:00 UTC), again at 2026-12-01T08:00:00Z"
    of_etl = {"rule": {"client-id": "etl"}, "limit": 2_000, "level": 7, "source": "c.yaml:4", "reason": outside}
    assert produce["not_now"][1] == of_etl | {"in_words": "2000 bytes (2 kB) per second"}
    expired = {"reason": "expired at 2026-12-01T00:00:00Z", "in_words": "5 connections per second"}
    assert found["connection_creation_rate"] == {
        "limit": None,
        "rule": None,
        "not_now": [{"rule": {"ip": "<default>"}, "limit": 5, "source": "c.yaml:8", **expired}],
    }
