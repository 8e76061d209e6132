"""Rules expire and ramp while a proxy runs."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

import pytest

from kafka_quota_proxy.config.schedule import Ramp, limit_at, step_of
from kafka_quota_proxy.config.term_values import written_instant
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_CLIENT: Final = "timed"
_LIMIT: Final = "kafka_quota_proxy_quota_limit"
_P: Final = "producer_byte_rate"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _limits(proxy: Proxy) -> list[float]:
    return proxy.metrics().values(_LIMIT, client_id=_CLIENT)


@pytest.mark.proof
def test_mute_lasts_its_full_time_although_its_rule_expires(kafka_4: Kafka) -> None:
    topic, batch = create_topic(kafka_4), batch_of(64 * KIB)
    lavish = {"quotas": [{"client-id": _CLIENT, _P: 10**9}]}
    with Proxy(lavish, kafka_4) as proxy, raw_client(proxy.port(), client_id=_CLIENT) as client:
        client.produce(topic, batch)
        expires = written_instant(_now_ms() + 1_500)
        assert proxy.reload({"quotas": [{"client-id": _CLIENT, _P: 10_000, "expires": expires}]})
        muted = client.produce(topic, batch)
        muted_at = time.monotonic()
        assert _limits(proxy) == [10_000]

        wait_until(lambda: not _limits(proxy), timeout_s=10, what="the rule expires")
        expired_at = time.monotonic()
        with raw_client(proxy.port(), client_id=_CLIENT) as other:
            free = other.produce(topic, batch)
        after = client.produce(topic, batch)
        after_at = time.monotonic()

        log = proxy.log
        command = [sys.executable, "-m", "kafka_quota_proxy.proxy", "explain", str(proxy.file), "--client-id", _CLIENT]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    # Two requests have 131 kB, at 10,000 B/s. test_reload.py explains the bounds.
    assert 2_100 <= muted.throttle_time_ms <= 3_200
    assert expired_at - muted_at < muted.throttle_time_ms / 1_000
    assert after_at - muted_at >= muted.throttle_time_ms / 1_000 - 0.01
    assert (after.throttle_time_ms, free.throttle_time_ms) == (0, 0)
    assert f"the schedule of a rule changed the quotas of client-id {_CLIENT}: none" in log
    assert f"level 7: expired at {expires}\n" in printed


def test_ramp_continues_on_schedule_after_a_kill(kafka_4: Kafka) -> None:
    limits: list[float] = []

    def look() -> float:
        """Return the limit in force. It must be that of a step within the last second."""
        before_ms = _now_ms() - 1_000
        (limit,) = _limits(proxy)
        steps = range(step_of(ramp, now_ms=before_ms), step_of(ramp, now_ms=_now_ms()) + 1)
        assert limit in [limit_at(ramp, step, old=9e6, new=1e6) for step in steps]
        limits.append(limit)
        return limit

    with Proxy({"quotas": []}, kafka_4) as proxy:
        ramp = Ramp(start=((_P, 9e6),), begins_ms=_now_ms(), over_ms=5_000, steps=8)
        written = {"from": {_P: 9_000_000}, "begins": written_instant(ramp.begins_ms), "over": "5s", "steps": 8}
        assert proxy.reload({"quotas": [{"client-id": _CLIENT, _P: 1_000_000, "ramp": written}]})
        wait_until(lambda: look() <= 7e6, timeout_s=20, what="the ramp is at its second step")
        proxy.kill()
        proxy.start()
        wait_until(lambda: look() == 1e6, timeout_s=20, what="the ramp is at its end")

    assert limits == sorted(limits, reverse=True)
    assert len(set(limits)) > 2
