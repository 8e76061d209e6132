"""``kafka-quota-pipeline rebalance`` prints the throttle that a partition reassignment needs."""

import argparse
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.pipeline.commands.execution import running, say, usage_of
from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.rebalance import Load, Side, client_hours, client_quarters, loads, quietest_hour
from kafka_quota_proxy.pipeline.report import duration, size
from kafka_quota_proxy.pipeline.side_inputs import capacities, partition_sizes, reassignment_plan

_BROKERS: Final = (
    "broker", "side", "left_bytes", "incoming_byte_rate", "needed_byte_rate", "throttle", "hours", "left_for_clients",
)  # fmt: skip


def execute(args: argparse.Namespace) -> int:
    """Print the throttle with which the reassignment ends within ``--window``, and return the exit status."""
    now, target = partition_sizes(args.sizes), reassignment_plan(args.plan)
    unknown = [
        f"{args.sizes}: has no line for {topic}-{number}, which is in {args.plan}"
        for topic, number in target
        if (topic, number) not in now
    ]
    if unknown:
        raise InputError(unknown)
    known = capacities(args.capacities) if args.capacities else {}
    found = loads(now, target)
    with running(args) as (spark, output):
        records = usage_of(args, spark, output).records
        say("measuring what clients use")
        # A month has 2,880 rows for each broker and kind.
        hours = client_hours([row.asDict() for row in client_quarters(records).collect()], args.timezone)
        output.rows("clients", ("broker", "kind", "hour", "peak", "mean"), hours)
        means: dict[int, float] = {}
        for one in hours:
            means[one.hour] = means.get(one.hour, 0.0) + one.mean
        first = quietest_hour(means, args.window)
        within = None if first is None else {(first + at) % 24 for at in range(min(24, -(-args.window // 3_600_000)))}
        peaks: dict[tuple[int, str], float] = {}
        for one in hours:
            if within is None or one.hour in within:
                peaks[one.broker, one.kind] = max(peaks.get((one.broker, one.kind), 0.0), one.peak)
        needed = max((load.rate_to_end_in(args.window) for load in found), default=0.0)
        forecast = _Forecast(needed, args.window, peaks, known)
        output.rows("brokers", _BROKERS, map(forecast.row, found))
    if not found:
        sys.stdout.write("nothing to copy: every replica of the plan is there already\n")
        return 0
    for load in found:
        sys.stdout.write(f"{forecast.words(load)}\n")
    if first is None:
        sys.stdout.write("the log covers too few hours of the day to tell when clients use least\n")
    else:
        sys.stdout.write(f"clients use least from {first:02d}:00, {args.timezone}\n")
    sys.stdout.write(f"to end in {duration(args.window)}: --throttle {_whole_rate(needed)} ({size(needed)}/s)\n")
    if args.out is not None:
        sys.stdout.write(f"{args.out}/brokers\n")
    return 0


def _whole_rate(rate: float) -> int:
    return int(-(-rate // 1))


class _Forecast(NamedTuple):
    """Forecasts how long each broker copies at a throttle of ``rate`` bytes/s, and what is left for its clients."""

    rate: float
    window_ms: int
    peaks: Mapping[tuple[int, str], float]  # the use of clients in the window, by broker and kind
    capacities: Mapping[tuple[int, str], float]

    def words(self, load: Load) -> str:
        """Return a sentence about one broker: how much it copies, how long that takes, and what is left for clients."""
        does = "sends" if load.side is Side.LEADER else "gets"
        ends = f"at {size(self.rate)}/s it ends in {duration(load.time_ms(self.rate))}"
        needs = f"needs {size(load.rate_to_end_in(self.window_ms))}/s; {ends}"
        words = f"broker {load.broker} {does} {size(load.left_bytes)}: {needs}"
        left = self._left_for_clients(load)
        if left is None:
            return words
        if left < 0:
            return f"{words}; clients lack {size(-left)}/s"
        return f"{words}; leaves clients {size(left)}/s more than they use"

    def row(self, load: Load) -> tuple[object, ...]:
        """Return the row of a broker in the table ``brokers``."""
        left = self._left_for_clients(load)
        return (
            load.broker,
            load.side.value,
            load.left_bytes,
            round(load.incoming_rate),
            _whole_rate(load.rate_to_end_in(self.window_ms)),
            _whole_rate(self.rate),
            f"{load.time_ms(self.rate) / 3_600_000:.3f}",
            None if left is None else round(left),
        )

    def _left_for_clients(self, load: Load) -> float | None:
        """Return a broker's capacity minus the throttle and minus what clients use, in bytes per second.

        Returns None if the capacity is unknown.
        """
        place = (load.broker, "fetch" if load.side is Side.LEADER else "produce")
        capacity = self.capacities.get(place)
        return None if capacity is None else capacity - self.rate - self.peaks.get(place, 0.0)
