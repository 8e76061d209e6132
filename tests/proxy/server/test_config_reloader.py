"""Tests that a changed configuration file is applied as a whole or not at all. Some keys need a restart."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import Loaded, load
from kafka_quota_proxy.config.model import (
    Address,
    Admin,
    Enforcement,
    KafkaSettings,
    Listener,
    Log,
    LogFormat,
    ProxyConfig,
    QuotaRule,
    Shaping,
)
from kafka_quota_proxy.config.security import ClientTls, UpstreamTls
from kafka_quota_proxy.proxy.server.config_reloader import Reloader, needs_restart

LISTENER = "listeners: [{name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}]\n"
ONE = f"{LISTENER}quotas: [{{client-id: a, producer_byte_rate: 1MB}}]\n"
TWO = f"{LISTENER}quotas: [{{client-id: a, producer_byte_rate: 2.0MB}}]\n"  # the length differs from that of ONE
BROKEN = f"{LISTENER}quotas: [{{client-id: a, producer_byte_rate: 2mb}}]\nshapng: paced\n"

CONFIG = ProxyConfig(
    listeners=(
        Listener(name="a", bind=Address(host="x", port=1), upstream=Address(host="y", port=2)),
        Listener(name="b", bind=Address(host="x", port=3), upstream=Address(host="y", port=4)),
    ),
    quotas=(
        QuotaRule(client_id="a", producer_byte_rate=1.0, source="f:1"),
        QuotaRule(client_id="b", producer_byte_rate=1.0, source="f:2"),
    ),
)


class Watched:
    """A configuration file, its ``Reloader``, and the configurations that were loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loaded: asyncio.Queue[Loaded] = asyncio.Queue()
        self.reloader = Reloader(path, load(path), on_loaded=self.loaded.put, poll_s=0.01, settle_s=0.01)

    async def next_rate(self) -> float | None:
        async with asyncio.timeout(20):
            loaded = await self.loaded.get()
        return loaded.config.quotas[0].limits["producer_byte_rate"]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    path = tmp_path / "c.yaml"
    path.write_text(ONE)
    return Watched(path)


@asynccontextmanager
async def watching(watched: Watched) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watched.reloader.watch())
        yield
        task.cancel()


async def test_a_write_in_place_is_seen(watched: Watched) -> None:
    async with watching(watched):
        watched.path.write_text(TWO)

        assert await watched.next_rate() == 2_000_000


async def test_a_rename_over_the_file_is_seen(watched: Watched) -> None:
    async with watching(watched):
        other = watched.path.with_suffix(".new")
        other.write_text(TWO)
        other.rename(watched.path)

        assert await watched.next_rate() == 2_000_000


async def test_a_swapped_symbolic_link_is_seen(tmp_path: Path) -> None:
    """Kubernetes mounts a ConfigMap as a file in a directory that is itself a link."""
    for name, text in (("v1", ONE), ("v2", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.yaml").write_text(text)
    (tmp_path / "data").symlink_to("v1")
    (tmp_path / "c.yaml").symlink_to("data/c.yaml")
    watched = Watched(tmp_path / "c.yaml")

    async with watching(watched):
        (tmp_path / "data.new").symlink_to("v2")
        (tmp_path / "data.new").rename(tmp_path / "data")

        assert await watched.next_rate() == 2_000_000


async def test_a_file_that_reappears_is_reloaded(watched: Watched) -> None:
    watched.path.unlink()
    assert not await watched.reloader.reload()

    async with watching(watched):
        watched.path.write_text(TWO)

        assert await watched.next_rate() == 2_000_000
        assert watched.reloader.last_reload_successful


async def test_change_and_signal_soon_after_it_cause_one_reload(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watched.reloader = Reloader(
        watched.path, load(watched.path), on_loaded=watched.loaded.put, poll_s=0.01, settle_s=0.1
    )

    async with watching(watched):
        watched.path.write_text(TWO)
        await asyncio.sleep(0.05)
        watched.reloader.request()
        assert await watched.next_rate() == 2_000_000
        await asyncio.sleep(0.2)

    assert "nothing has changed" not in caplog.text


async def test_invalid_file_changes_nothing_and_is_logged(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    hash_before, timestamp_before = watched.reloader.hash, watched.reloader.last_reload_timestamp_seconds
    watched.path.write_text(BROKEN)

    is_valid = await watched.reloader.reload()

    assert not is_valid
    assert watched.loaded.empty()
    assert not watched.reloader.last_reload_successful
    assert (watched.reloader.hash, watched.reloader.last_reload_timestamp_seconds) == (hash_before, timestamp_before)
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(": ")[0] for line in said[:2]] == [f"{watched.path}:2", f"{watched.path}:3"]
    assert "the configuration stays unchanged" in said[2]
    fields = [vars(record) for record in caplog.records]
    assert [one["event"] for one in fields] == ["config_fault", "config_fault", "config_refused"]
    assert [(one["file"], one["line"], one["severity"]) for one in fields[:2]] == [
        (str(watched.path), 2, "error"),
        (str(watched.path), 3, "error"),
    ]
    last = watched.reloader.last_read
    assert (last.event, last.is_refused, [fault.line for fault in last.faults]) == ("config_refused", True, [2, 3])
    assert last.message == said[2]


async def test_unchanged_content_is_a_successful_reload_without_effect(watched: Watched) -> None:
    watched.path.write_text(BROKEN)
    await watched.reloader.reload()
    watched.path.write_text(ONE)

    is_valid = await watched.reloader.reload()

    assert is_valid
    assert watched.reloader.last_reload_successful
    assert watched.loaded.empty()
    assert (watched.reloader.last_read.event, watched.reloader.last_read.faults) == ("config_unchanged", ())


async def test_what_came_of_the_last_read_is_kept(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first = watched.reloader.last_read
    watched.path.write_text(TWO.replace("127.0.0.1:9092", "127.0.0.1:9999"))
    await watched.reloader.reload()
    second = watched.reloader.last_read
    watched.path.write_text(BROKEN)
    await watched.reloader.reload()

    assert (first.event, first.message) == ("config_loaded", f"{watched.path} was read at the start")
    assert first.time_s <= second.time_s <= watched.reloader.last_read.time_s
    assert (second.event, second.needs_restart) == ("config_reloaded", ("listeners.clients.bind",))
    assert second.message in caplog.messages
    # The running program still listens at the old address.
    assert watched.reloader.last_read.needs_restart == ("listeners.clients.bind",)


async def test_keys_that_need_a_restart_are_compared_with_the_start(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.path.write_text(TWO.replace("127.0.0.1:9092", "127.0.0.1:9999"))
    await watched.reloader.reload()
    caplog.clear()
    watched.path.write_text(TWO)

    await watched.reloader.reload()

    assert "next start" not in caplog.text


async def test_certificates_in_the_middle_of_a_change_do_not_keep_a_file_out(watched: Watched) -> None:
    tls = "client_tls: {certificate: being-replaced.pem, key: being-replaced.key}"
    async with watching(watched):
        watched.path.write_text(TWO.replace("upstream: 127.0.0.1:19092", f"upstream: 127.0.0.1:19092, {tls}"))

        assert await watched.next_rate() == 2_000_000


def test_rules_and_policies_need_no_restart() -> None:
    first, second = CONFIG.listeners
    new = replace(
        CONFIG,
        listeners=(
            replace(first, enforcement=Enforcement.DELAY, shaping=Shaping.PACED, inter_broker=True),
            replace(second, max_frame_size_bytes=5),
        ),
        quotas=(),
        enforcement=Enforcement.OBSERVE,
        shaping=Shaping.PACED,
        burst_ms=5,
        max_throttle_time_ms=None,
        kafka=KafkaSettings(quota_producer_default=5, client_quota_metric_value_enable=False),
    )

    assert needs_restart(CONFIG, new) == ()


def test_listeners_windows_admin_and_log_need_a_restart() -> None:
    first, second = CONFIG.listeners
    new = replace(
        CONFIG,
        listeners=(
            replace(
                first,
                bind=Address(host="z", port=1),
                upstream=Address(host="z", port=2),
                node_id=3,
                client_tls=ClientTls(certificate="c", key="k"),
                upstream_tls=UpstreamTls(),
            ),
            replace(second, name="c"),
        ),
        kafka=KafkaSettings(
            quota_window_num=5,
            quota_window_size_seconds=2,
            replication_quota_window_num=5,
            replication_quota_window_size_seconds=2,
        ),
        admin=Admin(bind=Address(host="x", port=9)),
        log=Log(format=LogFormat.JSON),
    )

    assert needs_restart(CONFIG, new) == (
        "listeners.a.bind",
        "listeners.a.upstream",
        "listeners.a.node_id",
        "listeners.a.client_tls",
        "listeners.a.upstream_tls",
        "listeners.b (removed)",
        "listeners.c (added)",
        "kafka.quota.window.num",
        "kafka.quota.window.size.seconds",
        "kafka.replication.quota.window.num",
        "kafka.replication.quota.window.size.seconds",
        "admin",
        "log",
    )
