"""Draws a flood against a paced quota of the proxy and against Kafka's own quota, second by second.

``python -m bench.plot_flood [--seconds 60] [--out docs/pictures/flood.svg]``

The client ignores ``throttle_time_ms``, and sends Produce requests of 256 KiB as fast as it can. The floods run one
after the other at the same broker.
"""

import argparse
import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, RawClient, produce_body, record_batch, request
from tests.end_to_end.support.kafka import DIRECT, PROXIED, Kafka
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.tools import set_broker_quota

MIB: Final = 1024 * 1024
QUOTA: Final = 10 * MIB
REQUEST_SIZE_BYTES: Final = 256 * 1024
THROUGH_PROXY: Final = "flood-through-proxy"
AT_KAFKA: Final = "flood-at-kafka"
OUT: Final = Path(__file__).parents[1] / "docs" / "pictures" / "flood.svg"


def flood(*, port: int, client_id: str, topic: str, seconds: int) -> list[int]:
    """Flood one connection, and return the bytes that were acknowledged in each second."""
    # 300 bytes are left for the header and the fields around the records.
    batch = record_batch([bytes(REQUEST_SIZE_BYTES - 300)])
    frame = request(PRODUCE, PRODUCE_VERSION, 0, client_id, produce_body(topic, batch, acks=1))
    client = RawClient(port, client_id=client_id, timeout_s=2 * seconds)
    per_second = [0] * seconds
    sender = threading.Thread(target=_send_until_closed, args=(client.socket, frame))
    end = threading.Timer(seconds, client.socket.shutdown, args=(socket.SHUT_RDWR,))
    start = time.monotonic()
    sender.start()
    end.start()
    while True:
        try:
            client.receive()
        except (EOFError, OSError):
            break
        second = int(time.monotonic() - start)
        if second < seconds:
            per_second[second] += len(frame)
    end.join()
    sender.join()
    client.close()
    if time.monotonic() - start < seconds:
        raise SystemExit(f"the connection of {client_id} was closed before the end")
    return per_second


def _send_until_closed(connection: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(frame)


def measure(seconds: int) -> dict[str, list[int]]:
    """Flood through the proxy, and then against Kafka's own quota."""
    limits = {"producer_byte_rate": QUOTA}
    settings = {"shaping": "paced", "quotas": [{"client-id": THROUGH_PROXY, **limits}]}
    with Kafka(KAFKA_4) as kafka, Proxy(settings, kafka) as proxy:
        topic = create_topic(kafka)
        set_broker_quota(kafka, AT_KAFKA, limits)
        floods = {}
        for client_id, port in ((THROUGH_PROXY, proxy.port(PROXIED)), (AT_KAFKA, kafka.listener(DIRECT).port)):
            floods[client_id] = flood(port=port, client_id=client_id, topic=topic, seconds=seconds)
            print(summary(client_id, floods[client_id]), flush=True)
        return floods


def summary(client_id: str, per_second: Sequence[int]) -> str:
    """Describe the average, the first second, and the lowest and highest later second, relative to the quota."""
    later = per_second[1:]
    average = sum(per_second) / len(per_second) / QUOTA
    return (
        f"{client_id}: average {average:.3f} of the quota, first second {per_second[0] / QUOTA:.2f}, "
        f"then {min(later) / QUOTA:.2f} to {max(later) / QUOTA:.2f}; "
        f"{sum(one < QUOTA / 10 for one in per_second)} of {len(per_second)} seconds under a tenth"
    )


def draw(floods: dict[str, list[int]], out: Path) -> None:
    """Draw both floods over time, and the quota."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "flood"  # the same picture from the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    seconds = range(len(floods[AT_KAFKA]))
    axes.bar(seconds, [one / MIB for one in floods[AT_KAFKA]], width=0.8, color="#c8553d", label="Kafka's own quota")
    axes.plot(
        seconds,
        [one / MIB for one in floods[THROUGH_PROXY]],
        drawstyle="steps-mid",
        color="#1f6f8b",
        linewidth=2,
        label="through the proxy, shaping: paced",
    )
    axes.axhline(QUOTA / MIB, color="black", linewidth=1, linestyle="--", label=f"quota, {QUOTA // MIB} MiB/s")
    axes.set_xlabel("second")
    axes.set_ylabel("MiB accepted in that second")
    axes.set_title("A producer that sends all it can and ignores throttle_time_ms")
    axes.legend(loc="upper right")
    axes.margins(x=0.01)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plot_flood", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="length of each of the two floods")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    draw(measure(options.seconds), options.out)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
