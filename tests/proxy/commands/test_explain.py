"""``explain`` says which quota holds, at which of the eight levels, and why the others do not."""

import json
from pathlib import Path

import pytest

from config.load import load_bytes
from config.model import Enforcement, Shaping
from proxy.__main__ import main
from proxy.commands.explain import explain
from proxy.quota.entity import QuotaKind

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


@pytest.mark.parametrize(
    ("user", "client_id", "level", "limit", "bucket"),
    [
        ("alice", "etl", 1, 10 * 2**20, ("alice", "etl")),
        ("alice", "other", 2, 5 * 2**20, ("alice", "other")),
        ("bob", "etl", 6, 2**20, ("bob", "")),
        ("alice-77", "etl", 1, 10 * 2**20, ("alice", "etl")),
    ],
)
def test_the_most_specific_rule_wins(
    user: str, client_id: str, level: int, limit: int, bucket: tuple[str, str]
) -> None:
    produce, *_ = explain(load_bytes(CONFIG.encode(), file="c.yaml"), user=user, client_id=client_id).verdicts

    assert produce.level is not None
    assert (produce.level.number, produce.limit, produce.bucket) == (level, limit, bucket)


def test_the_rules_that_lost_come_with_their_reasons() -> None:
    produce, fetch, *_ = explain(load_bytes(CONFIG.encode(), file="c.yaml"), user="alice", client_id="etl").verdicts

    assert [(lost.level.number, lost.rule.source if lost.rule else None, lost.reason) for lost in produce.lost] == [
        (2, "c.yaml:9", "level 1 (user, client-id) is more specific"),
        (6, "c.yaml:10", "level 1 (user, client-id) is more specific"),
        (7, "c.yaml:11", "level 1 (user, client-id) is more specific"),
    ]
    assert [(lost.level.number, lost.rule.source if lost.rule else None) for lost in fetch.lost] == [(8, "c.yaml:6")]


def test_a_rule_is_before_the_listener_and_the_listener_before_the_file() -> None:
    loaded = load_bytes(CONFIG.encode(), file="c.yaml")

    by_rule, *_ = explain(loaded, user="bob", client_id="x").verdicts
    by_listener, *_ = explain(loaded, user="alice", client_id="x").verdicts

    assert [at.enforcement for at in by_rule.at_listeners] == [Enforcement.DELAY, Enforcement.DELAY]
    assert [at.enforcement for at in by_listener.at_listeners] == [Enforcement.RESPOND, Enforcement.OBSERVE]
    assert [at.shaping for at in by_listener.at_listeners] == [Shaping.SAMPLED, Shaping.PACED]


def test_a_fetch_is_capped_at_a_window_or_a_burst_and_not_where_nothing_is_enforced() -> None:
    rule = "{client-id: etl, consumer_byte_rate: 1MB, enforcement: respond}"
    enforced = load_bytes(CONFIG.replace("{client-id: etl, producer_byte_rate: 3MiB}", rule).encode(), file="c.yaml")

    _, fetch, *_ = explain(enforced, user="bob", client_id="etl").verdicts
    _, observed, *_ = explain(load_bytes(CONFIG.encode(), file="c.yaml"), user="bob", client_id="etl").verdicts

    assert [at.max_fetch_bytes for at in fetch.at_listeners] == [10_000_000, 2_000_000]
    assert [at.max_fetch_bytes for at in observed.at_listeners] == [20_000_000, None]


def test_json_is_an_object_for_each_kind(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["explain", str(path), "--user", "alice", "--client-id", "x", "--json"])

    assert status == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [kind.value for kind in QuotaKind]
    produce = found["producer_byte_rate"]
    assert produce["limit"] == 5_242_880
    assert produce["rule"] == {"user": "alice", "client-id": "<default>"}
    assert produce["level"] == 2
    assert produce["source"] == f"{path}:9"
    assert produce["bucket"] == {"user": "alice", "client-id": "x"}
    assert found["consumer_byte_rate"]["source"] == f"{path}:6"


def test_json_is_null_where_nothing_limits(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(path), "--user", "admin", "--client-id", "etl", "--json"])

    assert json.loads(capsys.readouterr().out) == dict.fromkeys(kind.value for kind in QuotaKind)


def test_text_tells_all_that_holds(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["explain", str(path), "--user", "alice-77", "--client-id", "x"])

    assert status == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out == (
        "user alice-77, client-id x\n"
        "  folded       charged as user alice (principals.fold)\n"
        "  pauses       at most 5 s each (max_throttle_time)\n"
        "\n"
        "producer_byte_rate: 5242880 bytes (5 MiB) per second\n"
        f"  rule         user alice, client-id <default> ({path}:9)\n"
        "  level        2 of 8: user, default client-id\n"
        "  bucket       user alice with client-id x; all such connections to a broker share it\n"
        "  listener     clients: respond, sampled\n"
        "  listener     shadow: observe, paced\n"
        "  lost         user <default>, 1048576 bytes (1 MiB) per second"
        f" ({path}:10)\n"
        "               level 6: level 2 (user, default client-id) is more specific\n"
        "\n"
        "consumer_byte_rate: 2000000 bytes (1.907 MiB) per second\n"
        f"  rule         client-id <default> ({path}:6)\n"
        "  level        8 of 8: default client-id\n"
        "  bucket       client-id x; shared by all users at a broker, but those with a rule of their own\n"
        "  listener     clients: respond, sampled\n"
        "               the max_bytes of a fetch is lowered to 20000000 bytes (19.07 MiB)\n"
        "  listener     shadow: observe, paced\n"
        "\n"
        "request_percentage: not limited\n"
        "\n"
        "request_rate: not limited\n"
        "\n"
        "controller_mutation_rate: not limited\n"
    )


def test_text_of_an_exempt_user_ends_there(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(path), "--user", "admin"])

    assert capsys.readouterr().out == (
        "user admin, no client-id\n  exempt       no quota holds for this user (principals.exempt)\n"
    )


def test_a_client_is_anonymous_unless_told_otherwise(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(path), "--client-id", "etl"])

    output = capsys.readouterr()
    assert output.out.startswith("user ANONYMOUS, client-id etl\n")
    assert output.err == ""


def test_an_invalid_file_is_shown_as_check_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(f"{CONFIG}shapng: paced\n")

    status = main(["explain", str(broken)])

    assert status == 2
    assert f"{broken}:13: shapng: unknown key; did you mean shaping?" in capsys.readouterr().err


def test_a_user_without_a_name_is_wrong_usage(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(path), "--user", ""]) == 2
    assert "ANONYMOUS" in capsys.readouterr().err
