"""What the clients of a quota topic ask a cluster, by hand: where the topic is, and how far it goes.

Nobody may make the topic by asking for it, as brokers do for clients of the usual kind: it would not be compacted.
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
# What is written is read, committed or not.
ANY_ISOLATION: Final = 0


class NoTopicError(Exception):
    """There is something of that name, and it is no quota topic."""


class OwnAddressError(Exception):
    """The topic would be read through this proxy."""


class LeaderMovedError(Exception):
    """Who is asked leads the topic no more."""


async def leader_of(client: AIOKafkaClient, topic: str, binds: Collection[Address], *, node: int | None = None) -> int:
    """Return the node id of the one partition's leader.

    Args:
        client: Who asks.
        topic: The topic.
        binds: Where this proxy listens.
        node: Whom to ask; left out: any broker.

    Raises:
        NoTopicError: It has several partitions.
        OwnAddressError: The leader is reached through this proxy.
        KafkaError: It is not there, or cannot be asked for.
    """
    asked = client.get_random_node() if node is None else node
    answer = await client.send(asked, MetadataRequest([topic], False))
    ((error_code, _, *_, partitions),) = answer.topics
    raise_for(error_code)
    if len(partitions) != 1:
        raise NoTopicError(
            f"it has {len(partitions)} partitions, between which there is no order: make it anew, with one"
        )
    ((error_code, _, leader, *_),) = partitions
    raise_for(error_code)
    host, port = next(((host, port) for node_id, host, port, *_ in answer.brokers if node_id == leader), ("", 0))
    address = Address(host=host, port=port)
    bind = await own_bind(address, binds)
    if bind is not None:
        # Nobody is served there before the topic is read; and later its own quotas would hold the reader back.
        raise OwnAddressError(
            f"its leader is reached at {address}, which is this proxy's own {bind}: name a listener of the brokers "
            "that no proxy is in front of"
        )
    return int(leader)


async def watch_leader(
    client: AIOKafkaClient, topic: str, binds: Collection[Address], *, leader: int, every_s: float
) -> NoReturn:
    """Look whether the topic is what it was, until it is not. Who does not say proves nothing.

    Nor does one broker that says otherwise: it may itself be the one that has been cut off from the others.

    Raises:
        LeaderMovedError: Another broker is its leader, say most of those that answer.
        NoTopicError, OwnAddressError: As of ``leader_of``, likewise.
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
    """Return what a broker says that the topic is by now; True: what it was; False: it does not say."""
    try:
        found = await leader_of(client, topic, binds, node=node)
    except (NoTopicError, OwnAddressError) as error:
        return error
    except Exception:  # noqa: BLE001 - it is not for this that the topic is read anew
        return False
    return found == leader or LeaderMovedError("its leader is another broker by now")


async def offset_of(client: AIOKafkaClient, leader: int, topic: str, which: int) -> int:
    """Return the first offset of the topic, or the one behind its last record.

    Raises:
        KafkaError: The broker does not say.
    """
    answer = await client.send(leader, OffsetRequest(-1, ANY_ISOLATION, [(topic, [(0, which)])]))
    ((_, ((_, error_code, *_, offset),)),) = answer.topics
    raise_for(error_code)
    return int(offset)


def raise_for(error_code: int) -> None:
    """Raise what a broker answers with.

    Raises:
        KafkaError: It is an error.
    """
    error = for_code(error_code)
    if error_code:
        raise error


def words_of(error: Exception) -> str:
    """Return why a topic cannot be read or written, for people."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return "there is no such topic"
    if isinstance(error, TopicAuthorizationFailedError):
        return "the cluster does not allow it: this client needs the right to READ and DESCRIBE the topic"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or repr(error)
