"""Tests which clients are logged as unlimited, in which words, and how often."""

import logging

import pytest

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables
from kafka_quota_proxy.proxy.server.clients.unlimited_log import UnlimitedLog

MY_APP = QuotaRule(client_id="my-app", producer_byte_rate=1_000.0, consumer_byte_rate=1_000.0)
CAME = Tags("ANONYMOUS", "myapp")


def tables(*rules: QuotaRule) -> RuleTables:
    return RuleTables(ProxyConfig(listeners=(), quotas=rules))


def log_of(*rules: QuotaRule) -> UnlimitedLog:
    return UnlimitedLog(tables(*rules))


def sweep(log: UnlimitedLog, *clients: Tags) -> None:
    """Tell the log that these clients came."""
    log.write([dict.fromkeys(clients, QuotaKind.PRODUCE)])


def crowd(count: int) -> list[Tags]:
    return [Tags("ANONYMOUS", f"client {number}") for number in range(count)]


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_client_without_a_rule_is_logged_with_the_nearest_client_id(caplog: pytest.LogCaptureFixture) -> None:
    sweep(log_of(MY_APP), CAME)

    assert caplog.messages == [
        "not limited: user='ANONYMOUS' client-id='myapp' (no rule applies to it; did you mean client-id='my-app'?)"
    ]
    assert caplog.records[0].levelno == logging.WARNING
    fields = vars(caplog.records[0])
    assert [fields[key] for key in ("event", "user", "client_id", "reason")] == [
        "client_not_limited", "ANONYMOUS", "myapp", "no rule applies to it",
    ]  # fmt: skip


@pytest.mark.parametrize("rules", [(), (QuotaRule(user="x", connections=1.0),)], ids=["none", "only connections"])
def test_nothing_is_logged_if_no_rule_limits_bytes_or_requests(
    rules: tuple[QuotaRule, ...], caplog: pytest.LogCaptureFixture
) -> None:
    sweep(log_of(*rules), CAME)

    assert caplog.messages == []


@pytest.mark.parametrize(
    ("rule", "client", "suggested"),
    [
        (QuotaRule(client_id="My-App", producer_byte_rate=1.0), CAME, "client-id='My-App'"),
        (QuotaRule(user="alice", producer_byte_rate=1.0), Tags("Alice", "etl"), "user='alice'"),
        (
            QuotaRule(user="alice", client_id="etl", producer_byte_rate=1.0),
            Tags("ANONYMOUS", "etl"),
            "user='alice' client-id='etl'",
        ),
        (QuotaRule(client_id="reports", producer_byte_rate=1.0), CAME, ""),
        (QuotaRule(client_id="myapp", producer_byte_rate=1.0), Tags("ANONYMOUS", ""), ""),
        (QuotaRule(client_id="my_apps", producer_byte_rate=1.0), CAME, ""),
    ],
    ids=["other case", "a user", "another user", "nothing like it", "no client-id", "two edits"],
)
def test_rule_with_the_nearest_name_is_suggested(
    rule: QuotaRule, client: Tags, suggested: str, caplog: pytest.LogCaptureFixture
) -> None:
    sweep(log_of(rule), client)

    (line,) = caplog.messages
    assert line.partition("did you mean ")[2].removesuffix("?)") == suggested


def test_names_cannot_forge_lines(caplog: pytest.LogCaptureFixture) -> None:
    sweep(log_of(MY_APP), Tags("a\nb", "c\x1b[2J\u202e'"))

    assert "user='a\\nb' client-id=\"c\\x1b[2J\\u202e'\" (" in caplog.messages[0]


def test_client_is_logged_once_until_the_rules_change(caplog: pytest.LogCaptureFixture) -> None:
    log = log_of(MY_APP)

    for _ in range(3):
        sweep(log, CAME)
    assert len(caplog.messages) == 1

    log.begin()
    sweep(log, CAME)
    assert len(caplog.messages) == 2


def test_many_names_fill_neither_the_log_nor_the_memory_of_a_test(caplog: pytest.LogCaptureFixture) -> None:
    log = log_of(MY_APP)

    sweep(log, *crowd(1_500))
    sweep(log, *crowd(1_500), CAME)

    assert len(caplog.messages) == 1_001
    assert caplog.messages[-1] == "not limited: more than 1000 clients; no more of them are logged"
    assert len(log._seen) == 1_001
