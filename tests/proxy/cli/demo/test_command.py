"""Tests ``kafka-quota-proxy demo`` with real processes, real sockets and a real clock."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.cli.demo.command import NEXT_STEPS, add_arguments
from tests.support.process_tree import descendants, is_alive

DEMO = (sys.executable, "-m", "kafka_quota_proxy.proxy", "demo")
# These rates are below the defaults, because the test machine may be small and busy.
RATES = ("--produce-rate", "2MiB", "--fetch-rate", "1MiB")


@pytest.mark.kafka
def test_the_demo_throttles_both_clients_to_their_quotas() -> None:
    # Two demos run at once, the second at low rates.
    small_rates = ("--produce-rate", "100KiB", "--fetch-rate", "16KiB")
    demos = [
        subprocess.Popen([*DEMO, *rates, "--seconds", "6", "--json"], stdout=subprocess.PIPE, text=True)
        for rates in (RATES, small_rates)
    ]
    outcomes = [json.loads(demo.communicate(timeout=60)[0]) for demo in demos]

    assert [demo.returncode for demo in demos] == [0, 0], outcomes
    outcome = outcomes[0]
    assert list(outcome) == ["producer", "consumer"]
    for client, quota in (("producer", 2 * 1024 * 1024), ("consumer", 1024 * 1024)):
        assert outcome[client]["quota_bytes_per_second"] == quota
        assert outcome[client]["measured_bytes_per_second"] == pytest.approx(quota, rel=0.05)
        assert outcome[client]["unlimited_bytes_per_second"] > 1.5 * quota
        # Both clients could send many times their quota, so they wait most of the time.
        assert outcome[client]["throttle_time_ms"] > 1_000


@pytest.mark.long
def test_sampled_is_measured_over_a_whole_cycle() -> None:
    done = subprocess.run(
        [*DEMO, *RATES, "--seconds", "3", "--shaping", "sampled"], capture_output=True, text=True, timeout=90
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Kafka's windows make cycles")
    assert "producer: held" in done.stdout
    assert "consumer: held" in done.stdout


@pytest.mark.kafka
def test_a_killed_demo_leaves_no_process_behind() -> None:
    with subprocess.Popen([*DEMO, *RATES, "--seconds", "60"], stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.lstrip().startswith(b"1/"):
                break
        children = descendants(demo.pid)

        demo.kill()

    assert len(children) == 4, "a guard and a program for the broker and for the proxy"
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in children if is_alive(pid)] == []


def test_next_steps_are_commands_and_a_file_that_are_valid(tmp_path: Path) -> None:
    steps = [line.strip() for line in NEXT_STEPS.splitlines()]
    commands = [line[line.index("kafka-quota-proxy ") :].split()[1:] for line in steps if "kafka-quota-proxy " in line]
    file = tmp_path / "laptop.yaml"
    file.write_text("\n".join(line for line in steps if line.startswith(("listeners:", "quotas:"))))
    parser = argparse.ArgumentParser()
    add_arguments(parser)

    parsed = [parser.parse_args(words[1:]) for words in commands if words[0] == "demo"]

    assert [one.serve for one in parsed] == [False, True]
    assert parsed[1].quota == [{"client-id": "my-app", "producer_byte_rate": "100KiB"}]
    assert load(file).config.quotas[0].limits == {"producer_byte_rate": 102_400, "consumer_byte_rate": 102_400}
    assert commands[2] == ["run", "laptop.yaml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--produce-rate", "1KiB"), "16KiB to 32MiB"),
        (("--fetch-rate", "10Mb"), "MB"),
        (("--seconds", "2"), "3 to 3600"),
        (("--shaping", "round"), "paced"),
        (("--serve", "--port=65536"), "is not a port from 0 to 65535"),
        (("--serve", "--quota", "my-app"), "'my-app' must be KEY=VALUE"),
    ],
)
def test_wrong_usage_is_exit_status_2_and_says_which_values_are_right(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])

    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_quotas_are_read_as_in_a_file() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    texts = ("client-id=a,b,request_rate=50,shaping=sampled", "user=<default>,client-id=007,consumer_byte_rate=2MB")

    parsed = parser.parse_args([word for text in texts for word in ("--quota", text)])

    assert parsed.quota == [
        {"client-id": "a,b", "request_rate": 50, "shaping": "sampled"},
        {"user": "<default>", "client-id": "007", "consumer_byte_rate": "2MB"},
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--quota", "client-id=a,rate=5"), "quotas[0].rate: "),
        (("--quota", "client-id=a"), "quotas[0]: limits nothing; give producer_byte_rate"),
        (("--port", "9092", "--admin-port", "9092"), "127.0.0.1:9092"),
    ],
)
def test_faults_of_what_is_served_are_those_of_a_file(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert main(["demo", "--serve", *arguments]) == 2

    assert words in capsys.readouterr().err
