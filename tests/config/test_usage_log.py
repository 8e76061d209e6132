"""Tests the section ``usage_log``, for files and for a topic, and its faults."""

import pytest

from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.load import Loaded, load_bytes
from kafka_quota_proxy.config.model import Address, AdminClient, UsageFiles, UsageLog, UsageTopic
from tests.support.cases import each_case

LISTENERS = "listeners: [{name: a, bind: 'h:1', upstream: 'k:1', node_id: 1}]\n"


def loaded(section: str, listeners: str = LISTENERS) -> Loaded:
    return load_bytes(f"{listeners}usage_log: {section}\n".encode(), file="d/f.yaml")


def faults(section: str, listeners: str = LISTENERS) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(section, listeners)
    return str(caught.value).splitlines()


def test_without_the_section_nothing_is_logged() -> None:
    assert load_bytes(LISTENERS.encode(), file="f.yaml").config.usage_log is None


def test_every_key_of_files_reaches_the_model() -> None:
    files = "directory: usage, rotate_size: 1MiB, rotate_interval: 1h, retention_size: null"

    assert loaded(f"{{interval: 500ms, proxy: p-1.x_y, {files}}}").config.usage_log == UsageLog(
        interval_ms=500,
        proxy="p-1.x_y",
        to=UsageFiles(
            directory="d/usage", rotate_size_bytes=1_048_576, rotate_interval_ms=3_600_000, retention_size_bytes=None
        ),
    )


@each_case("more, topic", [("", "kafka-quota-usage"), (", topic: use.d", "use.d")])
def test_a_topic_has_the_keys_of_a_client_and_a_name(more: str, topic: str) -> None:
    found = loaded(f"{{kafka: {{bootstrap_servers: 'k:1'{more}}}}}").config.usage_log

    assert found is not None
    assert found.to == UsageTopic(topic=topic, client=AdminClient(bootstrap_servers=(Address(host="k", port=1),)))


@each_case(
    "section, expected",
    [
        ("{interval: 1s}", "usage_log: has no destination; give directory for files, or kafka for a topic"),
        ("{directory: u, kafka: {bootstrap_servers: 'k:1'}}", "usage_log.directory: cannot be given with kafka; the "
         "log is written to one of them"),
        ("{directory: u, interval: 50ms}", "usage_log.interval: must be from 100ms to 1h; write a duration such as 1s"),
        ("{directory: u, interval: 2h}", "usage_log.interval: must be from 100ms to 1h; write a duration such as 1s"),
        ("{directory: u, proxy: a/b}", "usage_log.proxy: 'a/b' cannot name files: 1 to 100 letters, digits, dots, "
         "underscores and hyphens"),
        ("{directory: u, rotate_size: 10B}", "usage_log.rotate_size: must be 1KiB or more, some lines; write a size "
         "such as 64MiB"),
        ("{kafka: {bootstrap_servers: 'k:1'}, rotate_size: 1MiB}", "usage_log.rotate_size: applies to files; give "
         "their directory, or remove this"),
        ("{kafka: {topic: t}}", "usage_log.kafka.bootstrap_servers: is missing; write brokers of the topic's cluster: "
         "HOST:PORT,HOST:PORT"),
    ],
)  # fmt: skip
def test_a_faulty_usage_log_is_refused_with_a_remedy(section: str, expected: str) -> None:
    assert faults(section) == [f"d/f.yaml:2: {expected}"]


@each_case(
    "listener, expected",
    [
        ("{name: a, bind: 'h:1', upstream: 'k:1'}", ["d/f.yaml:1: listeners[0].node_id: is missing, so that broker is "
         "null in the usage log; write the node id of the broker there"]),
        ("{name: a, bind: 'h:1', upstream: 'k:1', node_id: 1}", []),
        ("{name: a, bind: 'h:1', bootstrap_servers: 'k:1'}", []),
    ],
)  # fmt: skip
def test_a_missing_node_id_is_a_warning(listener: str, expected: list[str]) -> None:
    found = loaded("{directory: u}", f"listeners: [{listener}]\n").warnings

    assert [str(warning).replace("warning: ", "") for warning in found] == expected
