"""Tests warnings about two listeners that may lead to one broker under different names."""

from kafka_quota_proxy.config.errors import Severity
from kafka_quota_proxy.config.load import load_bytes
from tests.support.cases import each_case

SIDECAR = "  - {{name: l{}, bind: 127.0.0.1:{}, upstream: '{}'}}\n"
CLUSTER = "  - {{name: l{}, bind: 127.0.0.1:{}, bootstrap_servers: '{}', broker_ports: {}-{}}}\n"


def file_of(*servers: str) -> bytes:
    """Return a configuration file with a listener for each server, and one for each ``cluster ADDRESS``."""
    text = "listeners:\n"
    for number, address in enumerate(servers):
        port = 9100 + 100 * number
        kind, _, rest = address.partition(" ")
        if kind == "cluster":
            text += CLUSTER.format(number, port, rest, port + 1, port + 50)
        else:
            text += SIDECAR.format(number, port, address)
    return text.encode()


def warned(*servers: str) -> list[str]:
    warnings = load_bytes(file_of(*servers), file="f.yaml").warnings
    assert {warning.severity for warning in warnings} <= {Severity.WARNING}
    return [str(warning) for warning in warnings if "share its quotas" in str(warning)]


def test_the_warning_names_both_listeners_and_the_remedy() -> None:
    (warning,) = warned("127.0.0.1:19092", "localhost:19092")
    assert warning == (
        "f.yaml:3: listeners[1].upstream: warning: localhost:19092 may be the broker at 127.0.0.1:19092 in line 2: "
        "both listeners then share its quotas, and the shaping of that line holds; write it alike in both"
    )


@each_case(
    "servers, count",
    [
        (("127.0.0.1:19092", "[::1]:19092"), 1),
        (("Broker.example:9092", "broker.example.:9092"), 1),
        (("127.0.0.1:19092", "localhost:19092", "[::1]:19092"), 2),
        (("cluster a:9092,b:9092", "cluster b:9092,c:9092"), 1),
        (("cluster a:9092,b:9092", "b:9092"), 1),
        (("localhost:19092", "cluster 127.0.0.1:19092"), 1),
        # Equal addresses are certainly one broker. Other ports and hosts are other brokers.
        (("127.0.0.1:19092", "127.0.0.1:19092"), 0),
        (("cluster a:9092,b:9092", "cluster b:9092,a:9092"), 0),
        (("127.0.0.1:19092", "localhost:19093"), 0),
        (("127.0.0.1:19092", "127.0.0.2:19092"), 0),
        (("a:9092", "b:9092"), 0),
    ],
)
def test_address_texts_tell_whether_two_upstreams_are_one_broker(servers: tuple[str, ...], count: int) -> None:
    assert len(warned(*servers)) == count
