"""Tests that ``check`` prints every fault, and that its exit status tells whether the file is valid."""

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.rules.model import Entity
from tests.support.pages import block
from tests.support.stores import keep

VALID = "listeners: [{name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}]\n"


QUOTAS = "quotas: [{client-id: a, producer_byte_rate: 1MB}, {ip: 10.0.0.7, connection_creation_rate: 5}]\n"
ADMINS = "principals: {admins: [admin]}\n"


def test_a_valid_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{VALID}{ADMINS}store: {{directory: quotas.d}}\n")

    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid, 1 listener, 0 quotas\n"
    assert not (tmp_path / "quotas.d").exists()


STORE = f"{ADMINS}store: {{directory: quotas.d}}\n"


WARNED = f"{VALID}quotas:\n- {{user: 'User:alice', producer_byte_rate: 1MB}}\n"
FAULTY = f"{VALID}shapng: paced\nprincipals: {{exempt: [ANONYMOUS]}}\n"


def type_in(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text.encode())))


@pytest.mark.parametrize(
    ("text", "words", "status", "found"),
    [
        (VALID, ["--strict"], 0, []),
        (WARNED, [], 0, [("warning", 3, "quotas[0].user")]),
        (WARNED, ["--strict"], 2, [("error", 3, "quotas[0].user")]),
        (FAULTY, [], 2, [("error", 2, "shapng"), ("warning", 3, "principals.exempt[0]")]),
        (FAULTY, ["--strict"], 2, [("error", 2, "shapng"), ("error", 3, "principals.exempt[0]")]),
        ("a: [", [], 2, [("error", 1, "(yaml)")]),
        (None, [], 2, [("error", None, None)]),
    ],
)
def test_all_findings_are_lines_on_stderr_and_in_the_json(
    text: str | None,
    words: list[str],
    status: int,
    found: list[tuple[str, int | None, str | None]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "c.yaml"
    if text is not None:
        path.write_text(text)

    assert main(["check", str(path), *words]) == status
    output = capsys.readouterr()
    assert (output.out == "") == (status != 0)
    assert len(output.err.splitlines()) == len(found)
    assert all(f"{path}:{line}: {key}: " in output.err for _, line, key in found if line is not None)
    assert main(["check", str(path), "--json", *words]) == status
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert output.err == ""
    assert (list(result), result["file"], result["valid"]) == (["file", "valid", "findings"], str(path), status == 0)
    if text is None:
        assert "cannot be read: No such file" in result["findings"][0]["message"]
    else:
        assert [(one["severity"], one["line"], one["key"]) for one in result["findings"]] == found


def test_faults_of_a_store_have_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, stored = tmp_path / "c.yaml", tmp_path / "quotas.d"
    path.write_text(f"{VALID}{STORE}")
    stored.write_text("a file")

    assert main(["check", str(path)]) == 2
    fault = f"{path}:3: store.directory: {stored} is not a directory; name a directory, which may be missing\n"
    assert capsys.readouterr() == ("", fault)


def test_standard_input_is_checked_with_paths_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keep(tmp_path / "quotas.d", Entity(user="alice"))
    text = f"{VALID}{STORE}admin: {{bind: 127.0.0.1:9308, quotas_token_file: quotas.token}}\n"
    type_in(text, monkeypatch)

    assert main(["check", "-"]) == 2
    assert capsys.readouterr().err.startswith("<stdin>:4: admin.quotas_token_file: quotas.token cannot be read: ")

    (tmp_path / "quotas.token").write_text("0123456789abcdef\n")
    (tmp_path / "quotas.token").chmod(0o640)
    type_in(text, monkeypatch)

    assert main(["check", "-"]) == 0
    assert capsys.readouterr() == ("<stdin>: valid, 1 listener, 0 quotas\n", "")


def test_the_page_shows_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("proxy.yaml").write_text(WARNED.replace("quotas:", "\n\n\n\nquotas:"))

    assert main(["check", "--json", "proxy.yaml"]) == 0

    assert json.loads(capsys.readouterr().out) == json.loads(
        block("reference/commands.md", "json", holding="findings").text
    )
