"""Makes the source of rules that a configuration names. A new kind of source is made here, too."""

from kafka_quota_proxy.config.model import ProxyConfig, QuotasFrom, QuotasFromBroker
from kafka_quota_proxy.proxy.replication.cluster_view import servers_of
from kafka_quota_proxy.proxy.rules.broker.broker_source import BrokerSource
from kafka_quota_proxy.proxy.rules.source import RuleSource
from kafka_quota_proxy.proxy.rules.sqlite.directory_store import DirectoryStore
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicState
from kafka_quota_proxy.proxy.usage.log import proxy_name


def source_of(config: ProxyConfig) -> RuleSource | None:
    """Return the source that the configuration names, or None if all rules come from the configuration file."""
    store, followed = config.store, config.quotas_from
    if isinstance(followed, QuotasFromBroker):
        return BrokerSource(followed, followed.client.bootstrap_servers or servers_of(config.listeners))
    if followed is not None:
        return _topic(config, followed)
    if store is not None and store.topic is not None:
        return _topic(config, store.topic, is_store=True)
    return None if store is None or store.directory is None else DirectoryStore(store.directory)


def _topic(config: ProxyConfig, topic: QuotasFrom, *, is_store: bool = False) -> TopicSource:
    # Imported only if they are needed, because they load aiokafka.
    from kafka_quota_proxy.proxy.rules.topic.topic_reader import TopicReader
    from kafka_quota_proxy.proxy.rules.topic.topic_writer import Writer

    name, client_id = str(topic), f"kafka-quota-proxy-{proxy_name(config)}"
    binds = tuple(listener.bind for listener in config.listeners)
    return TopicSource(
        name,
        TopicState(name=name),
        reader=lambda handle: TopicReader(topic, client_id, handle, binds),
        writer=Writer(topic, client_id, binds) if is_store else None,
    )
