"""What an example of a message is, and what the examples share."""

from typing import Any, Final, NamedTuple

from tests.simulation.wire.common import NodeEndpoint

ID: Final = bytes(range(16))
OTHER_ID: Final = bytes(range(16, 32))
NO_ID: Final = bytes(16)
HOST: Final = NodeEndpoint(4, "broker-4.example", 9092, "rack-1")
OTHER_HOST: Final = NodeEndpoint(5, "10.0.1.5", 9093)
KIO_HOSTS: Final = [
    {"node_id": 4, "host": "broker-4.example", "port": 9092, "rack": "rack-1"},
    {"node_id": 5, "host": "10.0.1.5", "port": 9093, "rack": None},
]


class Example(NamedTuple):
    """A message whose values differ, so that no two can be mistaken for each other.

    Attributes:
        arguments: Those of ``request`` or ``response``, behind the correlation id, the version and the client-id.
        expected: The fields as kio has to read them, of all versions together. Those that a version lacks are not
            looked at.
    """

    arguments: dict[str, Any]
    expected: dict[str, Any]


# Of a request and of its response.
Examples = tuple[Example, Example]
