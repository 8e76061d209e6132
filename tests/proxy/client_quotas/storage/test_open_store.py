"""Which keeper a configuration asks for."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import Address, AdminClient, Listener, ProxyConfig, QuotasFrom, Store
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.storage.directory_keeper import DirectoryKeeper
from kafka_quota_proxy.proxy.client_quotas.storage.open_store import keeper
from kafka_quota_proxy.proxy.client_quotas.storage.topic_store import TopicKeeper
from kafka_quota_proxy.proxy.usage.log import MissingPackageError

LISTENER = Listener(name="a", bind=Address(host="127.0.0.1", port=9092), upstream=Address(host="127.0.0.1", port=19092))
TOPIC = QuotasFrom(topic="t", client=AdminClient(bootstrap_servers=(Address(host="k", port=9092),)))


async def hold(_: Sequence[Change]) -> None:
    """Nobody holds anything."""


def config(store: Store | None) -> ProxyConfig:
    return ProxyConfig(listeners=(LISTENER,), store=store)


def test_without_a_store_there_is_none() -> None:
    assert keeper(config(None), hold, {}) is None


async def test_a_directory_keeps_for_one_proxy(tmp_path: Path) -> None:
    one = keeper(config(Store(directory=str(tmp_path))), hold, {})

    assert isinstance(one, DirectoryKeeper)
    assert (one.name, one.sources) == (str(tmp_path), {})
    await one.close()


def test_a_topic_keeps_for_a_fleet_with_a_directory_or_without() -> None:
    for directory in (None, "d"):
        one = keeper(config(Store(directory=directory, topic=TOPIC)), hold, {})
        assert isinstance(one, TopicKeeper)
        assert one.name == "kafka://k:9092/t"
        assert (one.last_known is None) == (directory is None)


def test_without_aiokafka_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kafka_quota_proxy.proxy.client_quotas.storage.topic_writer", raising=False)
    monkeypatch.setitem(sys.modules, "aiokafka", None)

    with pytest.raises(MissingPackageError, match=r"store needs aiokafka.*kafka-quota-proxy\[usage-topic\]"):
        keeper(config(Store(topic=TOPIC)), hold, {})
