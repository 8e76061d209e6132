"""Quotas that ``kafka-quota-proxy quotas`` sets are enforced at once, shown, kept and audited."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import is_throttled
from tests.end_to_end.support.processes import free_port
from tests.end_to_end.support.proxy import Proxy

pytestmark = pytest.mark.proof

_ROOT: Final = Path(__file__).parents[2]


def _quotas(url: str, *words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kafka_quota_proxy.proxy", "quotas", *words, "--url", url],
        cwd=_ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout


def test_quota_set_by_our_command_holds_at_once_and_after_a_crash(kafka_4: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka_4)
    token, audit_log, port = tmp_path / "token", tmp_path / "audit.jsonl", free_port()
    token.write_text("f" * 32)
    url, anonymous = f"http://127.0.0.1:{port}", ("--user", "ANONYMOUS", "--default-client-id")
    with_token = ("--token-file", str(token))
    settings = {
        "store": {"directory": str(tmp_path / "quotas.d"), "audit_log": str(audit_log)},
        "admin": {"bind": f"127.0.0.1:{port}", "quotas_token_file": str(token)},
        "quotas": [{"client-id": "filed", "producer_byte_rate": 10**9}],
    }
    with Proxy(settings, kafka_4) as proxy:
        with raw_client(proxy.port(), client_id="etl") as client:
            assert not is_throttled(client, topic)
            limit, expires = ("--set", "producer_byte_rate=1kB"), ("--set", "expires=2999-01-01T00:00:00Z")
            observed = ("--set", "enforcement=observe")
            assert _quotas(url, "alter", *anonymous, *limit, *expires, *observed, *with_token) == (
                "+ user ANONYMOUS, client-id <default>: producer_byte_rate 1kB\n"
                "+ user ANONYMOUS, client-id <default>: enforcement observe\n"
                "+ user ANONYMOUS, client-id <default>: expires 2999-01-01T00:00:00Z\n"
                "1 entity changed\n"
            )
            assert not is_throttled(client, topic)
            assert _quotas(url, "alter", *anonymous, "--unset", "enforcement", *with_token) == (
                "- user ANONYMOUS, client-id <default>: enforcement observe\n1 entity changed\n"
            )
            assert is_throttled(client, topic)
        paced = ("--user", "ANONYMOUS", "--client-id", "paced")
        _quotas(url, "alter", *paced, "--set", "producer_byte_rate=100kB", "--set", "shaping=paced", *with_token)
        with raw_client(proxy.port(), client_id="paced") as client:
            # Twice 64 KiB exceed a paced burst of one second, but not the ten seconds' worth that Kafka's windows
            # allow.
            assert [is_throttled(client, topic) for _ in range(2)] == [False, True]
        printed = _quotas(url, "describe", *anonymous)
        assert printed.endswith("; now: producer_byte_rate=1kB, expires at 2999-01-01T00:00:00Z\n")
        assert _quotas(url, "alter", *anonymous, *limit, *with_token) == "nothing to change\n"
        _quotas(url, "delete", "--client-id", "filed", *with_token, status=1)
        assert proxy.metrics().total("kafka_quota_proxy_quota_changes_total", result="refused") == 1
        exported = _quotas(url, "export")
        assert "expires" in exported

        proxy.kill()
        proxy.start()

        with raw_client(proxy.port(), client_id="etl") as client:
            assert is_throttled(client, topic)
        assert _quotas(url, "export") == exported
        _quotas(url, "delete", *anonymous, *with_token)
        with raw_client(proxy.port(), client_id="other") as client:
            assert not is_throttled(client, topic)
    lines = [json.loads(line) for line in audit_log.read_text().splitlines()]
    assert [(line["principal"], line["listener"], line["result"]) for line in lines] == [
        *[("token@127.0.0.1", "admin", "applied")] * 3,
        ("token@127.0.0.1", "admin", "unchanged"),
        ("token@127.0.0.1", "admin", "refused"),
        ("token@127.0.0.1", "admin", "applied"),
    ]
