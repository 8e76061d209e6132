"""Quotas set with Kafka's own command through the proxy: the output is a broker's, and they hold at once."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_3_9, KAFKA_4, KAFKA_4_3, kafka_classpath
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.kafka_configs import run_configs
from tests.end_to_end.support.load import is_throttled
from tests.end_to_end.support.proxy import Proxy
from tests.support.pages import block

_P, _C, _R, _M = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
_RATE = "connection_creation_rate"
# No test client has these names.
_ENTITIES: Final = {
    "user": "--entity-type|users|--entity-name|nobody",
    "default user": "--entity-type|users|--entity-default",
    "client": "--entity-type|clients|--entity-name|none",
    "default client": "--entity-type|clients|--entity-default",
    "user, client": "--entity-type|users|--entity-name|nobody|--entity-type|clients|--entity-name|none",
    "user, default client": "--entity-type|users|--entity-name|nobody|--entity-type|clients|--entity-default",
    "default user, client": "--entity-type|users|--entity-default|--entity-type|clients|--entity-name|none",
    "default user, default client": "--entity-type|users|--entity-default|--entity-type|clients|--entity-default",
    "odd names": "--entity-type|users|--entity-name|CN=né, O=a b|--entity-type|clients|--entity-name|<default>",
    "ip": "--entity-type|ips|--entity-name|192.0.2.7",
    "default ip": "--entity-type|ips|--entity-default",
}
_ALL: Final = (
    "--describe|--entity-type|users",
    "--describe|--entity-type|clients",
    "--describe|--entity-type|users|--entity-type|clients",
    "--describe|--entity-type|ips",
)


# Refused with a message of the proxy's own.
_NO_ADDRESS: Final = f"--alter|--add-config|{_RATE}=7|--entity-type|ips|--entity-name|not an address"
# A broker may refuse these. All other commands succeed.
_ODD: Final = (
    f"--alter|--add-config|{_P}=0|{_ENTITIES['user']}",
    f"--alter|--add-config|{_P}=10.5|{_ENTITIES['user']}",
    f"--alter|--add-config|{_P}=1e19|{_ENTITIES['user']}",
    f"--alter|--add-config|{_RATE}=7|{_ENTITIES['client']}",
    f"--alter|--add-config|bad=7|{_ENTITIES['user, client']}",
    _NO_ADDRESS,
    f"--alter|--delete-config|{_M}|--entity-type|users|--entity-name|stranger",
)
# Set last, and only through the proxy, so the broker must not show it.
_LEFT: Final = (f"--alter|--add-config|{_P}=7654321|{_ENTITIES['client']}", f"--describe|{_ENTITIES['client']}")


def _commands() -> list[str]:
    """Return commands for each form of entity that set, show, change and delete quotas, and invalid ones."""
    commands = []
    for name, entity in _ENTITIES.items():
        # Too high to throttle, because the rules of default entities apply to this test's own clients.
        limits = (
            f"{_RATE}=1000000" if "ip" in name.split() else f"{_P}=1000000000,{_C}=2000000000,{_R}=1e6,{_M}=12345.5"
        )
        key = _RATE if "ip" in name.split() else _C
        commands += [
            f"--alter|--add-config|{limits}|{entity}",
            f"--describe|{entity}",
            f"--alter|--add-config|{key}=3000000|{entity}",
            f"--describe|{entity}",
        ]
    commands += _ALL
    commands += [
        *_ODD,
        f"--alter|--delete-config|{_P},{_R}|{_ENTITIES['user']}",
        f"--describe|{_ENTITIES['user']}",
    ]
    for name, entity in _ENTITIES.items():
        keys = _RATE if "ip" in name.split() else f"{_C},{_M}"
        commands.append(f"--alter|--delete-config|{keys}|{entity}")
        if "ip" not in name.split() and name != "user":
            commands.append(f"--alter|--delete-config|{_P},{_R}|{entity}")
        commands.append(f"--describe|{entity}")
    return [*commands, *_ALL]


def _proxy(kafka: Kafka, store: Path, **more: object) -> Proxy:
    settings = {"principals": {"admins": ["ANONYMOUS"]}, "store": {"directory": str(store)}}
    return Proxy({**settings, **more}, kafka)


@pytest.mark.parametrize(
    "version",
    [*(pytest.param(version, marks=pytest.mark.long) for version in (KAFKA_2_8, KAFKA_3_9, KAFKA_4_3)), KAFKA_4],
)
def test_kafkas_command_prints_the_same_for_proxy_and_broker(kafka_4: Kafka, tmp_path: Path, version: str) -> None:
    commands = _commands()
    with _proxy(kafka_4, tmp_path) as proxy:
        *proxy_output, _, left = run_configs(kafka_4, version, proxy.address(), *commands, *_LEFT)
        # Each entity was set and changed at the proxy. The broker has none.
        assert proxy.metrics().total("kafka_quota_proxy_quota_changes_total", result="applied") > 2 * len(_ENTITIES)
        assert f"{_P}=7654321" in "\n".join(left)
        broker = kafka_4.listener(DIRECT).address
        before = run_configs(kafka_4, version, broker, *_ALL)
        broker_output = run_configs(kafka_4, version, broker, *commands, expected=proxy_output)
        assert not any(key in line for one in before for line in one for key in (_P, _C, _R, _M, _RATE))

        for command, own, kafkas in zip(commands, proxy_output, broker_output, strict=True):
            assert own == kafkas or command == _NO_ADDRESS, command
            assert (own[0] == "0") == (command not in _ODD), command


@pytest.mark.proof
def test_quota_set_by_kafkas_command_holds_at_once_and_after_a_crash(kafka_4: Kafka, tmp_path: Path) -> None:
    """Two of the commands and their outputs are those of docs/how-to/set-quotas.md."""
    topic = create_topic(kafka_4)
    anonymous = "--entity-type|users|--entity-name|ANONYMOUS|--entity-type|clients|--entity-default"
    filed = "--entity-type|clients|--entity-name|filed"
    page = block("how-to/set-quotas.md", "sh", holding="--add-config").steps
    commands_of_page = ["|".join(shlex.split(command)[3:]) for command, _ in page]
    with _proxy(kafka_4, tmp_path, quotas=[{"client-id": "filed", _P: 10**9}]) as proxy:
        with raw_client(proxy.port(), client_id="etl") as client:
            assert not is_throttled(client, topic)
            set_, shown, refused, of_file, *of_page = run_configs(
                kafka_4,
                KAFKA_4,
                proxy.address(),
                f"--alter|--add-config|{_P}=1000|{anonymous}",
                f"--describe|{anonymous}",
                f"--alter|--add-config|{_P}=7|{filed}",
                f"--describe|{filed}",
                *commands_of_page,
            )

            assert set_[0] == shown[0] == of_file[0] == "0"
            assert "Completed updating config for user ANONYMOUS." in set_
            assert shown[1:] == [f"Quota configs for user-principal 'ANONYMOUS', the default client-id are {_P}=1000.0"]
            assert of_file[1:] == [f"Quota configs for client-id 'filed' are {_P}=1.0E9"]
            assert refused[0] != "0"
            assert f"The quotas of client-id filed are set in {proxy.file}:" in "\n".join(refused)
            assert of_page == [["0", output.strip()] for _, output in page]
            assert is_throttled(client, topic)
            assert proxy.metrics().values("kafka_quota_proxy_quota_limit", user="ANONYMOUS", kind="produce") == [1_000]

        proxy.kill()
        proxy.start()

        with raw_client(proxy.port(), client_id="etl") as client:
            assert is_throttled(client, topic)
        removed, gone = run_configs(
            kafka_4,
            KAFKA_4,
            proxy.address(),
            f"--alter|--delete-config|{_P}|{anonymous}",
            f"--describe|{anonymous}",
        )[:2]
        assert (removed[0], gone) == ("0", ["0"])
        with raw_client(proxy.port(), client_id="other") as client:
            assert not is_throttled(client, topic)


@pytest.mark.proof
def test_user_without_admin_rights_is_refused(kafka_4: Kafka, tmp_path: Path) -> None:
    entity = "--entity-type|clients|--entity-name|refused"
    with _proxy(kafka_4, tmp_path, principals={"admins": ["admin"]}) as proxy:
        refused = run_configs(
            kafka_4, KAFKA_4, proxy.address(), f"--describe|{entity}", f"--alter|--add-config|{_P}=222222|{entity}"
        )

        assert all("Cluster authorization failed." in "\n".join(one) for one in refused)


def test_java_program_of_the_page_sets_the_quota_and_prints_what_is_shown(kafka_4: Kafka, tmp_path: Path) -> None:
    program = block("how-to/set-quotas.md", "java", holding="alterClientQuotas").text
    (printed,) = re.findall(r"^ *// (\{.*)$", program, re.MULTILINE)
    source = tmp_path / "Page.java"
    packages = ("java.util", "org.apache.kafka.clients.admin", "org.apache.kafka.common.quota")
    source.write_text(
        "".join(f"import {package}.*;\n" for package in packages)
        + "public class Page { public static void main(String[] arguments) throws Exception {\n"
        + f"String PROXY = arguments[0];\n{program}\n}}}}\n"
    )
    with _proxy(kafka_4, tmp_path / "quotas.d") as proxy:
        printed_by_java = kafka_4.run_java(str(source), proxy.address(), classpath=kafka_classpath(KAFKA_4))

        assert printed_by_java == f"{printed}\n"
        assert proxy.metrics().total("kafka_quota_proxy_quota_changes_total", result="applied") == 1
