"""``kafka-quota-pipeline balance --follow`` divides the limits of a cluster over its proxies every few seconds.

A Spark stream reads the usage log and adds up what was used at each proxy. From this, the process computes each proxy's
share of the limits, and writes the shares to the quota topic, which the proxies read. A share has a lease: it expires
unless the process publishes again before that. The process stores nothing: it computes the demand from the last seconds
of the log. After a start it waits until all shares that an earlier process published have expired.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from secrets import randbelow
from threading import Event, Lock
from typing import Final

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kafka_quota_proxy.config.quota_record import MAX_LEASE_MS, News, QuotaRecord, Rule
from kafka_quota_proxy.pipeline.balance import recent_use
from kafka_quota_proxy.pipeline.balancer import Balancer, Bucket, Publication, Terms, Use
from kafka_quota_proxy.pipeline.commands.execution import (
    cause_of,
    check_cluster,
    check_own_process,
    explain,
    kafka_config_of,
    line_counts,
    say,
    stop_requested,
)
from kafka_quota_proxy.pipeline.demand_estimator import ProxyUsage
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.kafka_source import kafka_place, topic
from kafka_quota_proxy.pipeline.parsing import parsed
from kafka_quota_proxy.pipeline.quota_topic import Found, QuotaTopic
from kafka_quota_proxy.pipeline.quotas_file import read_quotas
from kafka_quota_proxy.pipeline.report import size
from kafka_quota_proxy.pipeline.session import GATEWAY_GONE, log_level, session

# A batch holds the records of some seconds, summed to one row for each bucket and proxy.
_PARTITIONS: Final = "1"
# The guaranteed fraction of an even share. All idle proxies together hold less than this fraction of a limit.
_FLOOR: Final = 0.03
# The number of publications in a lease, so that a late publication does not end the lease.
_NEWS_IN_A_LEASE: Final = 3
# All rules are rewritten at this interval, in case the topic loses them.
_RULES_EVERY_MS: Final = 300_000
# A shorter lease leaves no time for a batch of Spark, or for a publication that has to be repeated.
_LEAST_LEASE_MS: Final = 3_000
# Records of longer intervals arrive too late.
_LONG_INTERVAL_MS: Final = 60_000
_SHOWN: Final = 5
_MOST_REPORTED: Final = 100


def follow(args: argparse.Namespace) -> int:
    """Publish shares until SIGTERM or Ctrl-C, and return the exit status."""
    _check(args)
    limits = read_quotas(args.limits)
    if any(rule.enforcement or rule.shaping for rule in limits.quotas):
        say(f"--limits {args.limits}: enforcement and shaping do not go to the topic: each proxy's own file has them")
    balancer = Balancer(limits, args.proxies, _terms(args))
    kafka = kafka_config_of(args)
    quotas = QuotaTopic(*kafka_place(args.to, "--to"), kafka, delivery_ms=_delivery_ms(args))
    spark = session(master=args.master, conf={"spark.sql.shuffle.partitions": _PARTITIONS} | dict(args.conf))
    check_own_process(spark, "balance --follow")
    # Failures arrive as exceptions and are reported in one sentence. Spark would also print a stack trace.
    log_level(spark, "FATAL")
    lines = topic(spark, args.usage, kafka=kafka, is_stream=True, is_news_only=True)
    with stop_requested() as end:
        try:
            found = quotas.begin()
            began_s = time.monotonic()
            stream = _Stream(lines, balancer, args, end)
            try:
                _wait_for_leases(quotas, found, args, until_s=began_s, end=end, stream=stream)
                _publish(quotas, balancer, found, args, end=end, stream=stream)
            finally:
                stream.stop()
        finally:
            quotas.end()
    say(f"ended: {stream.words()}. Shares end with their leases; the common rules stay")
    sys.stdout.write(f"{args.to}\n")
    return 0


def _check(args: argparse.Namespace) -> None:
    for name, value in (("--to", args.to), ("--proxies", args.proxies)):
        if not value:
            raise UsageError(f"balance --follow needs {name}: see balance --help")
    for name, value in (("--out", args.out), ("--last", args.last), ("--from", args.begin), ("--until", args.end)):
        if value is not None:
            raise UsageError(f"{name} is for a log that has ended, and goes without --follow")
    if not args.usage.startswith("kafka://"):
        raise UsageError(
            f"--usage {args.usage}: --follow follows a topic, kafka://HOST:PORT/TOPIC: files are complete too late"
        )
    check_cluster(args)
    if args.lease < _LEAST_LEASE_MS:
        raise UsageError(f"--lease {args.lease / 1_000:g}s: {_LEAST_LEASE_MS // 1_000}s is the least")
    if not _NEWS_IN_A_LEASE * args.every <= args.lease <= MAX_LEASE_MS:
        raise UsageError(
            f"--lease {args.lease / 1_000:g}s: is at least {_NEWS_IN_A_LEASE} times --every ({args.every / 1_000:g}s), "
            f"or proxies would lose their shares between publications, and at most {MAX_LEASE_MS // 3_600_000}h"
        )


def _terms(args: argparse.Namespace) -> Terms:
    floor = _FLOOR if args.floor is None else args.floor
    return Terms(lease_ms=args.lease, delay_ms=args.every, floor=floor)


def _delivery_ms(args: argparse.Namespace) -> int:
    """Return how long it may take to write all records of one publication of shares to the quota topic, in ms."""
    return int(args.lease) // 2


def _latest_ms(args: argparse.Namespace) -> int:
    """Return the longest allowed time between two publications of shares to the quota topic, in ms.

    A process that is started waits longer than this before it publishes, to notice whether another one is publishing.
    """
    return int(args.lease) - _delivery_ms(args) + int(args.every)


def _now_ms() -> int:
    return int(time.monotonic() * 1_000)


class _Stream:
    """Reads the usage log as a Spark stream, and tells a ``Balancer`` what was used at each proxy, batch by batch.

    The ``Balancer`` divides the limits over the proxies. Spark processes the batches in a thread of its own.
    """

    def __init__(self, lines: DataFrame, balancer: Balancer, args: argparse.Namespace, end: Event) -> None:
        self.lock = Lock()  # guards the balancer
        self._balancer = balancer
        self._proxies: Sequence[str] = args.proxies
        self._usage = args.usage
        self._end = end
        self._taking = Lock()
        self._is_ending = False
        self._fault: PipelineError | None = None
        self._lines = self._bad = 0
        self._counted_until = ""  # the timestamp of the last progress that was counted
        self._reported: set[str] = set()
        self._brokers: dict[str, int] = {}  # by proxy
        rows = self._counted(parsed(lines))
        if args.explain:
            explain("used of late", recent_use(rows, self._proxies))
        say(f"following {args.usage}")
        writer = rows.writeStream.foreachBatch(self._take)
        self._query: StreamingQuery = writer.trigger(processingTime=f"{args.every} milliseconds").start()

    def check(self) -> None:
        """Check that the stream still runs, and print messages about lines of the usage log that were left out.

        Raises PipelineError if the stream has ended although it was not stopped.
        """
        try:
            is_active, error = self._query.isActive, self._query.exception()
            self._read_progress()
        except GATEWAY_GONE:
            # A signal to the process group also ends the JVM.
            if not self._end.is_set():
                raise
        else:
            if self._end.is_set():
                return
            if error is not None:
                raise self._fault or PipelineError(f"--usage {self._usage}: {cause_of(error)}") from error
            if not is_active:
                raise self._fault or PipelineError(
                    f"--usage {self._usage}: the stream has ended; start this command again"
                )

    def stop(self) -> None:
        """Stop the stream after its current batch."""
        with self._taking:
            self._is_ending = True
        with suppress(*GATEWAY_GONE, StreamingQueryException):
            self._query.stop()

    def words(self) -> str:
        """Return a text with the number of lines that were read, and the number of those that could not be parsed."""
        return f"{self._lines:,} lines" + (f", {self._bad:,} of them bad" if self._bad else "")

    def _counted(self, rows: DataFrame) -> DataFrame:
        is_unknown = F.col("fault").isNull() & ~F.col("proxy").isin(*self._proxies)
        unknown_one = F.max(F.when(is_unknown, F.col("proxy"))).alias("unknown_one")
        return rows.observe("read", *line_counts(), unknown_one)

    def _take(self, batch: DataFrame, _: int) -> None:
        with self._taking:
            if self._is_ending:
                return
            try:
                found = recent_use(batch, self._proxies).collect()
            except (PySparkException, *GATEWAY_GONE) as error:
                self._fault = PipelineError(f"--usage {self._usage}: {str(error).partition(chr(10))[0]}")
                raise self._fault from None  # Spark would copy the whole Java stack
            self._check_brokers(found)
            self._check_intervals(found)
        with self.lock:
            self._balancer.take(map(_use, found), now_ms=_now_ms())

    def _check_brokers(self, found: Sequence[Row]) -> None:
        """Raise PipelineError if a proxy serves several brokers, because its share would apply to each of them."""
        for row in found:
            for broker in (row["broker"], row["other_broker"]):
                if broker is None:  # unknown so far
                    continue
                first = self._brokers.setdefault(row["proxy"], broker)
                if broker != first:
                    self._fault = PipelineError(
                        f"--usage {self._usage}: {row['proxy']} is in front of brokers {first} and {broker}, and "
                        "its share would apply at each of them, which exceeds the limits; give each broker a proxy "
                        "with a name of its own, and name all of them in --proxies. (If it has just moved to another "
                        "broker, start this command again)"
                    )
                    raise self._fault

    def _check_intervals(self, found: Sequence[Row]) -> None:
        for row in found:
            if row["longest_interval_ms"] > _LONG_INTERVAL_MS:
                self._say_once(
                    "interval",
                    f"{row['proxy']} logs at intervals of {row['longest_interval_ms'] / 1_000:g} s, so a moved load is "
                    "noticed late; set interval of usage_log to 1 to 5 s",
                )

    def _read_progress(self) -> None:
        for progress in self._query.recentProgress:
            if progress["timestamp"] > self._counted_until and "read" in progress["observedMetrics"]:
                self._counted_until = progress["timestamp"]
                self._count(progress["observedMetrics"]["read"])

    def _count(self, read: Row) -> None:
        self._lines += read["lines"]
        self._bad += read["bad"]
        if read["bad_one"]:
            self._say_once("bad", f"bad lines are ignored, such as {read['bad_one']}")
        if proxy := read["unknown_one"]:
            self._say_once(
                f"unknown {proxy}",
                f"{proxy} writes to the log and is not among --proxies: its traffic is not part of the limits",
            )

    def _say_once(self, what: str, words: str) -> None:
        # Names of proxies come from the log and may be anything.
        if what not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add(what)
            say(_printable(words))


def _use(row: Row) -> Use:
    used = ProxyUsage(
        amount=row["amount"],
        interval_ms=row["interval_ms"],
        longest_interval_ms=row["longest_interval_ms"],
        throttled_requests=row["throttled_requests"],
        throttle_time_ms=row["throttle_time_ms"],
    )
    return Use(row["proxy"], Bucket(row["kind"], row["user"], row["client_id"]), used)


def _wait_for_leases(
    quotas: QuotaTopic, found: Found, args: argparse.Namespace, *, until_s: float, end: Event, stream: _Stream
) -> None:
    """Wait until all leases from an earlier process have expired.

    Raises PipelineError if that process still publishes.
    """
    if found.lease_ms is None and not found.shares:
        return
    lease_ms = max(found.lease_ms or 0, args.lease)
    # The --every of the earlier process may differ, but is at most a third of its lease.
    wait_ms = lease_ms + max(args.every, lease_ms // _NEWS_IN_A_LEASE)
    # The wait has a random part. So if two processes start together, one is earlier, and only the other one ends.
    until_s += (wait_ms + randbelow(args.every)) / 1_000
    say(f"waiting {wait_ms / 1_000:.0f} s and a little for the leases of an earlier process")
    while time.monotonic() < until_s and not end.wait(min(args.every / 1_000, max(0.0, until_s - time.monotonic()))):
        quotas.check_alone()
        stream.check()


def _publish(
    quotas: QuotaTopic, balancer: Balancer, found: Found, args: argparse.Namespace, *, end: Event, stream: _Stream
) -> None:
    """Publish the changed shares at the interval ``--every``, until ``end`` is set.

    Each publication contains a ``News`` record, which renews the leases of all shares.
    """
    due_s = time.monotonic()
    first: list[QuotaRecord] = list(_first(balancer, found))
    before_ms: int | None = None
    rules_ms = _now_ms()
    while not end.is_set():
        stream.check()
        # This process may have been suspended, and another process may have started meanwhile.
        quotas.check_alone()
        now_ms = _now_ms()
        if before_ms is not None:
            _check_in_time(now_ms - before_ms, args)
        with stream.lock:
            publication = balancer.publish(now_ms=now_ms)
        news = News(published_ms=time.time_ns() // 1_000_000, lease_ms=args.lease)
        if now_ms - rules_ms >= _RULES_EVERY_MS:
            rules_ms = now_ms
            first = list(balancer.rules())
        quotas.publish([*first, *publication.records, news])
        is_first, before_ms = before_ms is None, now_ms
        if is_first:
            say(f"{len(balancer.rules())} rules, a part of {len(args.proxies)} for each of {', '.join(args.proxies)}")
        first = []
        _report(publication, balancer)
        due_s = max(due_s + args.every / 1_000, time.monotonic())
        end.wait(due_s - time.monotonic())


def _check_in_time(since_ms: int, args: argparse.Namespace) -> None:
    if since_ms > _latest_ms(args):
        raise PipelineError(
            f"nothing was published for {since_ms / 1_000:.1f} s, and proxies are losing their shares, or have lost "
            "them: this process was suspended, or Kafka or Spark did not answer. Start it again; if this happens "
            "often, raise --lease"
        )


def _first(balancer: Balancer, found: Found) -> Iterator[QuotaRecord]:
    """Yield the records to publish first.

    They set the common rules, and remove shares and rules of an earlier process.
    """
    for share in found.shares:
        yield replace(share, limits={})
    wanted = {(rule.user, rule.client_id): rule for rule in balancer.rules()}
    for rule in found.rules:
        if (rule.user, rule.client_id) not in wanted:
            yield Rule(user=rule.user, client_id=rule.client_id)
    there = {(rule.user, rule.client_id): rule for rule in found.rules}
    yield from (rule for entity, rule in wanted.items() if there.get(entity) != rule)


def _report(publication: Publication, balancer: Balancer) -> None:
    now = time.strftime("%H:%M:%S")
    for (kind, user, client_id), shares in publication.moved[:_SHOWN]:
        name = _printable(" / ".join(part for part in (user, client_id) if part))
        given = ", ".join(f"{proxy} {size(share)}/s" for proxy, share in shares.items())
        say(f"{now} {name}, {kind}: {given or 'even shares again'}")
    if len(publication.moved) > _SHOWN:
        say(f"{now} and shares of {len(publication.moved) - _SHOWN} more")
    if balancer.turned_away:
        say(f"{now} {balancer.turned_away} buckets keep the common rule: too many buckets have shares already")


def _printable(text: str) -> str:
    """Return a name in a form that is safe to print on a terminal, because clients choose their own names."""
    return text if text.isprintable() else repr(text)
