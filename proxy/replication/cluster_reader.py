"""Asking the cluster: blocking, for one thread at a time. It reads and never writes.

What kafka-python's own ``describe_configs`` returns tells an error from "nothing is set" nowhere, which would lift a
throttle, and brokers are asked one after the other there. So requests are sent and answers read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kafka import errors
from kafka.admin import ConfigResourceType, KafkaAdminClient
from kafka.protocol.admin import DescribeConfigsRequest

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.proxy.background.admin_client import connect, metadata_of, racks_in
from kafka_quota_proxy.proxy.replication.cluster_view import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Readings,
)

_RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
_REPLICAS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
# Answers are decoded in Python, which holds up the event loop's thread now and then: 500 topics take about 10 ms.
_TOPICS_AT_ONCE: Final = 500
_IDENTIFY_TIMEOUT_MS: Final = 3_000


class ClusterReader:
    """A connection to one cluster, kept from one reading to the next. After an error, ``close`` it and take another.

    Raises, as does each of its methods:
        Exception: Whatever kafka-python raises, and OSError; ``proxy.background.admin_client.ADMIN_ERRORS`` are known.
    """

    def __init__(self, settings: AdminClient, fallback: tuple[Address, ...]) -> None:
        self._settings = settings
        self._client = connect(settings, fallback)

    def close(self) -> None:
        """End its connections and its thread; what another thread waits for fails."""
        self._client.close()

    def read(self, *, has_topics: bool, has_configs: bool, has_topic_configs: bool) -> Readings:
        """Return what the cluster says now: who its brokers are, and what else is asked for.

        Args:
            has_topics: Whether topic ids are to be read.
            has_configs: Whether the brokers' throttles are, and which partitions are being reassigned.
            has_topic_configs: Whether the topics' lists of throttled replicas are.
        """
        metadata = metadata_of(self._client, has_topics=has_topics or has_topic_configs)
        racks = racks_in(metadata)
        topics = [topic for topic in metadata.topics if topic.error_code == 0]
        return Readings(
            racks=racks,
            topic_names=_topic_names(topics) if has_topics or has_topic_configs else None,
            broker_configs=self._broker_configs(racks) if has_configs else None,
            topic_configs=self._topic_configs([topic.name for topic in topics]) if has_topic_configs else None,
            moving=frozenset(
                (at.topic, at.partition) for at in self._client.list_partition_reassignments()
            ) if has_configs else frozenset(),
        )  # fmt: skip

    def identify(self, upstream: Address, node_ids: Iterable[int]) -> int | None:
        """Return which broker an address leads to; None where none of them says that it is it.

        Metadata does not tell: brokers name the addresses there that they advertise, which are those of proxies. But
        only the broker that it is about answers DescribeConfigs of a broker, and others refuse it (INVALID_REQUEST). So
        the address itself is asked about all of them at once.
        """
        client = connect(replace(self._settings, bootstrap_servers=(upstream,)), (), timeout_ms=_IDENTIFY_TIMEOUT_MS)
        try:
            names = [str(node_id) for node_id in node_ids]
            # What kafka-python calls the first of its bootstrap_servers, whoever that is.
            (response,) = _describe(client, [(ConfigResourceType.BROKER, names, _RATES, "bootstrap-0")])
        finally:
            client.close()
        if isinstance(response, Exception):
            raise response
        found = [int(result.resource_name) for result in response.results if result.error_code == 0]
        return found[0] if len(found) == 1 else None

    def _broker_configs(self, node_ids: Iterable[int]) -> Mapping[int, Mapping[str, str | None] | None]:
        """Each broker tells its own, at once. One that is away tells nothing."""
        asked = list(node_ids)
        queries = [(ConfigResourceType.BROKER, [str(node_id)], _RATES, node_id) for node_id in asked]
        configs: dict[int, Mapping[str, str | None] | None] = {}
        failures: list[Exception] = []
        for node_id, response in zip(asked, _describe(self._client, queries), strict=True):
            if isinstance(response, Exception):
                configs[node_id] = None
                failures.append(response)
            else:
                configs[node_id] = _values(response.results[0])
        if failures and len(failures) == len(asked):
            raise failures[0]
        return configs

    def _topic_configs(self, names: list[str]) -> Mapping[str, Mapping[str, str | None]]:
        configs: dict[str, Mapping[str, str | None]] = {}
        for first in range(0, len(names), _TOPICS_AT_ONCE):
            some = names[first : first + _TOPICS_AT_ONCE]
            (response,) = _describe(self._client, [(ConfigResourceType.TOPIC, some, _REPLICAS, None)])
            if isinstance(response, Exception):
                raise response
            for result in response.results:
                if errors.for_code(result.error_code) is not errors.UnknownTopicOrPartitionError:  # deleted meanwhile
                    configs[result.resource_name] = _values(result)
        return configs


# Of which kind, the names, the keys, and the node to ask.
_Query = tuple[ConfigResourceType, list[str], tuple[str, ...], int | str | None]


def _describe(client: KafkaAdminClient, queries: Sequence[_Query]) -> list[Any]:
    """Send each query, to the node that it names, and return the responses, or the exceptions in their stead."""
    manager = client._manager  # noqa: SLF001 - it has no public way to ask for all of this at once

    async def ask() -> list[Any]:
        requests = [
            manager.send(
                DescribeConfigsRequest(resources=[(int(kind), name, list(keys)) for name in names]), node_id=node_id
            )
            for kind, names, keys, node_id in queries
        ]
        responses: list[Any] = []
        for request in requests:
            try:
                responses.append(await request)
            except Exception as error:  # noqa: BLE001 - the caller tells one broker's failure from that of all
                responses.append(error)
        return responses

    found: list[Any] = manager.run(ask)
    return found


def _values(result: Any) -> Mapping[str, str | None]:  # noqa: ANN401 - kafka-python has no types
    failure = errors.for_code(result.error_code)
    if failure is not errors.NoError:
        raise failure(f"DescribeConfigs of {result.resource_name}: {result.error_message or failure.__name__}")
    return {config.name: config.value for config in result.configs}


def _topic_names(topics: Iterable[Any]) -> Mapping[bytes, str]:
    """Return names by id. Brokers below 2.8, or with an older inter.broker.protocol.version, have no ids."""
    return {topic.topic_id.bytes: topic.name for topic in topics if topic.topic_id and topic.topic_id.int}
