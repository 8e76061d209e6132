"""Tests that ``check`` prints every fault, and that its exit status tells whether the file is valid."""

import json
import socket
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.rules.model import Entity
from tests.support.pages import block
from tests.support.stores import keep

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


def test_brokers_with_more_rules_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{VALID}quotas_from: broker\n")

    assert main(["check", str(path)]) == 0
    assert capsys.readouterr() == (f"{path}: valid, 1 listener, 0 quotas, and those of the brokers\n", "")


def test_a_store_in_a_topic_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"{VALID}principals: {{admins: [admin]}}\nstore: {{kafka: {{bootstrap_servers: 'k1:9092', topic: store}}}}\n"
    )

    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid, 1 listener, 0 quotas, and those of kafka://k1:9092/store\n"


STORE = "principals: {admins: [admin]}\nstore: {directory: quotas.d}\n"


def test_the_rules_of_a_store_and_overridden_ones_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, stored = tmp_path / "c.yaml", tmp_path / "quotas.d"
    path.write_text(f"{VALID}{STORE}quotas:\n- {{user: alice, producer_byte_rate: 1MB}}\n")
    keep(stored, Entity(user="alice"), Entity(user="bob"), Entity(ip="10.0.0.7"))

    assert main(["check", str(path)]) == 0

    assert capsys.readouterr() == (
        f"{path}: valid, 1 listener, 1 quota, and 3 of {stored} (1 of them set in this file, too)\n",
        f"{path}:5: quotas[0]: warning: user alice has quotas in {stored}, too; those of the file apply\n",
    )


def test_a_missing_store_is_reported_and_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, stored = tmp_path / "c.yaml", tmp_path / "quotas.d"
    path.write_text(f"{VALID}{STORE}")

    assert main(["check", str(path)]) == 0

    message = f"{path}: valid, 1 listener, 0 quotas, and those of {stored}, which does not exist yet\n"
    assert capsys.readouterr() == (message, "")
    assert not stored.exists()


def test_faults_of_a_store_have_the_line_that_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, stored = tmp_path / "c.yaml", tmp_path / "quotas.d"
    path.write_text(f"{VALID}{STORE}")
    stored.write_text("a file")

    assert main(["check", str(path)]) == 2

    message = f"{path}:3: store.directory: {stored} is not a directory; name a directory, which may be missing\n"
    assert capsys.readouterr() == ("", message)


def test_the_last_known_rules_of_a_topic_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, stored = tmp_path / "c.yaml", tmp_path / "d" / "store"
    kafka = "kafka: {bootstrap_servers: 'k1:9092', topic: store}"
    path.write_text(f"{VALID}principals: {{admins: [admin]}}\nstore: {{directory: d, {kafka}}}\n")
    keep(stored, Entity(user="alice"))

    assert main(["check", str(path)]) == 0

    message = f"1 listener, 0 quotas, and those of kafka://k1:9092/store; last known: 1 of {stored}\n"
    assert capsys.readouterr() == (f"{path}: valid, {message}", "")


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


WARNED = f"{VALID}quotas:\n- {{user: 'User:alice', producer_byte_rate: 1MB}}\n"
FAULTY = f"{VALID}shapng: paced\nburst: 100000s\n"


def type_in(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text.encode())))


def test_strict_makes_warnings_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(WARNED)

    status = main(["check", str(path), "--strict"])

    assert status == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"{path}:3: quotas[0].user: no user has the name 'User:alice'")


def test_a_file_without_warnings_is_valid_with_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(VALID)

    assert main(["check", "--strict", str(path)]) == 0
    assert capsys.readouterr() == (f"{path}: valid, 1 listener, 0 quotas\n", "")


@pytest.mark.parametrize(
    ("text", "words", "status", "found"),
    [
        (VALID, [], 0, []),
        (WARNED, [], 0, [("warning", 3, "quotas[0].user")]),
        (WARNED, ["--strict"], 2, [("error", 3, "quotas[0].user")]),
        (FAULTY, [], 2, [("error", 2, "shapng"), ("warning", 3, "burst")]),
        (FAULTY, ["--strict"], 2, [("error", 2, "shapng"), ("error", 3, "burst")]),
        ("a: [", [], 2, [("error", 1, "(yaml)")]),
    ],
)
def test_json_has_all_findings(
    text: str,
    words: list[str],
    status: int,
    found: list[tuple[str, int, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)

    assert main(["check", str(path), "--json", *words]) == status

    output = capsys.readouterr()
    result = json.loads(output.out)
    assert output.err == ""
    assert list(result) == ["file", "valid", "findings"]
    assert (result["file"], result["valid"]) == (str(path), status == 0)
    assert [(one["severity"], one["line"], one["key"]) for one in result["findings"]] == found
    for one in result["findings"]:
        assert list(one) == ["severity", "file", "line", "key", "message"]
        assert one["file"] == str(path)
        assert one["message"]


def test_json_has_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", str(tmp_path / "absent.yaml")]) == 2

    result = json.loads(capsys.readouterr().out)
    assert not result["valid"]
    assert "cannot be read" in result["findings"][0]["message"]


def test_json_has_faults_of_a_store_which_fail_with_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, stored = tmp_path / "c.yaml", tmp_path / "quotas.d"
    path.write_text(f"{VALID}{STORE}quotas:\n- {{user: alice, producer_byte_rate: 1MB}}\n")
    keep(stored, Entity(user="alice"))

    assert main(["check", "--json", str(path)]) == 0
    (finding,) = json.loads(capsys.readouterr().out)["findings"]

    message = f"user alice has quotas in {stored}, too; those of the file apply"
    assert finding == {"severity": "warning", "file": str(path), "line": 5, "key": "quotas[0]", "message": message}
    assert main(["check", "--strict", str(path)]) == 2


def test_standard_input_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keep(tmp_path / "quotas.d", Entity(user="alice"))
    type_in(f"{VALID}{STORE}", monkeypatch)

    assert main(["check", "-"]) == 0
    assert capsys.readouterr() == ("<stdin>: valid, 1 listener, 0 quotas, and 1 of quotas.d\n", "")


def test_relative_paths_in_standard_input_start_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"{VALID}{STORE}admin: {{bind: 127.0.0.1:9308, quotas_token_file: quotas.token}}\n"
    type_in(text, monkeypatch)

    assert main(["check", "-"]) == 2
    assert capsys.readouterr().err.startswith("<stdin>:4: admin.quotas_token_file: quotas.token cannot be read: ")

    (tmp_path / "quotas.token").write_text("0123456789abcdef\n")
    (tmp_path / "quotas.token").chmod(0o640)
    type_in(text, monkeypatch)

    assert main(["check", "-"]) == 0
    assert capsys.readouterr().err == ""


def test_faults_of_standard_input_have_their_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in(FAULTY, monkeypatch)

    assert main(["check", "-"]) == 2

    output = capsys.readouterr()
    assert output.out == ""
    assert [line.partition(": ")[0] for line in output.err.splitlines()] == ["<stdin>:2", "<stdin>:3"]


def test_the_page_shows_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("proxy.yaml").write_text(WARNED.replace("quotas:", "\n\n\n\nquotas:"))

    assert main(["check", "--json", "proxy.yaml"]) == 0

    assert json.loads(capsys.readouterr().out) == json.loads(
        block("reference/commands.md", "json", holding="findings").text
    )


def test_a_broker_named_twice_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, second = socket.gethostname(), f"{{name: two, bind: 127.0.0.1:9093, upstream: {socket.gethostname()}:19092}}"
    host = socket.gethostbyname(name)
    path = tmp_path / "c.yaml"
    path.write_text(f"listeners:\n- {{name: one, bind: 127.0.0.1:9092, upstream: '{host}:19092'}}\n- {second}\n")

    assert main(["check", str(path)]) == 0

    warnings = [line for line in capsys.readouterr().err.splitlines() if "share its quotas" in line]
    assert len(warnings) == 1
    assert f"{name}:19092 may be the broker at {host}:19092 in line 2" in warnings[0]
