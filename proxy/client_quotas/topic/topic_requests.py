"""The requests about a quota topic: its leader, and its first and last offset.

They are sent by hand, because brokers create a topic for the usual clients, and it would not be compacted.
Imported only where a topic is configured, for it loads aiokafka.
"""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final, NoReturn

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.client_quotas.topic.own_address import own_bind

EARLIEST: Final = -2
LATEST: Final = -1
# Records of open and aborted transactions are read, too.
ANY_ISOLATION: Final = 0


class NoTopicError(Exception):
    """The topic of that name is no quota topic."""


class OwnAddressError(Exception):
    """The topic would be read through this proxy."""


class LeaderMovedError(Exception):
    """The broker that is read from no longer leads the topic."""


async def leader_of(client: AIOKafkaClient, topic: str, binds: Collection[Address], *, node: int | None = None) -> int:
    """Return the node id of the one partition's leader.

    Args:
        client: The client that asks.
        topic: The topic.
        binds: Where this proxy listens.
        node: The broker to ask; left out: any broker.

    Raises:
        NoTopicError: It has several partitions.
        OwnAddressError: The leader is reached through this proxy.
        KafkaError: The topic does not exist, or may not be described.
    """
    asked = client.get_random_node() if node is None else node
    answer = await client.send(asked, MetadataRequest([topic], False))
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
        # That listener serves no client before the topic is read; later its own quotas would throttle the reader.
        raise OwnAddressError(
            f"its leader is reached at {address}, which is this proxy's own {bind}: name a listener of the brokers "
            "that no proxy is in front of"
        )
    return int(leader)


async def watch_leader(
    client: AIOKafkaClient, topic: str, binds: Collection[Address], *, leader: int, every_s: float
) -> NoReturn:
    """Check the topic's leader every ``every_s`` until it has changed. A broker that does not answer proves nothing.

    Neither does one broker with another answer: it may be the one that is partitioned from the others.

    Raises:
        LeaderMovedError: Most brokers that answer name another leader.
        NoTopicError, OwnAddressError: As of ``leader_of``, if most brokers agree.
    """
    ask = partial(_change, client, topic, binds, leader)
    while True:
        await asyncio.sleep(every_s)
        if isinstance(await ask(client.get_random_node()), Exception):
            told = await asyncio.gather(*(ask(broker.nodeId) for broker in client.cluster.brokers()))
            changes = [one for one in told if isinstance(one, Exception)]
            if len(changes) > told.count(True):
                raise changes[0]


async def _change(
    client: AIOKafkaClient, topic: str, binds: Collection[Address], leader: int, node: int
) -> Exception | bool:
    """Return how a broker says that the topic has changed; True: not at all; False: it does not answer."""
    try:
        found = await leader_of(client, topic, binds, node=node)
    except (NoTopicError, OwnAddressError) as error:
        return error
    except Exception:  # noqa: BLE001 - no reason to read the topic again
        return False
    return found == leader or LeaderMovedError("its leader is another broker by now")


async def offset_of(client: AIOKafkaClient, leader: int, topic: str, which: int) -> int:
    """Return the first offset of the topic, or the one behind its last record.

    Raises:
        KafkaError: The broker answers with an error.
    """
    answer = await client.send(leader, OffsetRequest(-1, ANY_ISOLATION, [(topic, [(0, which)])]))
    ((_, ((_, error_code, *_, offset),)),) = answer.topics
    raise_for(error_code)
    return int(offset)


def raise_for(error_code: int) -> None:
    """Raise an error code as an exception.

    Raises:
        KafkaError: The code is not 0.
    """
    error = for_code(error_code)
    if error_code:
        raise error


def words_of(error: Exception) -> str:
    """Return why a topic cannot be read or written, in words."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return "there is no such topic"
    if isinstance(error, TopicAuthorizationFailedError):
        return "the cluster does not allow it: this client needs the right to READ and DESCRIBE the topic"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or repr(error)
