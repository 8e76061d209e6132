"""``check`` prints every fault and says by its exit status whether the file can be used."""

from pathlib import Path

import pytest

from proxy.__main__ import main

VALID = "listeners: [{name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}]\n"


def test_a_valid_file_is_one_line_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"{VALID}quotas: [{{client-id: a, producer_byte_rate: 1MB}}, {{ip: 10.0.0.7, connection_creation_rate: 5}}]\n"
    )

    status = main(["check", str(path)])

    assert status == 0
    assert capsys.readouterr() == (f"{path}: valid, 1 listener, 2 quotas\n", "")


def test_a_topic_with_more_rules_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{VALID}quotas_from: kafka://k1:9092/store\n")

    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid, 1 listener, 0 quotas, and those of kafka://k1:9092/store\n"


def test_so_are_brokers_with_more_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{VALID}quotas_from: broker\n")

    assert main(["check", str(path)]) == 0
    assert capsys.readouterr() == (f"{path}: valid, 1 listener, 0 quotas, and those of the brokers\n", "")


def test_so_is_a_store_in_a_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"{VALID}principals: {{admins: [admin]}}\nstore: {{kafka: {{bootstrap_servers: 'k1:9092', topic: store}}}}\n"
    )

    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid, 1 listener, 0 quotas, and those of kafka://k1:9092/store\n"


def test_every_fault_is_a_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{VALID}shapng: paced\nburst: 5\n")

    status = main(["check", str(path)])

    assert status == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert [line.partition(": ")[0] for line in output.err.splitlines()] == [f"{path}:2", f"{path}:3"]


def test_warnings_do_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{VALID}quotas: [{{client-id: a, producer_byte_rate: 5}}]\n")

    status = main(["check", str(path)])

    assert status == 0
    output = capsys.readouterr()
    assert output.out == f"{path}: valid, 1 listener, 1 quota\n"
    assert f"{path}:2: quotas[0].producer_byte_rate: warning: " in output.err


def test_a_missing_file_is_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["check", str(tmp_path / "absent.yaml")])

    assert status == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
