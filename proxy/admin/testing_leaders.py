"""Moves the leader of a partition for a test: it reads the request of the admin port, and asks the cluster."""

from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import AdminClient, ProxyConfig
from kafka_quota_proxy.proxy.admin.requests import RefusedError, bad_request
from kafka_quota_proxy.proxy.admin.testing_orders import read_number, read_topic
from kafka_quota_proxy.proxy.replication.cluster_view import servers_of

_KEYS: Final = ("topic", "partition", "leader")
_MAX_INT32: Final = 2**31 - 1


class LeaderMove(NamedTuple):
    """A partition, and the node id of its next leader. None stands for any other replica."""

    topic: str
    partition: int
    leader: int | None


def read_move(given: object) -> LeaderMove:
    """Read a ``LeaderMove`` from parsed JSON. Raises ``RefusedError`` if it is none."""
    topic = read_topic(given) if isinstance(given, dict) else None
    if not isinstance(given, dict) or topic is None:
        raise bad_request('send an object such as {"topic": "orders", "partition": 0, "leader": 2}')
    for key in given:
        if key not in _KEYS:
            raise bad_request(f"{str(key)[:40]!r} is not a key; the keys are {', '.join(_KEYS)}")
    leader = None if given.get("leader") is None else read_number(given, "leader", 0, _MAX_INT32)
    return LeaderMove(topic, read_number({"partition": 0} | given, "partition", 0, _MAX_INT32), leader)


def move_leader(config: ProxyConfig, move: LeaderMove) -> int:
    """Let another broker lead a partition, and return its node id.

    The call blocks until the cluster names the new leader.
    The cluster is that of the first listener. The login is the one of ``replication.admin_client``, if the file has it.

    Raises:
        RefusedError: If the cluster cannot be reached, or refuses. The message says why.
    """
    # Imported here, because aiokafka loads slowly.
    from kafka_quota_proxy.proxy.kafka_client.admin_client import ADMIN_ERRORS
    from kafka_quota_proxy.proxy.kafka_client.leader_mover import LeaderMoveError, LeaderMover

    settings = AdminClient() if config.replication is None else config.replication.admin_client
    try:
        with LeaderMover(settings, servers_of(config.listeners[:1])) as mover:
            return mover.move(move.topic, move.partition, move.leader)
    except LeaderMoveError as error:
        raise RefusedError("409 Conflict", str(error)) from None
    except ADMIN_ERRORS as error:
        raise RefusedError("502 Bad Gateway", f"the cluster does not answer: {error or type(error).__name__}") from None
