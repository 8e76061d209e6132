"""Runs a broker in a process: ``python -m … --advertise HOST:PORT [--port PORT] [--preload BYTES:COUNT]``.

The Metadata responses contain the ``--advertise`` address. It is the proxy's, so clients connect through the proxy.
With ``--preload``, the process has the topics of the demo, and writes COUNT records of BYTES to the consumer's. The
process prints ``ready on HOST:PORT``, and ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

import aiokafka
import uvloop

from kafka_quota_proxy.proxy.cli.demo import mock_relay
from kafka_quota_proxy.proxy.cli.demo.mock_admin import MockAdmin
from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster
from kafka_quota_proxy.proxy.cli.demo.mock_groups import MockGroups
from kafka_quota_proxy.proxy.cli.demo.workload import CONSUMER_TOPIC, PRODUCER_TOPIC, DemoError


async def _run(*, advertised: str, port: int, records: tuple[int, int] | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    topics = () if records is None else (PRODUCER_TOPIC, CONSUMER_TOPIC)
    with MockCluster(topics) as mock:
        server = await serve(mock, port)
        own = "{}:{}".format(*server.sockets[0].getsockname())
        if records is not None:
            # The topic is filled before the proxy's address is advertised, because the proxy would charge these bytes.
            _advertise(mock, own)
            value_bytes, count = records
            await preload(own, value_bytes=value_bytes, records=count)
        _advertise(mock, advertised)
        sys.stdout.write(f"ready on {own}\n")
        sys.stdout.flush()
        await stop.wait()
        server.close()


async def serve(mock: MockCluster, port: int) -> asyncio.Server:
    """Listen on a port in place of the mock's broker."""
    return await mock_relay.serve(mock_port=mock.port, port=port, admin=MockAdmin(mock), groups=MockGroups(mock))


def _advertise(mock: MockCluster, address: str) -> None:
    host, _, port = address.rpartition(":")
    mock.advertise(host, int(port))


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
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; 0 for any, which is the default")
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
