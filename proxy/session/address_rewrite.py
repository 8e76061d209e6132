"""Replaces the addresses of brokers in responses with addresses of this proxy.

A client must never receive a broker's own address, because it would then connect to the broker directly. If a response
cannot be read, ``ProtocolError`` is raised, which closes the connection.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.protocol import find_coordinator, metadata, node_endpoints
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, NEVER, ApiKey
from kafka_quota_proxy.protocol.api_versions import CEILINGS
from kafka_quota_proxy.protocol.broker_list import Broker, replace_front
from kafka_quota_proxy.proxy.session.frame_edits import MAX_HELD_RESPONSE_BYTES, Edit

# A response without records is rarely longer. It is collected, so that its clients get the addresses of new leaders.
_MAX_HELD_BYTES: Final = 1024

# Is called before a response is forwarded. The arguments are the brokers in the response, whether these are all live
# brokers of the cluster, and the id of the cluster if the response has it.
See = Callable[[Mapping[int, Address], bool, str | None], None]

_FRONTS: Final = (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.FIND_COORDINATOR)
MOVED: Final = frozenset(map(int, node_endpoints.FIRST_VERSION))
ADDRESSED: Final = MOVED | frozenset(map(int, _FRONTS))

# The highest version to offer of each API, so that the proxy can read every response with addresses.
READABLE: Final[Mapping[int, int]] = {**CEILINGS, **{key: HIGHEST_VERSION[key] for key in ADDRESSED}}


class Addresses:
    """Replaces brokers' addresses in the responses to the clients of one listener.

    ``advertised`` maps the node id of each broker to the host and port at which clients reach that broker through the
    proxy. The server keeps this mapping up to date.
    """

    __slots__ = ("_see", "advertised")

    def __init__(self, see: See) -> None:
        self._see = see
        self.advertised: dict[int, tuple[bytes, int]] = {}

    def change(self, data: bytes, position: int, api_key: int, api_version: int) -> Edit | None:
        """Return the edit that replaces the addresses in a list of brokers, or None if more bytes are needed.

        The list is in a Metadata, DescribeCluster or FindCoordinator response, which begins at the offset ``position``
        of ``data``.

        Raises:
            ProtocolError: If the response cannot be read.
        """
        if api_key == ApiKey.METADATA:
            brokers = metadata.find_brokers(data, position, api_version)
            if brokers is None:
                return None
            cluster_id = metadata.find_cluster_id(data, position, brokers, api_version)
            self._meet(brokers.brokers, is_all=True, cluster_id=cluster_id)
            return position, brokers.end, replace_front(data, position, brokers, self.advertised)
        if api_key == ApiKey.DESCRIBE_CLUSTER:
            endpoints = metadata.find_endpoints(data, position, api_version)
            if endpoints is None:
                return None
            if endpoints.endpoint_type == metadata.BROKERS:
                # These are not only live brokers: from v2 on, fenced brokers are listed, too, and may be dead.
                self._meet(endpoints.brokers.brokers, is_all=False, cluster_id=endpoints.cluster_id)
            replacement = metadata.replace_endpoints(data, position, endpoints, self.advertised)
            return position, endpoints.brokers.end, replacement
        coordinators = find_coordinator.find_coordinators(data, position, api_version)
        if coordinators is None:
            return None
        self._meet(coordinators, is_all=False)
        replacement = find_coordinator.replace_coordinators(data, position, api_version, coordinators, self.advertised)
        return position, position + 4 + int.from_bytes(data[position : position + 4]), replacement

    def moved(self, data: bytes, position: int, frame_bytes: int, api_key: int, api_version: int, change: Edit) -> Edit:
        """Return the edit that replaces the addresses of partitions' new leaders in a whole Produce or fetch response.

        If a partition has moved, such a response contains the address of its new leader (KIP-951). ``change`` is the
        edit of the response's throttle time. The returned edit includes it.

        Raises:
            ProtocolError: If the response cannot be read.
        """
        end = position + frame_bytes
        if node_endpoints.has_no_endpoints(data, position, frame_bytes, api_key, api_version):
            return change
        frame = data[position:end]
        if change:
            begin, until, replacement = change
            frame = data[position:begin] + replacement + data[until:end]
        found = node_endpoints.find_endpoints(frame, api_key, api_version)
        if found is None:
            return change
        self._meet(found.array.brokers, is_all=False)
        return position, end, node_endpoints.replace_endpoints(frame, found, self.advertised)

    def _meet(self, brokers: tuple[Broker, ...], *, is_all: bool, cluster_id: str | None = None) -> None:
        self._see(
            {broker.node_id: Address(host=broker.host, port=broker.port) for broker in brokers if broker.node_id >= 0},
            is_all,
            cluster_id,
        )


def may_name_leaders(api_key: int, api_version: int) -> bool:
    """Return whether a response of this API and version may contain the addresses of partitions' new leaders."""
    return api_version >= node_endpoints.FIRST_VERSION.get(api_key, NEVER)


def streams(api_key: int, frame_bytes: int, come_bytes: int) -> bool | None:
    """Return whether the addresses in a response are edited piece by piece, as the response arrives.

    False for a response that has already arrived as a whole, and for a short response, which is collected before it is
    edited. None if more bytes are needed to decide.
    """
    most_bytes = MAX_HELD_RESPONSE_BYTES if api_key == ApiKey.PRODUCE else _MAX_HELD_BYTES
    if come_bytes >= frame_bytes or frame_bytes <= most_bytes:
        return False
    return True if come_bytes >= node_endpoints.FRONT_BYTES else None
