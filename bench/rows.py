"""The rows of the results: their loads and targets."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

from bench.frames import NEW_FETCH_VERSION, NEW_PRODUCE_VERSION
from bench.targets import (
    Target,
    cpu_of_envoy,
    direct_ratio,
    latency,
    memory,
    microseconds,
    per_cpu_second_of_envoy,
    per_cpu_second_without_relay,
    queueing,
    rate_of_envoy,
    rewriting,
    than_kroxylicious,
)

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Section(Enum):
    """The sections of the results, each with a table of its rows."""

    BULK = "bulk"  # synthetic, bytes
    REQUESTS = "requests"  # synthetic, small requests
    LATENCY = "latency"  # synthetic, at a fixed rate
    IDLE = "idle"  # synthetic, memory
    ADDRESSES = "addresses"  # synthetic, bytes; our proxy with and without rewriting of addresses
    QUEUE = "queue"  # synthetic; our proxy with a queue that is never full, and without one, on a saturated core
    KAFKA_QUEUE = "kafka-queue"  # the same with a real broker and real clients
    VETH = "veth"  # synthetic, bytes; load, proxy and broker in network namespaces of their own
    TLS = "tls"  # synthetic, bytes; TLS to clients, plaintext to the broker
    KAFKA = "kafka"  # real broker, real clients
    DECISION = "decision"  # no network
    SCHEDULING = "scheduling"  # no network


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A load. ``size_bytes`` is the size of the Produce request, the Fetch response, or a real producer's batch."""

    key: str
    title: str
    section: Section
    targets: tuple[Target, ...]
    api: Literal["produce", "fetch"] = "produce"
    api_version: int | None = None  # None for that of the load generator
    size_bytes: int = 0
    connections: int = 1
    in_flight: int = 1
    partitions: int = 1
    records_per_s: int | None = None  # of a real producer, or None if there is no limit


def _plaintext(least_without_relay: float) -> tuple[Target, ...]:
    return rate_of_envoy(0.95), per_cpu_second_of_envoy(1.0), per_cpu_second_without_relay(least_without_relay)


def _produce(size_bytes: int, size: str) -> Row:
    """Return a load like Java's producer: one connection with five requests in flight."""
    return Row(
        key=f"produce-{_short(size)}",
        title=f"Produce requests of {size}, 1 connection, 5 in flight",
        section=Section.BULK,
        size_bytes=size_bytes,
        in_flight=5,
        targets=_plaintext(0.80 if size_bytes == 16 * KIB else 0.95),
    )


def _fetch(size_bytes: int, size: str) -> Row:
    """Return a load like consumers: one Fetch in flight on each connection."""
    return Row(
        key=f"fetch-{_short(size)}",
        title=f"Fetch responses of {size}, 4 connections, 1 in flight",
        section=Section.BULK,
        api="fetch",
        size_bytes=size_bytes,
        connections=4,
        targets=_plaintext(0.95),
    )


def _rewriting(api: Literal["produce", "fetch"], api_version: int, size_bytes: int, title: str) -> Row:
    return Row(
        key=f"addresses-{api}-{size_bytes // KIB}k",
        title=title,
        section=Section.ADDRESSES,
        api=api,
        api_version=api_version,
        size_bytes=size_bytes,
        connections=1 if api == "produce" else 4,
        in_flight=5 if api == "produce" else 1,
        targets=rewriting(),
    )


def _queueing(row: Row) -> Row:
    """Return the load without targets, because on a saturated core any work costs throughput."""
    return replace(row, key=f"queue-{row.key}", section=Section.QUEUE, targets=())


def _over_tls(row: Row) -> Row:
    return replace(
        row,
        key=f"tls-{row.key}",
        title=f"TLS: {row.title}",
        section=Section.TLS,
        targets=(per_cpu_second_of_envoy(0.7),),
    )


def _through_veth(row: Row) -> Row:
    return replace(row, key=f"veth-{row.key}", title=f"veth: {row.title}", section=Section.VETH, targets=())


def _short(size: str) -> str:
    return size.lower().replace(" ", "").removesuffix("ib")


_SIZES: Final = ((16 * KIB, "16 KiB"), (64 * KIB, "64 KiB"), (256 * KIB, "256 KiB"), (MIB, "1 MiB"))
_SMALL: Final = Row(
    key="requests-1k",
    title="Produce requests of 1 KiB, 16 connections, 1 in flight",
    section=Section.REQUESTS,
    size_bytes=KIB,
    connections=16,
    targets=_plaintext(0.95),
)

ROWS: Final = (
    *(_produce(size_bytes, size) for size_bytes, size in _SIZES),
    *(_fetch(size_bytes, size) for size_bytes, size in _SIZES),
    _SMALL,
    Row(
        key="latency-100",
        title="1,000 Produce requests of 100 B a second",
        section=Section.LATENCY,
        size_bytes=100,
        targets=latency(),
    ),
    Row(
        key="latency-1k",
        title="1,000 Produce requests of 1 KiB a second",
        section=Section.LATENCY,
        size_bytes=KIB,
        targets=latency(),
    ),
    Row(
        key="idle",
        title="a connection that spoke once and is silent, of 2,000",
        section=Section.IDLE,
        size_bytes=100,
        connections=2_000,
        targets=(memory(),),
    ),
    _rewriting("produce", NEW_PRODUCE_VERSION, 64 * KIB, "Produce v11 requests of 64 KiB, 1 connection, 5 in flight"),
    _rewriting("fetch", NEW_FETCH_VERSION, 64 * KIB, "Fetch v17 responses of 64 KiB, 4 connections, 1 in flight"),
    _rewriting("fetch", NEW_FETCH_VERSION, MIB, "Fetch v17 responses of 1 MiB, 4 connections, 1 in flight"),
    *(_queueing(make(64 * KIB, "64 KiB")) for make in (_produce, _fetch)),
    _queueing(_SMALL),
    Row(
        key="kafka-queue-produce-16k",
        title="ProducerPerformance, batches of 16 KB, all that it can",
        section=Section.KAFKA_QUEUE,
        size_bytes=16_384,
        targets=(),  # both cores are saturated, so any work costs throughput
    ),
    Row(
        key="kafka-queue-produce-paced",
        title="ProducerPerformance, batches of 16 KB, 15,000 records of 1 kB a second",
        section=Section.KAFKA_QUEUE,
        size_bytes=16_384,
        records_per_s=15_000,
        targets=queueing(),
    ),
    Row(
        key="kafka-queue-consume-6",
        title="ConsumerPerformance, 6 partitions",
        section=Section.KAFKA_QUEUE,
        api="fetch",
        partitions=6,
        targets=queueing(),
    ),
    *(_through_veth(make(size_bytes, size)) for make in (_produce, _fetch) for size_bytes, size in _SIZES),
    *(_over_tls(make(size_bytes, size)) for make in (_produce, _fetch) for size_bytes, size in _SIZES[1::2]),
    Row(
        key="kafka-produce-16k",
        title="ProducerPerformance, batches of 16 KB",
        section=Section.KAFKA,
        size_bytes=16_384,
        targets=(direct_ratio(), cpu_of_envoy(), *than_kroxylicious()),
    ),
    Row(
        key="kafka-produce-1m",
        title="ProducerPerformance, batches of 1 MB",
        section=Section.KAFKA,
        size_bytes=1_000_000,
        targets=(direct_ratio(), cpu_of_envoy(), *than_kroxylicious()),
    ),
    Row(
        key="kafka-consume-1",
        title="ConsumerPerformance, 1 partition",
        section=Section.KAFKA,
        api="fetch",
        targets=(direct_ratio(), cpu_of_envoy(), *than_kroxylicious()),
    ),
    Row(
        key="kafka-consume-6",
        title="ConsumerPerformance, 6 partitions",
        section=Section.KAFKA,
        api="fetch",
        partitions=6,
        targets=(direct_ratio(), cpu_of_envoy(), *than_kroxylicious()),
    ),
    *(
        Row(key=key, title=title, section=Section.DECISION, targets=(microseconds(2),))
        for key, title in (
            ("decision-all", "rule for <default>, all 100,000 client-ids in random order, resolved each time"),
            ("decision-active", "the same, but 1,000 of the 100,000 are active"),
            ("decision-kept", "the same 1,000, their buckets kept by the connection as in the data path"),
            ("decision-own-rules", "100,000 rules for 100,000 users and client-ids, 1,000 active, all over, resolved"),
            ("decision-paced", "the same, paced"),
        )
    ),
    *(
        Row(key=key, title=title, section=Section.SCHEDULING, targets=(microseconds(3),))
        for key, title in (
            ("scheduling-arrival", "10,000 users, slots are free, a request arrives: level, slot"),
            ("scheduling-end", "the same, one ends: charge, response time, slot"),
            ("scheduling-arrival-busy", "10,000 users, 500 requests wait for 32 slots, one arrives: level, place"),
            ("scheduling-end-busy", "the same, one ends: charge, response time, whose turn it is"),
        )
    ),
    Row(key="scheduling-sweep", title="a sweep over 10,000 users, every 5 s", section=Section.SCHEDULING, targets=()),
)


def selected(names: str | None) -> tuple[Row, ...]:
    """Return the rows with these keys or sections, separated by commas. Raises ValueError for an unknown name."""
    if names is None:
        return ROWS
    wanted = [name.strip() for name in names.split(",")]
    known = {row.key for row in ROWS} | {section.value for section in Section}
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"no row is called {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return tuple(row for row in ROWS if row.key in wanted or row.section.value in wanted)
