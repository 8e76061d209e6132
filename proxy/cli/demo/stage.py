"""Runs the demo: starts the broker and the proxy, runs the clients, measures, stops everything."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from aiokafka.errors import KafkaError

from kafka_quota_proxy.proxy.cli.demo import clients, load, measure, scrape
from kafka_quota_proxy.proxy.cli.demo.display import HISTORY_S, ClientView, Display
from kafka_quota_proxy.proxy.cli.demo.errors import ClientError, DemoError, MeasurementError
from kafka_quota_proxy.proxy.cli.demo.load import Options, Shape
from kafka_quota_proxy.proxy.cli.demo.processes import free_ports, running

_REDRAW_S: Final = 0.25
_SCRAPE_S: Final = 0.5
_FIRST_BYTE_TIMEOUT_S: Final = 20
_READY: Final = re.compile(r"ready on (\S+)")
_LISTENING: Final = re.compile(r"listening on (\S+)")


@dataclass(slots=True)
class Party:
    """One client of the demo, with its measurements so far."""

    name: str
    client_id: str
    quota: int  # bytes per second
    shape: Shape
    flow: measure.Flow = field(default_factory=measure.Flow)
    throttling: scrape.Throttling = field(default_factory=scrape.Throttling)

    def measured(self, *, now_s: float) -> float:
        """Return the rate that is compared with the quota.

        Raises:
            MeasurementError: Too little was seen.
        """
        if self.shape is Shape.SAMPLED:
            return measure.sampled_rate(self.flow, quota_bytes_per_second=self.quota)
        return measure.paced_rate(self.flow, quota_bytes_per_second=self.quota, now_s=now_s)

    def view(self, *, now_s: float) -> ClientView:
        """Return the state to display."""
        start_s = self.flow.times[0] if self.flow.times else now_s
        seconds = int(now_s - start_s)
        shown = range(max(0, seconds - HISTORY_S), seconds)
        return ClientView(
            name=self.name,
            quota=self.quota,
            rate_now=self.flow.rate(now_s=now_s),
            rate=self._rate_so_far(now_s=now_s),
            throttling=self.throttling,
            history=tuple(self.flow.bytes_between(start_s + n, start_s + n + 1) / 1.0 for n in shown),
        )

    def _rate_so_far(self, *, now_s: float) -> float | None:
        try:
            return self.measured(now_s=now_s)
        except MeasurementError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One client's result. Rates in bytes per second, the throttle time is the sum over all its requests."""

    quota_bytes_per_second: int
    measured_bytes_per_second: float
    throttle_time_ms: float

    @property
    def is_within_tolerance(self) -> bool:
        """Whether the client was held at its quota."""
        return measure.is_within_tolerance(
            self.measured_bytes_per_second, quota_bytes_per_second=self.quota_bytes_per_second
        )


async def run(options: Options, display: Display) -> tuple[Outcome, Outcome]:
    """Run the demo; return the results of the producer and of the consumer.

    Raises:
        DemoError: It could not be run to its end.
    """
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    # What a client cannot get over it raises; its log is about retries, also those of a connection that we close.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    producer = Party("producer", load.PRODUCER_CLIENT_ID, options.produce_rate, options.shape)
    consumer = Party("consumer", load.CONSUMER_CLIENT_ID, options.fetch_rate, options.shape)
    proxy_port, admin_port = free_ports(2)
    fetch_bytes = load.record_bytes(options.fetch_rate, overhead_bytes=clients.FETCH_OVERHEAD_BYTES)
    preload = f"{fetch_bytes}:{load.preload_records(fetch_bytes)}"
    broker_arguments = (
        "-m",
        "kafka_quota_proxy.proxy.cli.demo.broker",
        "--advertise",
        f"127.0.0.1:{proxy_port}",
        "--preload",
        preload,
    )
    with tempfile.TemporaryDirectory(prefix="kafka-quota-proxy-demo-") as scratch:
        directory = Path(scratch)
        async with running("the embedded broker", broker_arguments, log=directory / "broker.log") as broker:
            upstream = (await broker.wait_for_line(_READY))[1]
            config = directory / "demo.yaml"
            config.write_text(proxy_config(options, proxy_port=proxy_port, admin_port=admin_port, upstream=upstream))
            async with running(
                "the proxy", ("-m", "kafka_quota_proxy.proxy", "run", str(config)), log=directory / "proxy.log"
            ) as proxy:
                bootstrap = (await proxy.wait_for_line(_LISTENING))[1]
                produce_bytes = load.record_bytes(options.produce_rate, overhead_bytes=clients.PRODUCE_OVERHEAD_BYTES)
                metrics = f"http://127.0.0.1:{admin_port}/metrics"
                ended_s = await while_all_is_well(
                    _show(options, (producer, consumer), display, metrics=metrics),
                    (
                        _client(
                            clients.produce(bootstrap, value_bytes=produce_bytes, flow=producer.flow, clock=monotonic)
                        ),
                        _client(clients.consume(bootstrap, flow=consumer.flow, clock=monotonic)),
                        broker.fail_when_ended(),
                        proxy.fail_when_ended(),
                    ),
                )
    return _outcome(producer, now_s=ended_s), _outcome(consumer, now_s=ended_s)


def proxy_config(options: Options, *, proxy_port: int, admin_port: int, upstream: str) -> str:
    """Return the proxy's configuration file: a sidecar of the embedded broker. JSON is YAML."""
    return json.dumps(
        {
            "listeners": [{"name": "demo", "bind": f"127.0.0.1:{proxy_port}", "upstream": upstream}],
            "shaping": options.shape.value,
            "quotas": [
                {"client-id": load.PRODUCER_CLIENT_ID, "producer_byte_rate": options.produce_rate},
                {"client-id": load.CONSUMER_CLIENT_ID, "consumer_byte_rate": options.fetch_rate},
            ],
            "admin": {"bind": f"127.0.0.1:{admin_port}"},
            # Its warnings here would say that two clients are throttled, which is the point.
            "log": {"level": "error"},
        },
        indent=2,
    )


async def while_all_is_well(show: Coroutine[None, None, float], others: Sequence[Coroutine[None, None, None]]) -> float:
    """Run ``show`` together with the others and return its result; the first failure ends all.

    Raises:
        DemoError: That failure.
    """
    try:
        async with asyncio.TaskGroup() as group:
            main = group.create_task(show)
            background = [group.create_task(other) for other in others]
            main.add_done_callback(lambda _: [task.cancel() for task in background])
    except BaseExceptionGroup as failures:
        expected, unexpected = failures.split(DemoError)
        if expected is None or unexpected is not None:
            raise
        # The first is the cause: a vanished proxy fails the clients too.
        raise expected.exceptions[0] from None
    return main.result()


async def _client(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except KafkaError as error:
        raise ClientError(f"a client failed: {error!r}") from error


async def _show(options: Options, parties: Sequence[Party], display: Display, *, metrics: str) -> float:
    """Draw until the end; return the time up to which rates count."""
    started_s = await _first_bytes(parties)
    planned_s = load.planned_seconds(options)
    scraped_s = 0.0
    while True:
        await asyncio.sleep(_REDRAW_S)
        now_s = monotonic()
        elapsed_s = now_s - started_s
        is_over = elapsed_s >= planned_s and _is_measured(options, parties, elapsed_s=elapsed_s)
        if is_over or now_s - scraped_s >= _SCRAPE_S:
            scraped_s = now_s
            text = await asyncio.to_thread(scrape.fetch_metrics, metrics)
            for party in parties:
                party.throttling = scrape.throttling(text, client_id=party.client_id)
        display.show([party.view(now_s=now_s) for party in parties], elapsed_s=elapsed_s, planned_s=planned_s)
        if is_over:
            return now_s


async def _first_bytes(parties: Sequence[Party]) -> float:
    deadline_s = monotonic() + _FIRST_BYTE_TIMEOUT_S
    while not all(party.flow.times for party in parties):
        if monotonic() > deadline_s:
            raise ClientError(f"no byte passed the proxy within {_FIRST_BYTE_TIMEOUT_S} s")
        await asyncio.sleep(0.02)
    return max(party.flow.times[0] for party in parties)


def _is_measured(options: Options, parties: Sequence[Party], *, elapsed_s: float) -> bool:
    """Whether the demo may end: with sampled windows each client needs a whole cycle, within a time limit."""
    if options.shape is Shape.PACED or elapsed_s >= load.planned_seconds(options) + load.SAMPLED_PATIENCE_SECONDS:
        return True
    return all(len(measure.burst_starts(party.flow, quota_bytes_per_second=party.quota)) >= 2 for party in parties)


def _outcome(party: Party, *, now_s: float) -> Outcome:
    return Outcome(
        quota_bytes_per_second=party.quota,
        measured_bytes_per_second=round(party.measured(now_s=now_s), 1),
        throttle_time_ms=round(party.throttling.throttle_time_ms, 1),
    )
