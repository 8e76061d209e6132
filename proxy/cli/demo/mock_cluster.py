"""Runs librdkafka's mock cluster, a broker for tests that is part of confluent-kafka's wheel, through ctypes.

The interface of the mock cluster (``rdkafka_mock.h``) may change in any release. Therefore confluent-kafka is pinned to
a minor version. The mock keeps 5 MiB or 100,000 batches per partition, and listens on loopback ports of its own choice.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import socket
import struct
from collections.abc import Mapping, Sequence
from ctypes import c_char_p, c_int, c_int16, c_int32, c_size_t, c_void_p
from typing import Any, Final, Self

from kafka_quota_proxy.proxy.cli.demo.workload import DemoError
from kafka_quota_proxy.proxy.runtime.build import install_line

_PRODUCER: Final = 0  # rd_kafka_type_t RD_KAFKA_PRODUCER
_ERROR_BYTES: Final = 512
# The newest version of some APIs, by API key. The mock announces newer versions, too, but its responses of these
# versions are malformed, or mock_relay would have to know their layout.
_VERSION_CAPS: Final[Mapping[int, int]] = {
    3: 12,  # Metadata
    8: 7,  # OffsetCommit
    9: 5,  # OffsetFetch
    11: 5,  # JoinGroup
    12: 3,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 3,  # SyncGroup
}
# APIs that the mock is not to have, by API key.
_DISABLED: Final = (
    68,  # ConsumerGroupHeartbeat: the request of a Java client ends the mock's process
    71,  # GetTelemetrySubscriptions
    72,  # PushTelemetry
    76,  # ShareGroupHeartbeat
    78,  # ShareFetch
    79,  # ShareAcknowledge
)
# An ApiVersions request of v0, with its length.
_WAKING_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, 0, -1)
_ANSWERS_BYTES: Final = 1 << 16


class MockCluster:
    """A mock cluster of one broker, which has the node id 1.

    Use it as a context manager. ``topics`` are created with one partition each.

    Attributes:
        topics: The number of partitions of each topic.

    Raises:
        DemoError: confluent-kafka is not installed, or its mock cluster does not start.
    """

    def __init__(self, topics: Sequence[str] = ()) -> None:
        self.topics: dict[str, int] = {}
        self._library = load_librdkafka()
        self._client = self._new_client()
        self._cluster = self._function("mock_cluster_new", c_void_p, c_void_p, c_int)(self._client, 1)
        if not self._cluster:
            raise DemoError("librdkafka's mock cluster does not start")
        self._waker = socket.create_connection(("127.0.0.1", self.port))
        set_versions = self._operation("mock_set_apiversion", c_int, c_void_p, c_int16, c_int16, c_int16)
        for api_key, newest in _VERSION_CAPS.items():
            set_versions(self._cluster, api_key, 0, newest)
        for api_key in _DISABLED:
            set_versions(self._cluster, api_key, -1, -1)
        # Metadata responses name no controller otherwise, and Java's admin client waits for one.
        self._operation("mock_set_controller_id", None, c_void_p, c_int32)(self._cluster, 1)
        for topic in topics:
            self.create_topic(topic, 1)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 on which the broker listens, whatever address it advertises."""
        bootstraps = self._function("mock_cluster_bootstraps", c_char_p, c_void_p)
        return int(bootstraps(self._cluster).decode().rpartition(":")[2])

    def advertise(self, host: str, port: int) -> None:
        """Set the address that Metadata responses give for the broker from now on."""
        set_address = self._operation("mock_broker_set_host_port", None, c_void_p, c_int32, c_char_p, c_int)
        set_address(self._cluster, 1, host.encode(), port)

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic.

        Raises:
            DemoError: The mock refuses the topic, for example because it exists.
        """
        create = self._operation("mock_topic_create", c_int, c_void_p, c_char_p, c_int, c_int)
        if error := create(self._cluster, topic.encode(), partitions, 1):
            raise DemoError(f"librdkafka's mock cluster refuses topic {topic}: error {error}")
        self.topics[topic] = partitions

    def delete_topic(self, topic: str) -> None:
        """Delete an existing topic and its records."""
        self._operation("mock_topic_delete", c_int, c_void_p, c_char_p)(self._cluster, topic.encode())
        del self.topics[topic]

    def set_rebalance_delay_ms(self, delay_ms: int) -> None:
        """Set how long new groups wait for members after their first one."""
        self._operation("mock_group_initial_rebalance_delay_ms", None, c_void_p, c_int32)(self._cluster, delay_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._operation("mock_cluster_destroy", None, c_void_p)(self._cluster)
        self._waker.close()
        self._function("destroy", None, c_void_p)(self._client)

    def _new_client(self) -> int:
        """Create a librdkafka client and return its handle.

        A mock cluster can run only within a client. This client connects to no broker.
        """
        configuration = self._function("conf_new", c_void_p)()
        message = ctypes.create_string_buffer(_ERROR_BYTES)
        set_key = self._function("conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
        # Without bootstrap.servers librdkafka would warn. With log_level 0 it logs emergencies only.
        for key, value in ((b"bootstrap.servers", b"127.0.0.1:1"), (b"log_level", b"0")):
            if set_key(configuration, key, value, message, _ERROR_BYTES):
                raise DemoError(f"librdkafka refuses {key.decode()}: {message.value.decode()}")
        new = self._function("new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
        handle: int | None = new(_PRODUCER, configuration, message, _ERROR_BYTES)
        if not handle:
            raise DemoError(f"librdkafka does not start: {message.value.decode()}")
        return handle

    def _operation(self, name: str, result: Any, *arguments: Any) -> Any:  # noqa: ANN401 - as below
        """Return a function that the mock's thread carries out.

        An idle mock looks for such work once a second, but at once after it has answered a request.
        """
        function = self._function(name, result, *arguments)

        def operate(*values: object) -> Any:  # noqa: ANN401 - as below
            with contextlib.suppress(BlockingIOError):
                self._waker.recv(_ANSWERS_BYTES, socket.MSG_DONTWAIT)
            self._waker.sendall(_WAKING_REQUEST)
            return function(*values)

        return operate

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:  # noqa: ANN401 - ctypes names its types no better
        function = getattr(self._library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, list(arguments)
        return function


def load_librdkafka() -> ctypes.CDLL:
    """Open the librdkafka library that confluent-kafka uses.

    It is opened through confluent-kafka's own extension module, of which it is a dependency, wherever it lies.

    Raises:
        DemoError: confluent-kafka is not installed.
    """
    try:
        module = importlib.import_module("confluent_kafka.cimpl")
    except ImportError as error:
        raise DemoError(f"the demo needs {error.name}, which is not installed: {install_line('demo')}") from error
    return ctypes.CDLL(module.__file__)
