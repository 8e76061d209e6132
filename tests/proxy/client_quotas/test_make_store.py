"""Tests which store a configuration asks for."""

from collections.abc import Sequence
from pathlib import Path

from kafka_quota_proxy.config.model import Address, AdminClient, Listener, ProxyConfig, QuotasFrom, Store
from kafka_quota_proxy.proxy.client_quotas.manager import make_store
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.storage.directory_store import DirectoryStore
from kafka_quota_proxy.proxy.client_quotas.storage.topic_store import TopicStore

LISTENER = Listener(name="a", bind=Address(host="127.0.0.1", port=9092), upstream=Address(host="127.0.0.1", port=19092))
TOPIC = QuotasFrom(topic="t", client=AdminClient(bootstrap_servers=(Address(host="k", port=9092),)))


async def hold(_: Sequence[Change]) -> None:
    """Ignore the changes."""


def config(store: Store | None) -> ProxyConfig:
    return ProxyConfig(listeners=(LISTENER,), store=store)


def test_without_a_store_there_is_none() -> None:
    assert make_store(config(None), hold, {}) is None


async def test_directory_makes_a_directory_store(tmp_path: Path) -> None:
    one = make_store(config(Store(directory=str(tmp_path))), hold, {})

    assert isinstance(one, DirectoryStore)
    assert (one.name, one.sources) == (str(tmp_path), {})
    await one.close()


def test_topic_makes_a_topic_store_with_or_without_a_copy() -> None:
    for directory in (None, "d"):
        one = make_store(config(Store(directory=directory, topic=TOPIC)), hold, {})
        assert isinstance(one, TopicStore)
        assert one.name == "kafka://k:9092/t"
        assert (one.copy is None) == (directory is None)
