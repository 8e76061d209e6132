"""librdkafka's mock cluster: a Kafka-protocol broker inside confluent-kafka's wheel, reached through ctypes.

Its interface (``rdkafka_mock.h``) is outside librdkafka's ABI promise; confluent-kafka is pinned to a minor version for
that, and a test runs a client against it. It keeps 5 MiB or 100,000 batches per partition, listens on loopback ports of
its own choice, and always waits a fetch's full ``max_wait_ms`` at the end of the log.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from kafka_quota_proxy.proxy.cli.demo.errors import LibraryError
from kafka_quota_proxy.proxy.cli.demo.library import load_librdkafka

_PRODUCER: Final = 0  # rd_kafka_type_t RD_KAFKA_PRODUCER
_NODE_ID: Final = 1  # the first broker of a mock cluster
_ERROR_BYTES: Final = 512
# Newest versions that the mock encodes as Kafka does, by API key; the ones it announces beyond them are malformed.
_VERSION_CAPS: Final[Mapping[int, int]] = {
    3: 12,  # Metadata
    11: 5,  # JoinGroup
    13: 3,  # LeaveGroup
    14: 3,  # SyncGroup
}


class MockCluster:
    """One broker with topics of one partition. Use it as a context manager.

    Raises:
        MissingExtraError: confluent-kafka is not installed.
        LibraryError: Its librdkafka is not there, or has no mock cluster.
    """

    def __init__(self, topics: tuple[str, ...]) -> None:
        self._library = load_librdkafka()
        self._client = self._new_client()
        self._cluster = self._function("rd_kafka_mock_cluster_new", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(
            self._client, 1
        )
        if not self._cluster:
            raise LibraryError("librdkafka's mock cluster does not start")
        cap_version = self._function(
            "rd_kafka_mock_set_apiversion",
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_int16,
            ctypes.c_int16,
            ctypes.c_int16,
        )
        for api_key, newest in _VERSION_CAPS.items():
            cap_version(self._cluster, api_key, 0, newest)
        create_topic = self._function(
            "rd_kafka_mock_topic_create", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int
        )
        for topic in topics:
            if error := create_topic(self._cluster, topic.encode(), 1, 1):
                raise LibraryError(f"librdkafka's mock cluster refuses topic {topic}: error {error}")

    @property
    def port(self) -> int:
        """The port of 127.0.0.1 that the mock itself listens on."""
        bootstraps = self._function("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, ctypes.c_void_p)
        return int(bootstraps(self._cluster).decode().rpartition(":")[2])

    def advertise(self, host: str, port: int) -> None:
        """Advertise this address, from the next Metadata response on."""
        set_address = self._function(
            "rd_kafka_mock_broker_set_host_port",
            None,
            ctypes.c_void_p,
            ctypes.c_int32,
            ctypes.c_char_p,
            ctypes.c_int,
        )
        set_address(self._cluster, _NODE_ID, host.encode(), port)

    def close(self) -> None:
        """Stop listening and free all memory."""
        if self._cluster:
            self._function("rd_kafka_mock_cluster_destroy", None, ctypes.c_void_p)(self._cluster)
            self._function("rd_kafka_destroy", None, ctypes.c_void_p)(self._client)
            self._cluster = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _new_client(self) -> int:
        """Return the handle of a client without a broker, which contains the mock cluster."""
        configuration = self._function("rd_kafka_conf_new", ctypes.c_void_p)()
        message = ctypes.create_string_buffer(_ERROR_BYTES)
        set_key = self._function(
            "rd_kafka_conf_set",
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        )
        # Without bootstrap.servers it would warn; log_level 0 leaves emergencies only.
        for key, value in ((b"bootstrap.servers", b"127.0.0.1:1"), (b"log_level", b"0")):
            if set_key(configuration, key, value, message, _ERROR_BYTES):
                raise LibraryError(f"librdkafka refuses {key.decode()}: {message.value.decode()}")
        new = self._function(
            "rd_kafka_new", ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        )
        handle: int | None = new(_PRODUCER, configuration, message, _ERROR_BYTES)
        if not handle:
            raise LibraryError(f"librdkafka does not start: {message.value.decode()}")
        return handle

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:  # noqa: ANN401 - ctypes names its types no better
        function = getattr(self._library, name, None)
        if function is None:
            raise LibraryError(f"librdkafka lacks {name}: this demo knows confluent-kafka 2.16")
        function.restype, function.argtypes = result, list(arguments)
        return function
