"""Runs the demo: starts the broker and the proxy, runs the clients, measures their rates, and stops everything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, NoReturn

from aiokafka.errors import KafkaError
from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.proxy.cli.demo import clients, measure, workload
from kafka_quota_proxy.proxy.cli.demo.display import Display, format_rate, format_seconds
from kafka_quota_proxy.proxy.cli.demo.measure import MeasurementError
from kafka_quota_proxy.proxy.cli.demo.workload import DemoError, Options
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports
from kafka_quota_proxy.proxy.runtime.processes import Child, ChildError, running

_REDRAW_S: Final = 0.25
_SCRAPE_S: Final = 0.5
_SCRAPE_TIMEOUT_S: Final = 2
_FIRST_BYTE_TIMEOUT_S: Final = 20
# Without the HTTP proxy of the environment, which does not lead to 127.0.0.1.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_READY: Final = re.compile(r"ready on (\S+)")
_LISTENING: Final = re.compile(r"listening on (\S+)")
_BROKER: Final = "kafka_quota_proxy.proxy.cli.demo.embedded_broker"


@dataclass(slots=True)
class MeasuredClient:
    """The producer or consumer of the demo: its name, its quota, and what has been measured about it so far.

    ``limited_s`` is the time at which the quota came into force, or None while the client has no limit.
    """

    name: str
    client_id: str
    quota: int  # bytes per second
    shaping: Shaping
    flow: measure.Flow = field(default_factory=measure.Flow)
    throttle_time_ms: float = 0.0
    limited_s: float | None = None
    free_rate: float = 0.0  # the rate without a limit, in bytes per second

    def limit(self, *, now_s: float) -> None:
        """Note that the quota is in force from ``now_s`` on."""
        self.limited_s = now_s
        first_s = self.flow.times[0]
        self.free_rate = self.flow.bytes_between(first_s, now_s) / (now_s - first_s)

    def rate(self, *, now_s: float) -> float:
        """Return the rate under the quota, in bytes per second.

        Raises:
            MeasurementError: There was too little traffic.
        """
        flow = self.limited_flow()
        if self.shaping is Shaping.SAMPLED:
            return measure.sampled_rate(flow, quota_bytes_per_second=self.quota)
        return measure.paced_rate(flow, quota_bytes_per_second=self.quota, now_s=now_s)

    def limited_flow(self) -> measure.Flow:
        """Return the flow under the quota, which is empty while the client has no limit."""
        return measure.Flow() if self.limited_s is None else self.flow.since(self.limited_s)

    def line(self, *, now_s: float) -> str:
        """Return the current state of this client as text."""
        rate_now = f"{self.name} {format_rate(self.flow.rate(now_s=now_s))}"
        if self.limited_s is None:
            return f"{rate_now} without a limit"
        try:
            rate = self.rate(now_s=now_s)
            average = f", average {format_rate(rate)} ({rate / self.quota:.1%})"
        except MeasurementError:
            average = ""
        return f"{rate_now} of {format_rate(self.quota)}{average}, throttled {format_seconds(self.throttle_time_ms)}"

    def outcome(self, *, now_s: float) -> Outcome:
        """Return the final result of this client. Raises MeasurementError if there was too little traffic."""
        return Outcome(
            quota_bytes_per_second=self.quota,
            measured_bytes_per_second=round(self.rate(now_s=now_s), 1),
            throttle_time_ms=round(self.throttle_time_ms, 1),
            unlimited_bytes_per_second=round(self.free_rate, 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The demo's result for the producer or the consumer. ``--json`` prints these fields.

    ``throttle_time_ms`` is the sum over all requests of the client. ``unlimited_bytes_per_second`` is the rate in the
    first seconds, in which the client had no limit.
    """

    quota_bytes_per_second: int
    measured_bytes_per_second: float
    throttle_time_ms: float
    unlimited_bytes_per_second: float

    @property
    def is_within_tolerance(self) -> bool:
        """Whether the measured rate differs from the quota by at most 5 %."""
        difference = abs(self.measured_bytes_per_second - self.quota_bytes_per_second)
        return difference <= workload.TOLERANCE * self.quota_bytes_per_second


async def run(options: Options, display: Display) -> tuple[Outcome, Outcome]:
    """Run the demo, and return the results of the producer and the consumer.

    Raises:
        ChildError: The demo failed.
    """
    cancel_on_sigterm()
    # A client raises the errors that it cannot retry. Its log would only have the errors that it retries, including
    # those of connections that the demo closes.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    producer = MeasuredClient("producer", workload.PRODUCER_CLIENT_ID, options.produce_rate, options.shaping)
    consumer = MeasuredClient("consumer", workload.CONSUMER_CLIENT_ID, options.fetch_rate, options.shaping)
    proxy_port, admin_port = adjacent_ports(2)
    produce_bytes = workload.record_bytes(options.produce_rate, overhead_bytes=clients.PRODUCE_OVERHEAD_BYTES)
    fetch_bytes = workload.record_bytes(options.fetch_rate, overhead_bytes=clients.FETCH_OVERHEAD_BYTES)
    preload = f"{fetch_bytes}:{workload.preload_records(fetch_bytes)}"
    admin = f"http://127.0.0.1:{admin_port}"

    def config(upstream: str) -> str:
        quotas: list[workload.Rule] = [
            {"client-id": workload.PRODUCER_CLIENT_ID, "producer_byte_rate": options.produce_rate},
            {"client-id": workload.CONSUMER_CLIENT_ID, "consumer_byte_rate": options.fetch_rate},
        ]
        return workload.proxy_config(quotas, options.shaping, port=proxy_port, admin_port=admin_port, upstream=upstream)

    async with broker_and_proxy(("--preload", preload), config, proxy_port=proxy_port) as children:
        bootstrap = f"127.0.0.1:{proxy_port}"
        await in_thread(partial(fetch_text, f"{admin}/testing/quotas", method="PUT", body="[]"))
        ended_s = await until_first_end(
            _show(options, (producer, consumer), display, admin=admin),
            (
                clients.produce(bootstrap, value_bytes=produce_bytes, flow=producer.flow, clock=monotonic),
                clients.consume(
                    bootstrap,
                    max_fetch_bytes=workload.max_fetch_bytes(options.fetch_rate),
                    flow=consumer.flow,
                    clock=monotonic,
                ),
                fail_when_ended(children),
            ),
        )
    return producer.outcome(now_s=ended_s), consumer.outcome(now_s=ended_s)


def cancel_on_sigterm() -> None:
    """Make SIGTERM cancel the current task, so that it stops the processes that it has started."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


@contextlib.asynccontextmanager
async def broker_and_proxy(
    broker_options: Sequence[str], config: Callable[[str], str], *, proxy_port: int
) -> AsyncIterator[tuple[Child, Child]]:
    """Run the embedded broker, and the proxy in front of it, during the ``async with`` block.

    ``config`` returns the text of the proxy's configuration file. Its argument is the address of the broker.

    Raises:
        ChildError: The broker or the proxy does not start.
    """
    broker_arguments = ("-m", _BROKER, "--advertise", f"127.0.0.1:{proxy_port}", *broker_options)
    with tempfile.TemporaryDirectory(prefix="kafka-quota-proxy-demo-") as scratch:
        directory = Path(scratch)
        with running("the embedded broker", broker_arguments, log=directory / "broker.log") as broker:
            upstream = (await in_thread(partial(broker.wait_for_line, _READY)))[1]
            file = directory / "demo.yaml"
            file.write_text(config(upstream))
            proxy_arguments = ("-m", "kafka_quota_proxy.proxy", "run", str(file))
            with running("the proxy", proxy_arguments, log=directory / "proxy.log") as proxy:
                await in_thread(partial(proxy.wait_for_line, _LISTENING))
                yield broker, proxy


async def fail_when_ended(children: Sequence[Child]) -> NoReturn:
    """Wait until one of the programs ends, then raise ``ChildError``. They should run as long as the demo does."""
    while True:
        for child in children:
            child.check()
        await asyncio.sleep(_REDRAW_S)


async def until_first_end(show: Coroutine[None, None, float], others: Sequence[Coroutine[None, None, None]]) -> float:
    """Run ``show`` and ``others`` concurrently until ``show`` ends, then cancel ``others``.

    Return the result of ``show``. If a coroutine raises an error, all of them are cancelled.

    Raises:
        ChildError: A coroutine raised a ChildError or KafkaError. Other errors are raised in an exception group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            main = group.create_task(show)
            background = [group.create_task(other) for other in others]
            main.add_done_callback(lambda _: [task.cancel() for task in background])
    except BaseExceptionGroup as failures:
        expected, unexpected = failures.split((ChildError, KafkaError))
        if expected is None or unexpected is not None:
            raise
        # The first failure is the cause. When the proxy ends, for example, the clients fail, too.
        first = expected.exceptions[0]
        raise (first if isinstance(first, ChildError) else DemoError(f"a client failed: {first!r}")) from None
    return main.result()


async def _show(options: Options, measured: Sequence[MeasuredClient], display: Display, *, admin: str) -> float:
    """Show the demo's progress until the demo is over. Let the quotas come into force meanwhile.

    Return the time of the last update, at which the rates of the clients are measured.
    """
    started_s = await _first_bytes(measured)
    planned_s = workload.FREE_SECONDS + options.planned_seconds
    limited_s: float | None = None
    scraped_s = 0.0
    while True:
        await asyncio.sleep(_REDRAW_S)
        now_s = monotonic()
        if limited_s is None and now_s - started_s >= workload.FREE_SECONDS:
            await in_thread(partial(fetch_text, f"{admin}/testing/reset", method="POST"))
            now_s = limited_s = monotonic()
            for client in measured:
                client.limit(now_s=limited_s)
            display.note("Now the quotas are in force.")
        is_over = limited_s is not None and _is_over(options, measured, elapsed_s=now_s - limited_s)
        if is_over or now_s - scraped_s >= _SCRAPE_S:
            scraped_s = now_s
            text = await in_thread(partial(fetch_text, f"{admin}/metrics"))
            for client in measured:
                client.throttle_time_ms = throttle_time_ms(text, client_id=client.client_id)
        lines = [client.line(now_s=now_s) for client in measured]
        display.show(lines, elapsed_s=now_s - started_s, planned_s=planned_s)
        if is_over:
            return now_s


async def _first_bytes(measured: Sequence[MeasuredClient]) -> float:
    deadline_s = monotonic() + _FIRST_BYTE_TIMEOUT_S
    while not all(client.flow.times for client in measured):
        if monotonic() > deadline_s:
            raise DemoError(f"the proxy forwarded no byte within {_FIRST_BYTE_TIMEOUT_S} s")
        await asyncio.sleep(0.02)
    return max(client.flow.times[0] for client in measured)


def _is_over(options: Options, measured: Sequence[MeasuredClient], *, elapsed_s: float) -> bool:
    """Return True if the demo has run as long as planned, and the rate of each client can be computed.

    ``elapsed_s`` is the time under the quotas. The demo does not wait for a rate for ever.
    """
    if elapsed_s < options.planned_seconds:
        return False
    limit_s = options.planned_seconds + workload.SAMPLED_PATIENCE_SECONDS
    if options.shaping is Shaping.PACED or elapsed_s >= limit_s:
        return True
    return all(len(measure.burst_starts(one.limited_flow(), quota_bytes_per_second=one.quota)) >= 2 for one in measured)


def fetch_text(url: str, *, method: str = "GET", body: str = "") -> str:
    """Return what the proxy's admin port answers at ``url``. The call blocks.

    Raises:
        DemoError: The proxy does not answer, or refuses the request.
    """
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, method=method, data=body.encode() or None, headers=headers)  # noqa: S310
    try:
        with _OPENER.open(request, timeout=_SCRAPE_TIMEOUT_S) as response:
            text: str = response.read().decode()
            return text
    except OSError as error:
        raise DemoError(f"the proxy does not answer at {url}: {error}") from error


def throttle_time_ms(metrics: str, *, client_id: str) -> float:
    """Return a client's total throttle time from the text of the proxy's metrics, or 0 if the client is not in them."""
    return sum(
        sample.value * 1_000
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "kafka_quota_proxy_throttle_seconds_total" and sample.labels["client_id"] == client_id
    )
