"""Tests which options ``demo --serve`` takes, and the configuration that it writes."""

import argparse

import pytest

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import DEFAULT, Shaping
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.cli.demo import command
from kafka_quota_proxy.proxy.cli.demo.serve_arguments import options_in, proxy_config


def _parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(["--serve", *arguments])


def test_quotas_and_ports_are_in_a_configuration_for_tests() -> None:
    options, warnings = options_in(
        _parsed(
            *("--quota", "client-id=my-app,producer_byte_rate=1MiB,shaping=sampled,connections=20"),
            *("--quota", "client-id=a,b,request_percentage=50.5,expires=2126-01-01T00:00:00Z"),
            *("--quota", "user=<default>,client-id=007,consumer_byte_rate=2MB"),
        )
    )

    text = proxy_config(options, port=options.port, admin_port=options.admin_port, upstream="127.0.0.1:1")
    config = load_bytes(text.encode(), file="demo.yaml").config

    assert warnings == []
    assert [(one.user, one.client_id, dict(one.limits), one.shaping) for one in config.quotas] == [
        (None, "my-app", {"producer_byte_rate": 1_048_576, "connections": 20}, Shaping.SAMPLED),
        (None, "a,b", {"request_percentage": 50.5}, None),
        (DEFAULT, "007", {"consumer_byte_rate": 2_000_000}, None),
    ]
    assert config.quotas[1].expires_ms is not None
    assert str(config.listeners[0].bind) == "127.0.0.1:9092"
    assert config.admin is not None
    assert str(config.admin.bind) == "127.0.0.1:9308"
    assert config.testing
    assert config.shaping is Shaping.PACED


def test_a_warning_about_a_quota_names_the_option() -> None:
    _, warnings = options_in(_parsed("--quota", "client-id=my-app,producer_byte_rate=1"))

    (warning,) = warnings
    assert warning.startswith("--quota client-id=my-app,producer_byte_rate=1: producer_byte_rate: 1 bytes per second")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--serve", "--seconds", "5"), "--seconds: has no effect with --serve"),
        (("--serve", "--json"), "--json: has no effect with --serve"),
        (("--quota", "client-id=a,request_rate=5"), "--quota: needs --serve"),
        (("--admin-port", "9308"), "--admin-port: needs --serve"),
        (("--serve", "--port", "9092", "--admin-port", "9092"), "--port and --admin-port: must differ"),
        (("--serve", "--quota", "my-app"), "'my-app' must be KEY=VALUE"),
        (("--serve", "--quota", "client-id=a,rate=5"), "'rate' is not a key; the keys are user, client-id"),
        (("--serve", "--quota", "client-id=a,client-id=b"), "client-id is given twice"),
        (("--serve", "--quota", "client-id=a"), "--quota client-id=a: limits nothing; give producer_byte_rate"),
        (("--serve", "--quota", "client-id=a,producer_byte_rate=1Mb"), "producer_byte_rate: 'Mb' is not a unit"),
        (("--serve", "--quota", "user=alice,request_rate=5"), "applies to no client"),
        (
            ("--serve", "--quota", "client-id=a,request_rate=5", "--quota", "client-id=a,producer_byte_rate=1MiB"),
            "is for the same clients as client-id=a,request_rate=5",
        ),
    ],
)
def test_wrong_usage_is_exit_status_2_and_names_the_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    # Options that are accepted by mistake would start a demo.
    monkeypatch.setattr(command, "require_extra", lambda *_: pytest.fail("the options were accepted"))

    assert main(["demo", *arguments]) == 2

    assert words in capsys.readouterr().err
