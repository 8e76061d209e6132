"""Asks a cluster for the leader of a quota topic, and for the topic's first offset and end offset.

This module builds the requests itself, because an ordinary client may make the brokers create a missing topic.
"""

import asyncio
from collections.abc import Collection
from typing import Final, NoReturn

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.kafka_client.own_address import own_bind

EARLIEST: Final = -2
LATEST: Final = -1
# Isolation level read_uncommitted, which includes records of open and aborted transactions.
ANY_ISOLATION: Final = 0


class NoTopicError(Exception):
    """Raised if a topic cannot be used for quotas because it does not have exactly one partition."""


class OwnAddressError(Exception):
    """Raised if the leader's address, according to the cluster, leads to this proxy and not directly to a broker."""


class LeaderMovedError(Exception):
    """Raised if another broker has become the leader of the topic."""


async def leader_of(client: AIOKafkaClient, topic: str, binds: Collection[Address], *, node: int | None = None) -> int:
    """Return the node id of the leader of the topic's only partition.

    ``binds`` contains the addresses that this proxy listens on. ``node`` is the broker to ask, or None for any broker.

    Raises:
        NoTopicError: The topic has several partitions.
        OwnAddressError: The address of the leader leads to this proxy.
        KafkaError: The topic does not exist, or this client is not allowed to describe it.
    """
    answer = await client.send(client.get_random_node() if node is None else node, MetadataRequest([topic], False))
    ((error_code, _, *_, partitions),) = answer.topics
    raise_for(error_code)
    if len(partitions) != 1:
        raise NoTopicError(
            f"the topic must have exactly one partition, but has {len(partitions)}: create it again with one"
        )
    ((error_code, _, leader, *_),) = partitions
    raise_for(error_code)
    host, port = next(((host, port) for node_id, host, port, *_ in answer.brokers if node_id == leader), ("", 0))
    address = Address(host=host, port=port)
    bind = await own_bind(address, binds)
    if bind is not None:
        # This proxy serves no client before the topic is read. Later, its quotas would throttle the reader.
        raise OwnAddressError(
            f"its leader is reached at {address}, which is this proxy's own {bind}: name a listener of the brokers "
            "that has no proxy in front"
        )
    return int(leader)


async def watch_leader(
    client: AIOKafkaClient, topic: str, binds: Collection[Address], *, leader: int, every_s: float
) -> NoReturn:
    """Check every ``every_s`` seconds whether ``leader`` is still the leader of the topic, and raise an error if not.

    Each time, one broker is asked. If it reports a change, all brokers are asked, because a single broker may be cut
    off from the others. The error is raised if more brokers report a change than report no change.

    Raises:
        LeaderMovedError: The topic has another leader.
        NoTopicError: The topic has several partitions.
        OwnAddressError: The address of the leader leads to this proxy.
    """

    async def ask(node: int) -> Exception | bool:
        """Ask a broker whether the leader has changed.

        Return the error to raise if the broker reports a change, True if it reports none, or False if it gives no
        answer.
        """
        try:
            found = await leader_of(client, topic, binds, node=node)
        except (NoTopicError, OwnAddressError) as error:
            return error
        except Exception:  # noqa: BLE001 - no reason to read the topic again
            return False
        return found == leader or LeaderMovedError("its leader is another broker now")

    while True:
        await asyncio.sleep(every_s)
        if isinstance(await ask(client.get_random_node()), Exception):
            answers = await asyncio.gather(*(ask(broker.nodeId) for broker in client.cluster.brokers()))
            changes = [one for one in answers if isinstance(one, Exception)]
            if len(changes) > answers.count(True):
                raise changes[0]


async def offset_of(client: AIOKafkaClient, leader: int, topic: str, which: int) -> int:
    """Return the first offset of the topic if ``which`` is ``EARLIEST``, or its end offset if it is ``LATEST``."""
    answer = await client.send(leader, OffsetRequest(-1, ANY_ISOLATION, [(topic, [(0, which)])]))
    ((_, ((_, error_code, *_, offset),)),) = answer.topics
    raise_for(error_code)
    return int(offset)


def raise_for(error_code: int) -> None:
    """Raise the ``KafkaError`` for an error code, unless the code is 0."""
    if error_code:
        raise for_code(error_code)


def words_of(error: Exception) -> str:
    """Return a description of an error, for a log message about why a topic cannot be read or written."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return "there is no such topic"
    if isinstance(error, TopicAuthorizationFailedError):
        return "the cluster does not allow it: this client needs the right to READ and DESCRIBE the topic"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or repr(error)
