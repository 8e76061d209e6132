"""Makes the store that a configuration asks for."""

from collections.abc import Mapping

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.directory_store import DirectoryStore
from kafka_quota_proxy.proxy.client_quotas.storage.store import ApplyChanges
from kafka_quota_proxy.proxy.client_quotas.storage.topic_copy import TopicCopy
from kafka_quota_proxy.proxy.client_quotas.storage.topic_store import TopicStore
from kafka_quota_proxy.proxy.usage.log import proxy_name


def make_store(
    config: ProxyConfig, apply: ApplyChanges, stored: Mapping[Entity, StoredRule]
) -> DirectoryStore | TopicStore | None:
    """Return the store; None: the configuration has none. ``stored`` has the rules that ``apply`` has applied."""
    store = config.store
    if store is None:
        return None
    topic = store.topic
    if topic is None:
        return DirectoryStore(store.path or "", apply, stored)
    # Imported here: they load aiokafka, which a proxy without a topic does not need.
    from kafka_quota_proxy.proxy.client_quotas.storage.topic_writer import Writer
    from kafka_quota_proxy.proxy.client_quotas.topic.topic_reader import TopicReader

    client_id = f"kafka-quota-proxy-{proxy_name(config)}"
    binds = tuple(listener.bind for listener in config.listeners)
    return TopicStore(
        str(topic),
        apply,
        None if store.path is None else TopicCopy(store.path),
        reader=lambda tell: TopicReader(topic, client_id, tell, binds),
        writer=Writer(topic, client_id, binds),
    )
