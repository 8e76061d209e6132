"""Runs librdkafka's mock cluster, a broker for tests that is part of confluent-kafka's wheel, through ctypes.

The interface of the mock cluster (``rdkafka_mock.h``) may change in any release. Therefore confluent-kafka is pinned to
a minor version. The mock keeps 5 MiB or 100,000 batches per partition, and listens on loopback ports of its own choice.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sysconfig
import time
from collections.abc import Callable, Mapping
from ctypes import c_char_p, c_int, c_int16, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Final, Self

from kafka_quota_proxy.proxy.cli.demo.workload import DemoError

_PRODUCER: Final = 0  # rd_kafka_type_t RD_KAFKA_PRODUCER
_NODE_ID: Final = 1  # the first broker of a mock cluster
_ERROR_BYTES: Final = 512
# The newest version of each API that the mock encodes as Kafka does, by API key. The mock announces newer versions,
# too, but its responses of these versions are malformed.
_VERSION_CAPS: Final[Mapping[int, int]] = {
    3: 12,  # Metadata
    11: 5,  # JoinGroup
    13: 3,  # LeaveGroup
    14: 3,  # SyncGroup
}
# The mock's thread clears its wake-up signal after it has executed an operation. An operation that is requested in
# between loses its signal, and is executed a second later.
_PAUSE_S: Final = 0.002
_MAPS: Final = Path("/proc/self/maps")
# auditwheel (Linux) and delocate (macOS) put bundled libraries here, relative to the package's directory.
_BUNDLED: Final = (
    ("../confluent_kafka.libs", "librdkafka*.so*"),
    (".dylibs", "librdkafka*.dylib"),
    ("../confluent_kafka.dylibs", "librdkafka*.dylib"),
)


class MockCluster:
    """A mock cluster of one broker, with topics of one partition each. Use it as a context manager.

    Raises:
        DemoError: confluent-kafka is not installed, or its librdkafka has no mock cluster.
    """

    def __init__(self, topics: tuple[str, ...]) -> None:
        self._library = load_librdkafka()
        self._client = self._new_client()
        self._cluster = self._function("mock_cluster_new", c_void_p, c_void_p, c_int)(self._client, 1)
        if not self._cluster:
            raise DemoError("librdkafka's mock cluster does not start")
        cap_version = self._operation("mock_set_apiversion", c_int, c_void_p, c_int16, c_int16, c_int16)
        for api_key, newest in _VERSION_CAPS.items():
            cap_version(self._cluster, api_key, 0, newest)
        create_topic = self._operation("mock_topic_create", c_int, c_void_p, c_char_p, c_int, c_int)
        for topic in topics:
            if error := create_topic(self._cluster, topic.encode(), 1, 1):
                raise DemoError(f"librdkafka's mock cluster refuses topic {topic}: error {error}")

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 on which the mock itself listens, whatever address it advertises."""
        bootstraps = self._function("mock_cluster_bootstraps", c_char_p, c_void_p)
        return int(bootstraps(self._cluster).decode().rpartition(":")[2])

    def advertise(self, host: str, port: int) -> None:
        """Set the address that Metadata responses of the mock broker give for this broker from now on."""
        set_address = self._operation("mock_broker_set_host_port", None, c_void_p, c_int32, c_char_p, c_int)
        set_address(self._cluster, _NODE_ID, host.encode(), port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._function("mock_cluster_destroy", None, c_void_p)(self._cluster)
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

    def _operation(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:  # noqa: ANN401 - as below
        """Return a function that the mock's thread executes."""
        function = self._function(name, result, *arguments)

        def operation(*values: object) -> Any:  # noqa: ANN401 - as below
            time.sleep(_PAUSE_S)
            return function(*values)

        return operation

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:  # noqa: ANN401 - ctypes names its types no better
        function = getattr(self._library, f"rd_kafka_{name}", None)
        if function is None:
            raise DemoError(f"librdkafka lacks rd_kafka_{name}: this demo knows confluent-kafka 2.16")
        function.restype, function.argtypes = result, list(arguments)
        return function


def load_librdkafka() -> ctypes.CDLL:
    """Open the same librdkafka library that confluent-kafka uses.

    Raises:
        DemoError: confluent-kafka is not installed, or its librdkafka is not found.
    """
    try:
        module = importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise DemoError(missing_extra_message(error.name or str(error), soabi=_soabi())) from error
    package = Path(str(module.__file__)).parent
    # The loaded library is tried first, because a confluent-kafka built from source uses a library of the system, which
    # no glob would find.
    maps = _MAPS.read_text() if _MAPS.exists() else ""
    path = library_in_maps(maps) or bundled_library(package)
    if path is None:
        raise DemoError(f"no librdkafka next to confluent-kafka in {package}: reinstall it")
    return ctypes.CDLL(path)


def library_in_maps(maps: str) -> str | None:
    """Return the path of the librdkafka library that this process has loaded, or None if it has loaded none.

    ``maps`` is the text of Linux's ``/proc/self/maps``, which lists the loaded libraries.
    """
    for line in maps.splitlines():
        # address perms offset dev inode path; the path may hold spaces
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and Path(fields[5]).name.startswith("librdkafka"):
            return fields[5]
    return None


def bundled_library(package: Path) -> str | None:
    """Return the path of the librdkafka library that is bundled with confluent-kafka, or None if there is none.

    ``package`` is the directory in which confluent-kafka is installed.
    """
    for directory, pattern in _BUNDLED:
        for path in sorted((package / directory).glob(pattern)):
            return str(path.resolve())
    return None


def missing_extra_message(package: str, *, soabi: str) -> str:
    """Return a message that says how to install a missing package. ``soabi`` is Python's ABI tag."""
    if "musl" in soabi and package.startswith("confluent_kafka"):
        return "the demo's broker (confluent-kafka) has no wheel for musl (Alpine): use a glibc system, such as Debian"
    return f"the demo needs {package}, which is not installed: pip install 'kafka-quota-proxy[demo]'"


def require_extra(*packages: str) -> None:
    """Raise ``DemoError`` if one of the Python packages in ``packages`` is not installed.

    ``pip install 'kafka-quota-proxy[demo]'`` installs them. They are not imported.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise DemoError(missing_extra_message(package, soabi=_soabi()))


def _soabi() -> str:
    return str(sysconfig.get_config_var("SOABI") or "")  # such as cpython-311-x86_64-linux-musl
