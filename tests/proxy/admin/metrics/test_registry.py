"""Tests each metric by the name and the labels that dashboards and alerts use."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import inf, isnan
from pathlib import Path
from time import thread_time

import pytest
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.config.model import DEFAULT, Address, KafkaSettings, Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.security import ClientTls, UpstreamTls
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.admin.metrics.exposition import write
from kafka_quota_proxy.proxy.admin.metrics.registry import MetricRegistry
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.server.brokers.faults import Fault
from kafka_quota_proxy.proxy.server.clients.latency import BOUNDS_NS
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.counters import OTHER
from tests.support.certificates import Authority
from tests.support.reloads import Reloads
from tests.support.stub_broker import upstream_of

BROKER, OTHER_BROKER = (Address(host="127.0.0.1", port=port) for port in (19092, 19093))
ANY = Address(host="127.0.0.1", port=0)
NOW_MS = 86_400_000
ETL = {"kind": "produce", "user": "", "client_id": "etl"}
LIMIT = QuotaRule(client_id="etl", producer_byte_rate=1_000_000.0, consumer_byte_rate=2_000_000.0)


def config(*quotas: QuotaRule, upstreams: Sequence[Address] = (BROKER,), value_enable: bool = True) -> ProxyConfig:
    listeners = tuple(
        Listener(name=f"listener-{number}", bind=ANY, upstream=upstream) for number, upstream in enumerate(upstreams)
    )
    return ProxyConfig(
        listeners=listeners, quotas=quotas, kafka=KafkaSettings(client_quota_metric_value_enable=value_enable)
    )


Scrape = dict[str, list[tuple[dict[str, str], float]]]


def scrape(families: MetricRegistry) -> Scrape:
    """Return the samples of each metric name, as prometheus_client reads them."""
    text = b"".join(write(families.collect(NOW_MS, lambda: None), lambda: None)).decode()
    samples: Scrape = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in samples, "a family is written once"
        samples.setdefault(family.name, [])
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def scrape_of(server: Server, reloads: Reloads | None = None) -> Scrape:
    return scrape(MetricRegistry(server, reloads or Reloads()))


def value(samples: Scrape, name: str, **labels: str) -> float:
    (found,) = [value for its, value in samples[name] if its == labels]
    return found


def bucket_of(server: Server, kind: QuotaKind, client_id: str = "etl", upstream: Address = BROKER) -> Bucket:
    buckets = upstream_of(server, upstream).quotas.buckets(principal="ANONYMOUS", client_id=client_id, now_ms=NOW_MS)
    return next(bucket for bucket in buckets if bucket.kind is kind)


def test_a_bucket_has_the_series_of_the_proxy_in_base_units_and_those_of_kafka_in_kafkas() -> None:
    server = Server(config(LIMIT))
    bucket = bucket_of(server, QuotaKind.PRODUCE)
    bucket.charge(2_000_000, now_ms=NOW_MS)
    bucket.charge(3_000_000, now_ms=NOW_MS)
    bucket.throttled(1_500, now_ms=NOW_MS)
    bucket.observe(250, took_ms=0, now_ms=NOW_MS)
    bucket_of(server, QuotaKind.PRODUCE, "unlimited").charge(1, now_ms=NOW_MS)
    bucket_of(server, QuotaKind.FETCH).charge(10, now_ms=NOW_MS)

    samples = scrape_of(server)

    etl = {"user": "", "client_id": "etl"}
    assert value(samples, "kafka_quota_proxy_bytes_total", **ETL) == 5_000_000
    assert value(samples, "kafka_quota_proxy_bytes_total", **{**ETL, "kind": "fetch"}) == 10
    assert value(samples, "kafka_quota_proxy_requests_total", **ETL) == 2
    assert value(samples, "kafka_quota_proxy_throttled_requests_total", **ETL) == 1
    assert value(samples, "kafka_quota_proxy_throttle_seconds_total", **ETL) == 1.5
    assert value(samples, "kafka_quota_proxy_observed_throttle_seconds_total", **ETL) == 0.25
    # 5 MB in a window of 10 s, at a limit of 1 MB/s. The bucket without a limit has no utilisation.
    assert samples["kafka_quota_proxy_quota_utilisation_ratio"][0] == (ETL, 0.5)
    assert len(samples["kafka_quota_proxy_quota_utilisation_ratio"]) == 2  # and that of Fetch
    assert value(samples, "kafka_server_produce_byte_rate", **etl) == 500_000.0
    assert value(samples, "kafka_server_produce_throttle_time", **etl) == 1_500.0
    assert samples["kafka_server_produce_byte_quota_value"] == [(etl, 1_000_000.0)]
    assert isnan(value(samples, "kafka_server_fetch_throttle_time", **etl)), "as in Kafka"


def test_each_broker_is_reached_or_has_a_reason_and_is_bypassed_or_not() -> None:
    server = Server(config(upstreams=(BROKER, OTHER_BROKER)))
    upstream_of(server, BROKER).reached()
    upstream_of(server, OTHER_BROKER).failed(Fault("refused", "Connection refused"))
    upstream_of(server, OTHER_BROKER).advertises(OTHER_BROKER, [ANY])

    samples = scrape_of(server)

    assert samples["kafka_quota_proxy_upstream_reachable"] == [
        ({"broker": "127.0.0.1:19092", "reason": ""}, 1),
        ({"broker": "127.0.0.1:19093", "reason": "refused"}, 0),
    ]
    assert [bypassed for _, bypassed in samples["kafka_quota_proxy_upstream_bypassed"]] == [0, 1]


def test_each_rule_has_its_limit_even_without_traffic_and_without_kafkas_values() -> None:
    rules = (
        QuotaRule(user=DEFAULT, producer_byte_rate=1_000.0),
        QuotaRule(user="alice", client_id=DEFAULT, producer_byte_rate=2_000.0, consumer_byte_rate=3_000.0),
        QuotaRule(client_id="etl", consumer_byte_rate=4_000.0),
    )
    server = Server(config(*rules, value_enable=False))
    bucket_of(server, QuotaKind.PRODUCE).charge(1, now_ms=NOW_MS)

    samples = scrape_of(server)

    assert samples["kafka_quota_proxy_quota_limit"] == [
        ({"kind": "produce", "user": "<default>", "client_id": ""}, 1_000.0),
        ({"kind": "produce", "user": "alice", "client_id": "<default>"}, 2_000.0),
        ({"kind": "fetch", "user": "alice", "client_id": "<default>"}, 3_000.0),
        ({"kind": "fetch", "user": "", "client_id": "etl"}, 4_000.0),
    ]
    assert not [name for name in samples if name.endswith("byte_quota_value")]


def test_each_rule_that_throttled_has_its_throttle_time_and_names_that_collide_are_summed() -> None:
    rules = (
        QuotaRule(user=DEFAULT, client_id=DEFAULT, producer_byte_rate=1_000.0),
        QuotaRule(user="other", client_id="other", consumer_byte_rate=1_000.0),
        QuotaRule(client_id="idle", producer_byte_rate=1_000.0),
    )
    server = Server(config(*rules))
    times = server.rules.tables.throttle_times
    times[QuotaKind.PRODUCE].add(rules[0], 1_500)
    times[QuotaKind.FETCH].add(rules[1], 250)
    times[QuotaKind.FETCH].other_ms = 500

    assert scrape_of(server)["kafka_quota_proxy_rule_throttle_seconds_total"] == [
        ({"kind": "produce", "user": "<default>", "client_id": "<default>"}, 1.5),
        ({"kind": "fetch", "user": "other", "client_id": "other"}, 0.75),
    ]


def test_users_are_sanitised_in_kafkas_family_only_and_client_ids_nowhere() -> None:
    rule = QuotaRule(user=DEFAULT, client_id=DEFAULT, producer_byte_rate=1e6)
    server = Server(config(rule))
    quotas = upstream_of(server, BROKER).quotas
    bucket, *_ = quotas.buckets(principal="CN=Ä b,O=x", client_id='a "b"\\\n/é', now_ms=NOW_MS)
    bucket.charge(1, now_ms=NOW_MS)

    samples = scrape_of(server)

    assert samples["kafka_quota_proxy_bytes_total"] == [
        ({"kind": "produce", "user": "CN=Ä b,O=x", "client_id": 'a "b"\\\n/é'}, 1)
    ]
    assert samples["kafka_server_produce_byte_rate"][0][0] == {
        "user": "CN%3D%C3%84%20b%2CO%3Dx",
        "client_id": 'a "b"\\\n/é',
    }


KINDS = QuotaRule(client_id="etl", request_percentage=50.0, request_rate=20.0, controller_mutation_rate=2.0)


@pytest.mark.parametrize(
    ("kind", "amount", "charged", "of_kafka"),
    [
        (
            QuotaKind.REQUEST,
            2_500_000_000,
            {"request_seconds_total": 2.5, "quota_limit": 50.0, "quota_utilisation_ratio": 0.5},
            {"request_request_time": 25.0, "request_throttle_time": 300.0, "request_request_quota_value": 50.0},
        ),
        (
            QuotaKind.MUTATION,
            30,
            {"mutations_total": 30, "quota_limit": 2.0},
            # 2 a second for 11 s, minus 30
            {
                "controllermutation_mutation_rate": 1.0,
                "controllermutation_tokens": -8.0,
                "controllermutation_throttle_time": 300.0,
            },
        ),
        (QuotaKind.REQUEST_RATE, 1, {"quota_limit": 20.0, "quota_utilisation_ratio": 0.005}, {}),
    ],
)
def test_each_other_kind_has_its_own_unit_and_kafkas_family(
    kind: QuotaKind, amount: int, charged: dict[str, float], of_kafka: dict[str, float]
) -> None:
    server = Server(config(KINDS))
    bucket = bucket_of(server, kind)
    bucket.charge(amount, now_ms=NOW_MS)
    bucket.throttled(300, now_ms=NOW_MS)

    samples = scrape_of(server)

    etl = {**ETL, "kind": kind.label}
    for name, expected in (charged | {"requests_total": 1, "throttle_seconds_total": 0.3}).items():
        assert value(samples, f"kafka_quota_proxy_{name}", **etl) == expected, name
    found = {
        name.removeprefix("kafka_server_"): number
        for name, all_ in samples.items()
        for labels, number in all_
        if name.startswith("kafka_server_") and labels == {"user": "", "client_id": "etl"}
    }
    assert found == of_kafka
    assert samples.get("kafka_quota_proxy_bytes_total", []) == []


def test_buckets_above_the_maximum_are_other() -> None:
    server = Server(config())
    for client_id, amount in (("a", 10), ("b", 30), ("c", 20)):
        bucket_of(server, QuotaKind.PRODUCE, client_id).charge(amount, now_ms=NOW_MS)

    samples = scrape(MetricRegistry(server, Reloads(), most_buckets=1))

    assert {labels["client_id"]: value for labels, value in samples["kafka_quota_proxy_bytes_total"]} == {
        "b": 30,
        "other": 30,
    }
    assert [labels["client_id"] for labels, _ in samples["kafka_server_produce_byte_rate"]] == ["b"]


def test_frames_errors_and_logins_of_all_listeners_are_counted() -> None:
    server = Server(config(upstreams=(BROKER, OTHER_BROKER)))
    for port in server.listeners:
        counters = port.counters
        counters.frames[ApiKey.PRODUCE] += 1
        counters.frames[ApiKey.SASL_HANDSHAKE] += 1
        counters.unknown_apis |= {3_000: 1, OTHER: 136}
        counters.protocol_error("tls_on_plaintext")
        counters.login("PLAIN", "accepted")

    samples = scrape_of(server)

    assert value(samples, "kafka_quota_proxy_frames_total", api="Produce") == 2
    assert value(samples, "kafka_quota_proxy_frames_total", api="SaslHandshake") == 2
    assert samples["kafka_quota_proxy_unknown_api_total"] == [({"api_key": "3000"}, 2), ({"api_key": "other"}, 272)]
    assert samples["kafka_quota_proxy_protocol_errors_total"] == [({"reason": "tls_on_plaintext"}, 2)]
    assert samples["kafka_quota_proxy_logins_total"] == [
        ({"listener": f"listener-{number}", "mechanism": "PLAIN", "result": "accepted"}, 1) for number in range(2)
    ]


def test_open_and_muted_connections_are_counted_by_listener() -> None:
    server = Server(config(upstreams=(BROKER, OTHER_BROKER)))
    first, second = server.listeners
    free, muted, was_muted = (server.brokers.entrances[first].accept() for _ in range(3))
    first.connections |= dict.fromkeys((free, muted, was_muted))
    muted.session.account.muted_until_ms = NOW_MS + 60_000
    was_muted.session.account.muted_until_ms = NOW_MS - 1
    muted.state.block(BlockedBy.THROTTLE_TIME)
    was_muted.state.block(BlockedBy.QUOTA)
    second.counters.disconnect("upstream_refused")

    samples = scrape_of(server)

    assert [count for _, count in samples["kafka_quota_proxy_connections"]] == [3, 0]
    assert [count for _, count in samples["kafka_quota_proxy_muted_connections"]] == [1, 0]
    waiting = {labels["waits_for"]: n for labels, n in samples["kafka_quota_proxy_waiting_connections"] if n}
    assert waiting == {"throttle_time": 1, "quota": 1}
    assert samples["kafka_quota_proxy_disconnects_total"] == [
        ({"listener": "listener-1", "cause": "upstream_refused"}, 1)
    ]


def test_added_latency_is_a_histogram_over_all_listeners() -> None:
    server = Server(config(upstreams=(BROKER, OTHER_BROKER)))
    first, second = server.listeners
    first.latency.observe(ApiKey.FETCH, BOUNDS_NS[1])
    second.latency.observe(ApiKey.FETCH, BOUNDS_NS[3])
    first.latency.observe(ApiKey.FETCH, BOUNDS_NS[-1] + 1)

    samples = scrape_of(server)

    name = "kafka_quota_proxy_added_latency_seconds"
    counts = [count for _, count in samples[f"{name}_bucket"]]
    assert counts == [0, 1, 1, *[2] * (len(BOUNDS_NS) - 3), 3]
    bounds = [float(labels["le"]) for labels, _ in samples[f"{name}_bucket"]]
    assert bounds == pytest.approx([*(bound / 1e9 for bound in BOUNDS_NS), inf])
    assert value(samples, f"{name}_count", api="Fetch") == 3
    total_ns = BOUNDS_NS[1] + BOUNDS_NS[3] + BOUNDS_NS[-1] + 1
    assert value(samples, f"{name}_sum", api="Fetch") == pytest.approx(total_ns / 1e9)


def test_config_info_has_the_hash_of_the_configuration() -> None:
    samples = scrape_of(Server(config()), Reloads(last_reload_successful=False))

    assert value(samples, "kafka_quota_proxy_config_last_reload_successful") == 0
    assert value(samples, "kafka_quota_proxy_config_last_reload_timestamp_seconds") == 1_767_225_600.5
    assert value(samples, "kafka_quota_proxy_config_info", hash="cf76ad98") == 1
    ((labels, one),) = samples["kafka_quota_proxy_build_info"]
    assert (list(labels), one) == (["version", "implementation"], 1)


def test_a_scrape_of_many_buckets_leaves_the_interpreter_after_some_ms_of_work() -> None:
    server = Server(config(QuotaRule(client_id=DEFAULT, producer_byte_rate=1e6, consumer_byte_rate=1e6)))
    for number in range(400):
        for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH):
            bucket_of(server, kind, f"client-{number}").charge(1_000, now_ms=NOW_MS)
    families = MetricRegistry(server, Reloads())
    longest_s: list[float] = []

    gc.collect()
    gc.freeze()  # as the proxy does; the garbage collector then skips the objects of pytest
    for _ in range(12):
        rested_s = [thread_time()]  # CPU time of this thread alone
        rest = partial(rest_in, rested_s)
        text = b"".join(write(families.collect(NOW_MS, rest), rest))
        rest()
        longest_s.append(max(later - earlier for earlier, later in pairwise(rested_s)))
        if longest_s[-1] < 0.010:
            break
    gc.unfreeze()

    assert text.count(b"kafka_quota_proxy_bytes_total{") == 800
    assert min(longest_s) < 0.010


def rest_in(rested_s: list[float]) -> None:
    rested_s.append(thread_time())


def test_buckets_evictions_and_overflows_are_shown() -> None:
    rule = QuotaRule(client_id=DEFAULT, producer_byte_rate=100.0)
    server = Server(replace(config(rule, upstreams=(BROKER, OTHER_BROKER)), max_buckets=2))
    for client_id, amount in (("a", 1), ("b", 5_000), ("c", 5_000), ("d", 1)):
        bucket_of(server, QuotaKind.PRODUCE, client_id).charge(amount, now_ms=NOW_MS)
    bucket_of(server, QuotaKind.PRODUCE, upstream=OTHER_BROKER)

    samples = scrape_of(server)

    assert value(samples, "kafka_quota_proxy_buckets", kind="produce") == 4
    assert value(samples, "kafka_quota_proxy_buckets", kind="fetch") == 3
    assert value(samples, "kafka_quota_proxy_evicted_buckets_total", kind="produce") == 1
    assert value(samples, "kafka_quota_proxy_bucket_overflows_total", kind="produce") == 1


def test_certificates_have_an_end_and_a_last_reload(tmp_path: Path) -> None:
    authority = Authority("authority")
    issued = authority.issue("proxy")
    certificate, key = issued.save(tmp_path, "proxy")
    client_tls, upstream_tls = ClientTls(certificate=certificate, key=key), UpstreamTls()
    listener = Listener(name="a", bind=ANY, upstream=BROKER, client_tls=client_tls, upstream_tls=upstream_tls)
    server = Server(ProxyConfig(listeners=(listener,)))
    server.tls[upstream_tls].last_reload_successful = False

    found = scrape_of(server)

    until = x509.load_pem_x509_certificate(issued.certificate).not_valid_after_utc.timestamp()
    assert found["kafka_quota_proxy_tls_certificate_expiry_timestamp_seconds"] == [
        ({"listener": "a", "side": "client"}, until)
    ]
    assert found["kafka_quota_proxy_tls_last_reload_successful"] == [
        ({"listener": "a", "side": "client"}, 1),
        ({"listener": "a", "side": "upstream"}, 0),
    ]
