"""Runs a broker as a process: ``python -m … --advertise HOST:PORT [--port PORT] [--preload BYTES:COUNT]``.

With ``--preload``, the process has the topics of the demo, and writes COUNT records of BYTES to the consumer's. It
prints ``ready on HOST:PORT``, and ends on SIGTERM or SIGINT. Its Metadata responses contain the ``--advertise``
address. This is the proxy's address, so clients connect through the proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

import aiokafka
import uvloop

from kafka_quota_proxy.proxy.cli.demo import mock_relay
from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster
from kafka_quota_proxy.proxy.cli.demo.workload import CONSUMER_TOPIC, PRODUCER_TOPIC, DemoError


async def _run(*, advertised: str, port: int, records: tuple[int, int] | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with MockCluster(() if records is None else (PRODUCER_TOPIC, CONSUMER_TOPIC)) as mock:
        server = await mock_relay.serve(mock_port=mock.port, port=port)
        host, port = server.sockets[0].getsockname()
        if records is not None:
            # The topic is filled before the proxy's address is advertised, because the proxy would charge these bytes.
            mock.advertise(host, port)
            value_bytes, count = records
            await preload(f"{host}:{port}", value_bytes=value_bytes, records=count)
        advertised_host, _, advertised_port = advertised.rpartition(":")
        mock.advertise(advertised_host, int(advertised_port))
        sys.stdout.write(f"ready on {host}:{port}\n")
        sys.stdout.flush()
        await stop.wait()
        server.close()


async def preload(bootstrap: str, *, value_bytes: int, records: int) -> None:
    """Write ``records`` records with values of ``value_bytes`` to the consumer's topic.

    Each record is written as a batch of its own, so that a fetch can return a single record.
    """
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, max_request_size=2 * value_bytes + 1024
    ) as producer:
        value = bytes(value_bytes)
        for _ in range(records):
            await producer.send_and_wait(CONSUMER_TOPIC, value, partition=0)


def main() -> int:
    """Parse the command line, run the broker until a signal arrives, and return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--advertise", required=True, metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; 0 for any")
    parser.add_argument("--preload", metavar="BYTES:COUNT")
    arguments = parser.parse_args()
    records = None
    if arguments.preload is not None:
        value_bytes, _, count = arguments.preload.partition(":")
        records = int(value_bytes), int(count)
    try:
        uvloop.run(_run(advertised=arguments.advertise, port=arguments.port, records=records))
    except DemoError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
