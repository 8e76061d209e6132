"""``kafka-quota-proxy demo`` shows how the proxy throttles a producer and a consumer, or the user's own application."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, NoReturn

from kafka_quota_proxy.config.errors import ConfigError, UnitError
from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.config.units import parse_rate
from kafka_quota_proxy.proxy.cli.demo import workload
from kafka_quota_proxy.proxy.cli.demo.display import Display, format_rate, format_seconds
from kafka_quota_proxy.proxy.runtime.processes import ChildError

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.cli.demo.runner import Outcome

DESCRIPTION: Final = """\
Start an embedded broker and the proxy in front of it, and let a producer and a consumer run as fast as they can. After
three seconds their quotas come into force, and the demo shows how the proxy holds them there. Nothing needs to run
already. Everything uses loopback and ends with the command. The exit status is 1 where a measured rate lies more than
5 % off its quota.

With --serve, the broker and the proxy run until Ctrl-C for your own application, under the quotas that you give."""
EXAMPLE: Final = """\
examples: kafka-quota-proxy demo --produce-rate 2MiB --fetch-rate 500KiB --shaping sampled
          kafka-quota-proxy demo --serve --quota client-id=my-app,producer_byte_rate=1MiB

The measured rate: paced, from when the burst that a quota allows is over, at least a second after the first byte, to
the end; sampled, over whole cycles of burst and silence. With --json, throttle_time_ms is the sum over all requests,
and unlimited_bytes_per_second is the rate before the quotas came into force.

With --serve, give your application bootstrap.servers=127.0.0.1:9092 and client.id=my-app, and see it with
kafka-quota-proxy top. The broker keeps records in memory, creates each topic that is asked for, and lacks many of
Kafka's requests. The exit status after Ctrl-C is 130, after SIGTERM 143."""

NEXT_STEPS: Final = """
What next:
  Kafka's own windows, with bursts and silence: kafka-quota-proxy demo --shaping sampled
  your own application, without Kafka:
    kafka-quota-proxy demo --serve --quota client-id=my-app,producer_byte_rate=100KiB
  your own application, with your Kafka: write these lines into laptop.yaml, with the address of a broker,
    listeners: [{name: laptop, bind: "127.0.0.1:9192", bootstrap_servers: "broker1.example.com:9092"}]
    quotas: [{client-id: my-app, producer_byte_rate: 100KiB, consumer_byte_rate: 100KiB}]
  then start the proxy, and point the application to 127.0.0.1:9192:
    kafka-quota-proxy run laptop.yaml
"""

# The exit status after Ctrl-C or SIGTERM by a shell's convention: 128 plus the signal's number.
_INTERRUPTED: Final = 130
_TERMINATED: Final = 143
# A comma within a value, such as that of a client-id, is not followed by KEY=.
_SEPARATOR: Final = re.compile(r",(?=[a-z_-]+=)")
_NAMES: Final = ("user", "client-id", "ip")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``demo``."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    rates = f"from {workload.MIN_RATE // 1024}KiB to {workload.MAX_RATE // 1024**2}MiB a second"
    for option, default, client in (
        ("--produce-rate", workload.DEFAULT_PRODUCE_RATE, "producer"),
        ("--fetch-rate", workload.DEFAULT_FETCH_RATE, "consumer"),
    ):
        parser.add_argument(
            option,
            type=_rate,
            metavar="RATE",
            help=f"the {client}'s quota, {rates} (default {default // 1024**2}MiB)",
        )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        help=f"the duration under the quotas (default {workload.DEFAULT_SECONDS}); sampled: at least "
        f"{workload.SAMPLED_SECONDS}, until a whole cycle was seen",
    )
    parser.add_argument(
        "--shaping",
        choices=[Shaping.PACED.value, Shaping.SAMPLED.value],
        default=Shaping.PACED.value,
        help="paced: an even flow (default); sampled: Kafka's own windows, a burst and then silence",
    )
    parser.add_argument("--json", action="store_true", help="print only a JSON object with the result")
    group = parser.add_argument_group("for your own application")
    group.add_argument(
        "--serve", action="store_true", help="run the broker and the proxy without clients, until Ctrl-C"
    )
    for option, port, use in (
        ("--port", 9092, "for clients, on 127.0.0.1"),
        ("--admin-port", 9308, "of /metrics and of the HTTP API /testing"),
    ):
        help_ = f"the port {use} (default {port}; 0: any free port)"
        group.add_argument(option, type=_port, default=port, metavar="PORT", help=help_)
    group.add_argument(
        "--quota",
        action="append",
        type=_rule,
        default=[],
        metavar="KEY=VALUE,...",
        help="a quota, such as client-id=my-app,producer_byte_rate=1MiB; may be repeated. Keys as in a configuration "
        "file. The broker has no logins, so every client is the user ANONYMOUS",
    )


def execute(args: argparse.Namespace) -> int:
    """Run the demo, and return the exit status: 0 if both of its clients were held at their quotas.

    With ``--serve`` it runs until a signal ends it.
    """
    try:
        if args.serve:
            _serve(args)
        outcomes = dict(zip(("producer", "consumer"), _run(_options_in(args), as_json=args.json), strict=True))
    except (ChildError, ConfigError) as error:
        sys.stderr.write(f"kafka-quota-proxy demo: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except asyncio.CancelledError:
        return _TERMINATED
    if args.json:
        sys.stdout.write(f"{json.dumps({name: asdict(outcome) for name, outcome in outcomes.items()})}\n")
    else:
        sys.stdout.writelines(f"{name}: {_summary(outcome)}\n" for name, outcome in outcomes.items())
        sys.stdout.write(NEXT_STEPS)
    return 0 if all(outcome.is_within_tolerance for outcome in outcomes.values()) else 1


def _options_in(args: argparse.Namespace) -> workload.Options:
    return workload.Options(
        produce_rate=args.produce_rate or workload.DEFAULT_PRODUCE_RATE,
        fetch_rate=args.fetch_rate or workload.DEFAULT_FETCH_RATE,
        seconds=args.seconds or workload.DEFAULT_SECONDS,
        shaping=Shaping(args.shaping),
    )


def _serve(args: argparse.Namespace) -> NoReturn:
    shaping = Shaping(args.shaping)
    # Only quotas can be at fault, or ports that are the same. Which ports stand for 0 is known later.
    ports = {"port": args.port or 1, "admin_port": args.admin_port or 2}
    text = workload.proxy_config(args.quota, shaping, **ports, upstream="127.0.0.1:3")
    warnings = load_bytes(text.encode(), file="--serve").warnings
    import uvloop

    from kafka_quota_proxy.proxy.cli.demo.serve import serve

    display = Display()
    for warning in warnings:
        display.note(f"Warning: {warning.key}: {warning.message}")
    uvloop.run(serve(args.quota, shaping, display, port=args.port, admin_port=args.admin_port))
    raise AssertionError("serves until it is cancelled")


def _run(options: workload.Options, *, as_json: bool) -> tuple[Outcome, Outcome]:
    import uvloop

    from kafka_quota_proxy.proxy.cli.demo import runner

    display = Display(is_quiet=as_json)
    planned_s = options.planned_seconds
    if planned_s > options.seconds:
        display.note(f"Kafka's windows make cycles of 11 to 12.5 s: running {planned_s} s to see a whole one.")
    display.note("Starting an embedded broker and the proxy ...")
    return uvloop.run(runner.run(options, display))


def _summary(outcome: Outcome) -> str:
    measured, quota = outcome.measured_bytes_per_second, outcome.quota_bytes_per_second
    verdict = "held" if outcome.is_within_tolerance else "NOT HELD (more than 5 % off)"
    return (
        f"{verdict}, {format_rate(measured)} of {format_rate(quota)} ({measured / quota:.1%}) "
        f"after {format_rate(outcome.unlimited_bytes_per_second)} without a limit, "
        f"throttled for {format_seconds(outcome.throttle_time_ms)}"
    )


def _rate(text: str) -> int:
    try:
        rate = parse_rate(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not workload.MIN_RATE <= rate <= workload.MAX_RATE:
        raise argparse.ArgumentTypeError(
            f"{text} is out of range: the embedded broker and a small machine do "
            f"{workload.MIN_RATE // 1024}KiB to {workload.MAX_RATE // 1024**2}MiB a second"
        )
    return int(rate)


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not workload.MIN_SECONDS <= int(text) <= workload.MAX_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text} is not a whole number of seconds from {workload.MIN_SECONDS} to {workload.MAX_SECONDS}"
        )
    return int(text)


def _rule(text: str) -> workload.Rule:
    pairs = [pair.partition("=") for pair in _SEPARATOR.split(text)]
    if not all(separator for _, separator, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} must be KEY=VALUE,..., such as client-id=my-app,request_rate=5")
    # A number in quotes is a name in YAML, and some limits are numbers only.
    return {
        key: int(value) if value.isascii() and value.isdecimal() and key not in _NAMES else value
        for key, _, value in pairs
    }


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port from 0 to 65535")
    return int(text)
