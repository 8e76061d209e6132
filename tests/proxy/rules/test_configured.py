"""Tests which source of rules a configuration asks for."""

from pathlib import Path

from kafka_quota_proxy.config.model import (
    Address,
    AdminClient,
    Listener,
    ProxyConfig,
    QuotasFrom,
    QuotasFromBroker,
    Store,
)
from kafka_quota_proxy.proxy.rules.broker.broker_source import BrokerSource
from kafka_quota_proxy.proxy.rules.configured import source_of
from kafka_quota_proxy.proxy.rules.sqlite.directory_store import DirectoryStore
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource

BROKER = Address(host="127.0.0.1", port=19092)
LISTENER = Listener(name="a", bind=Address(host="127.0.0.1", port=9092), upstream=BROKER)
TOPIC = QuotasFrom(topic="t", client=AdminClient(bootstrap_servers=(Address(host="k", port=9092),)))


def config(store: Store | None = None, quotas_from: QuotasFrom | QuotasFromBroker | None = None) -> ProxyConfig:
    return ProxyConfig(listeners=(LISTENER,), store=store, quotas_from=quotas_from)


def test_without_a_store_there_is_none() -> None:
    assert source_of(config()) is None


async def test_directory_makes_a_directory_store(tmp_path: Path) -> None:
    one = source_of(config(Store(directory=str(tmp_path))))

    assert isinstance(one, DirectoryStore)
    assert (one.name, one.writer, one.has_read) == (str(tmp_path), one, False)
    await one.stop()


def test_topic_makes_a_store_with_or_without_a_copy() -> None:
    for directory in (None, "d"):
        one = source_of(config(Store(directory=directory, topic=TOPIC)))
        assert isinstance(one, TopicSource)
        assert (one.name, one.writer) == ("kafka://k:9092/t", one)
        assert (one.copy is None) == (directory is None)


def test_followed_sources_are_not_written() -> None:
    for settings, kind in ((TOPIC, TopicSource), (QuotasFromBroker(), BrokerSource)):
        one = source_of(config(quotas_from=settings))
        assert isinstance(one, kind)
        assert (one.writer, one.is_connected, one.has_read, one.may_serve.is_set()) == (None, False, False, False)
        assert {"connected": False, "read": False}.items() <= one.status().items()
