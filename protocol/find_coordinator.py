"""Finds the coordinators in FindCoordinator responses (key 10), and replaces their addresses.

The new addresses are the advertised ones.
"""

from struct import Struct
from typing import Final

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.broker_list import MAX_FRONT_BYTES, AdvertisedAddresses, Broker, broker_list
from kafka_quota_proxy.protocol.codec import Values, read_response
from kafka_quota_proxy.protocol.errors import HeadTooLong
from kafka_quota_proxy.protocol.primitives import write_string

_COORDINATOR_NOT_AVAILABLE: Final = 15
NO_NODE: Final = -1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_FIRST_BATCH: Final = 4


def find_coordinators(data: bytes, start: int, api_version: int) -> tuple[Broker, ...] | None:
    """Return the coordinators in a FindCoordinator response, or None until the whole response has arrived.

    The response begins at the offset ``start``. A coordinator that is not available has node_id -1.
    """
    if len(data) - start < 4:
        return None
    size_bytes = _INT32.unpack_from(data, start)[0]
    if size_bytes > MAX_FRONT_BYTES:
        raise HeadTooLong(f"a FindCoordinator response has {size_bytes} bytes")
    if len(data) - start < 4 + size_bytes:
        return None
    *_, begin, node_id, host, port, rest, coordinators = _read(data, start, api_version)
    end = start + 4 + size_bytes
    listed = ((begin, node_id, host, port, rest),) if coordinators is None else [one[1:] for one in coordinators]
    # The offsets are those within the frame.
    brokers = broker_list(0, listed, end - start, is_compact=False).brokers
    return tuple(one._replace(begin=start + one.begin, rest=start + one.rest, end=start + one.end) for one in brokers)


def _read(data: bytes, start: int, api_version: int) -> Values:
    frame = data[start : start + 4 + int.from_bytes(data[start : start + 4])]
    return read_response(frame, ApiKey.FIND_COORDINATOR, api_version)


def replace_coordinators(
    data: bytes, start: int, api_version: int, coordinators: tuple[Broker, ...], addresses: AdvertisedAddresses
) -> bytes:
    """Return the whole frame, with each coordinator's address replaced by its advertised one.

    A coordinator without an advertised address gets the error COORDINATOR_NOT_AVAILABLE, after which clients ask again.
    """
    is_compact = api_version >= 3
    end = start + 4 + int(_INT32.unpack_from(data, start)[0])
    parts = []
    at = start + 4
    for coordinator in coordinators:
        known = addresses.get(coordinator.node_id)
        host, port = known or (b"", -1)
        node_id = coordinator.node_id if known else NO_NODE
        front = data[at : coordinator.begin]
        rest = data[coordinator.rest : coordinator.end]
        if known is None and coordinator.node_id != NO_NODE:
            if api_version >= _FIRST_BATCH:
                rest = _INT16.pack(_COORDINATOR_NOT_AVAILABLE) + rest[2:]
            else:
                error = start + _read(data, start, api_version)[1] - at
                front = front[:error] + _INT16.pack(_COORDINATOR_NOT_AVAILABLE) + front[error + 2 :]
        parts += [front, _INT32.pack(node_id), write_string(host, is_compact=is_compact), _INT32.pack(port), rest]
        at = coordinator.end
    body = b"".join((*parts, data[at:end]))
    return _INT32.pack(len(body)) + body
