"""What was not asked for an explanation, and who knows: a topic, the brokers, a proxy that runs."""

from collections.abc import Iterator

from kafka_quota_proxy.config.model import ProxyConfig, QuotasFromBroker


def of_rules(config: ProxyConfig, *, known_last: str | None) -> Iterator[str]:
    """Say where there may be other rules; a store that is a directory is this machine's, and is read.

    Args:
        config: The file.
        known_last: Where it is kept what was known last of a store's topic; None: nothing is.
    """
    if config.store is not None and config.store.topic is not None:
        told = (
            "this is what the file says; the topic may have rules for other entities"
            if known_last is None
            else f"its rules are shown as this machine knew it last ({known_last}); it may have others by now"
        )
        yield ""
        others = "kafka-quota-proxy quotas describe asks a proxy that runs"
        yield f"store {config.store.topic}: {told}, and is not asked here: {others}"
    if config.quotas_from is not None:
        others = (
            "the brokers may have quotas of other entities, and are not asked here: see kafka-configs.sh --describe"
            if isinstance(config.quotas_from, QuotasFromBroker)
            else "the topic may have rules for other entities, and shares for this proxy, and is not asked here"
        )
        yield ""
        yield f"quotas_from {config.quotas_from}: this is what the file says; {others}"


def of_queues(config: ProxyConfig) -> Iterator[str]:
    """Say who knows the client's priority, where there are queues."""
    how = f"--url http://{config.admin.bind}" if config.admin else "--url (and admin.bind in the file)"
    names = [listener.name for listener in config.listeners if listener.fair_call_queue is not None]
    if names:
        yield ""
        yield (
            f"fair_call_queue at listener {', '.join(names)}: the client's priority follows from what it has cost of "
            f"late; {how} tells it"
        )
