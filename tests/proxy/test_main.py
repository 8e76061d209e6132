"""Tests the command line as a whole."""

import os
import re
import subprocess
import sys

import pytest

from kafka_quota_proxy.proxy.__main__ import main

COMMANDS = ["run", "demo", "init", "check", "explain", "quotas", "rebalance", "healthcheck", "completion"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])

    assert ended.value.code == 0
    assert re.search(rf"^examples?: kafka-quota-proxy {command}\b", capsys.readouterr().out, re.MULTILINE)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])

    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^    {command}\s", shown, re.MULTILINE) for command in COMMANDS)
    assert "example: " in shown


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["check"], ["explain", "c.yaml", "--no-such-option"]])
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert "usage: kafka-quota-proxy" in capsys.readouterr().err


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("kafka-quota-proxy ")


def test_check_and_explain_need_neither_the_demos_packages_nor_the_event_loop() -> None:
    # This needs a new interpreter, because other tests have imported these packages in this process.
    program = (
        "import sys\n"
        "from proxy.__main__ import main\n"
        "status = main(['explain', 'config/example.yaml', '--client-id', 'etl'])\n"
        "loaded = {'uvloop', 'aiokafka', 'confluent_kafka', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {loaded}' if loaded else status)\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_all_commands_but_the_demo_need_no_extra() -> None:
    program = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('confluent_kafka',))\n"
        "from kafka_quota_proxy.proxy import __main__ as program\n"
        "from kafka_quota_proxy.proxy.cli.admin_client import AdminClient\n"
        "from tests.support.client_rows import page, row\n"
        "for name in program._COMMANDS.keys() - {'demo'}:\n"
        "    program._module(name)\n"
        "AdminClient.clients = lambda self, query: page(row('etl'))\n"
        "sys.exit(program.main(['top', '--once']))\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert " etl " in ended.stdout


def test_a_missing_package_is_one_line_with_a_hint() -> None:
    program = (
        "import sys\n"
        "sys.modules['uvloop'] = None\n"
        "from proxy.__main__ import main\n"
        "sys.exit(main(['run', 'config/example.yaml']))\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert ended.stderr == (
        "kafka-quota-proxy run: uvloop is not installed; "
        "install it with: pip install '.' in a checkout of kafka-quota-proxy\n"
    )


@pytest.mark.parametrize("words", [["--help"], ["explain", "config/example.yaml"]])
def test_closed_stdout_ends_the_command_silently(words: list[str]) -> None:
    """As in ``kafka-quota-proxy explain … | head``. A shell reports 141 for a process that SIGPIPE ended."""
    reading, writing = os.pipe()
    os.close(reading)

    try:
        ended = subprocess.run(
            [sys.executable, "-m", "kafka_quota_proxy.proxy", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            text=True,
            check=False,
        )
    finally:
        os.close(writing)

    assert (ended.returncode, ended.stderr) == (141, "")


def test_closed_stderr_keeps_the_exit_status() -> None:
    """As in ``kafka-quota-proxy check … 2>&1 | head``."""
    reading, writing = os.pipe()
    os.close(reading)

    try:
        ended = subprocess.run(
            [sys.executable, "-m", "kafka_quota_proxy.proxy", "check", "no such file"], stdout=writing, stderr=writing
        )
    finally:
        os.close(writing)

    assert ended.returncode == 141
