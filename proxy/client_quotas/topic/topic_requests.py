"""Requests about a quota topic: its leader, and its first and last offset.

They are built here because brokers create a missing topic for the usual clients, and it would not be compacted.
Imported only where a topic is configured, because it loads aiokafka.
"""

import asyncio
from collections.abc import Collection
from typing import Final, NoReturn

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.client_quotas.topic.own_address import own_bind

EARLIEST: Final = -2
LATEST: Final = -1
# So that records of open and aborted transactions are read, too.
ANY_ISOLATION: Final = 0


class NoTopicError(Exception):
    """The topic cannot be a quota topic."""


class OwnAddressError(Exception):
    """The topic would be read through this proxy."""


class LeaderMovedError(Exception):
    """The topic has another leader."""


async def leader_of(client: AIOKafkaClient, topic: str, binds: Collection[Address], *, node: int | None = None) -> int:
    """Return the node id of the leader of the topic's one partition.

    ``binds``: the addresses that this proxy listens on. ``node``: the broker to ask; None: any broker.

    Raises:
        NoTopicError: The topic has several partitions.
        OwnAddressError: The leader is reached through this proxy.
        KafkaError: The topic does not exist, or may not be described.
    """
    answer = await client.send(client.get_random_node() if node is None else node, MetadataRequest([topic], False))
    ((error_code, _, *_, partitions),) = answer.topics
    raise_for(error_code)
    if len(partitions) != 1:
        raise NoTopicError(
            f"the topic must have exactly one partition, it has {len(partitions)}: create it again with one"
        )
    ((error_code, _, leader, *_),) = partitions
    raise_for(error_code)
    host, port = next(((host, port) for node_id, host, port, *_ in answer.brokers if node_id == leader), ("", 0))
    address = Address(host=host, port=port)
    bind = await own_bind(address, binds)
    if bind is not None:
        # That listener serves no client before the topic is read, and later its quotas would throttle the reader.
        raise OwnAddressError(
            f"its leader is reached at {address}, which is this proxy's own {bind}: name a listener of the brokers "
            "that no proxy is in front of"
        )
    return int(leader)


async def watch_leader(
    client: AIOKafkaClient, topic: str, binds: Collection[Address], *, leader: int, every_s: float
) -> NoReturn:
    """Check the topic's leader every ``every_s``; raise once most brokers that answer say that it has changed.

    One broker is not enough: it may be partitioned from the others.

    Raises:
        LeaderMovedError: They name another leader.
        NoTopicError, OwnAddressError: As of ``leader_of``.
    """

    async def ask(node: int) -> Exception | bool:
        """Return the change, True for none, False without an answer."""
        try:
            found = await leader_of(client, topic, binds, node=node)
        except (NoTopicError, OwnAddressError) as error:
            return error
        except Exception:  # noqa: BLE001 - no reason to read the topic again
            return False
        return found == leader or LeaderMovedError("its leader is another broker by now")

    while True:
        await asyncio.sleep(every_s)
        if isinstance(await ask(client.get_random_node()), Exception):
            answers = await asyncio.gather(*(ask(broker.nodeId) for broker in client.cluster.brokers()))
            changes = [one for one in answers if isinstance(one, Exception)]
            if len(changes) > answers.count(True):
                raise changes[0]


async def offset_of(client: AIOKafkaClient, leader: int, topic: str, which: int) -> int:
    """Return the topic's ``EARLIEST`` or ``LATEST`` offset; that one is behind the last record."""
    answer = await client.send(leader, OffsetRequest(-1, ANY_ISOLATION, [(topic, [(0, which)])]))
    ((_, ((_, error_code, *_, offset),)),) = answer.topics
    raise_for(error_code)
    return int(offset)


def raise_for(error_code: int) -> None:
    """Raise ``KafkaError`` unless the code is 0."""
    if error_code:
        raise for_code(error_code)


def words_of(error: Exception) -> str:
    """Return why a topic cannot be read or written."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return "there is no such topic"
    if isinstance(error, TopicAuthorizationFailedError):
        return "the cluster does not allow it: this client needs the right to READ and DESCRIBE the topic"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or repr(error)
