"""Tests that ``init`` writes a file that ``check`` accepts, and that it overwrites nothing without ``--force``."""

import re
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.proxy.__main__ import main

_COMMENTED_KEY = re.compile(r"^( +)# (- \{.*\}|[a-z_]+: .*)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_accepts_the_file_with_its_commented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "-"])
    text, count = _COMMENTED_KEY.subn(r"\1\2", capsys.readouterr().out)
    Path("all.yaml").write_text(text)

    assert count >= 2
    assert main(["check", "--strict", "all.yaml"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == "all.yaml: valid, 1 listener, 2 quotas\n"


def test_the_cluster_is_the_one_of_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "c.yaml", "--bootstrap-servers", "broker1:9092,[::1]:9093"]) == 0

    cluster = load("c.yaml").config.listeners[0].cluster
    assert cluster is not None
    assert [str(address) for address in cluster.bootstrap_servers] == ["broker1:9092", "[::1]:9093"]
    with pytest.raises(SystemExit) as ended:
        main(["init", "--bootstrap-servers", "broker1"])
    assert ended.value.code == 2
    assert "--bootstrap-servers: 'broker1' is not an address" in capsys.readouterr().err


def test_an_existing_file_is_kept_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("proxy.yaml")
    path.write_text("mine")

    assert main(["init", "proxy.yaml"]) == 1
    message = "kafka-quota-proxy init: proxy.yaml exists; choose another name, or overwrite it with --force\n"
    assert capsys.readouterr() == ("", message)
    assert path.read_text() == "mine"

    assert main(["init", "proxy.yaml", "--force"]) == 0
    assert main(["check", "--strict", "proxy.yaml"]) == 0
    assert main(["init", "absent/proxy.yaml"]) == 1
    message = "kafka-quota-proxy init: absent/proxy.yaml cannot be written: No such file or directory\n"
    assert capsys.readouterr().err == message
