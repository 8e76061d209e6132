"""Tests files with tokens, and their faults."""

from pathlib import Path

import pytest

from kafka_quota_proxy.config.document import error, parse
from kafka_quota_proxy.config.errors import Severity, TokenFileError
from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.schema import FILE
from kafka_quota_proxy.config.sections import SectionReader
from kafka_quota_proxy.config.token_file import check_token_file, read_token

TOKEN = "0123456789abcdef"  # noqa: S105 - not a secret
SETTINGS = "admin:\n  bind: 127.0.0.1:0\n  quotas_token_file: token\n"


def written(directory: Path, content: bytes, mode: int = 0o600) -> Path:
    path = directory / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("content", [TOKEN, f"  {TOKEN} \r\nand what it is for\n"])
def test_a_token_is_the_first_line(tmp_path: Path, content: str) -> None:
    assert read_token(written(tmp_path, content.encode())) == TOKEN


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has a first line of 0 bytes; a token has 16 to 1024"),
        (b"x" * 5_000, "has a first line of 1026 bytes"),
        (f"{TOKEN} {TOKEN}".encode(), "with more than letters, digits and signs"),
        (bytes(16), "with more than letters, digits and signs"),
    ],
)
def test_an_invalid_token_is_refused_with_a_remedy(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(TokenFileError, match=said) as caught:
        read_token(written(tmp_path, content))

    assert str(caught.value).startswith(str(tmp_path))
    assert "openssl rand -hex 32" in str(caught.value)


def test_a_missing_or_world_readable_token_file_is_reported(tmp_path: Path) -> None:
    document = parse(SETTINGS, file=str(tmp_path / "f.yaml"))
    top = SectionReader(document, FILE).read()

    (missing,) = check_token_file(top, document)
    path = written(tmp_path, TOKEN.encode(), 0o644)
    (open_to_all,) = check_token_file(top, document)
    path.chmod(0o640)

    assert list(check_token_file(top, document)) == []
    assert missing == error(("admin", "quotas_token_file"), f"{path} cannot be read: No such file or directory")
    assert open_to_all.severity is Severity.WARNING


def test_a_configuration_with_a_token_file_is_loaded(tmp_path: Path) -> None:
    listeners = "listeners: [{name: a, bind: '127.0.0.1:9092', upstream: '127.0.0.1:19092'}]\n"
    written(tmp_path, TOKEN.encode(), 0o644)
    (tmp_path / "f.yaml").write_text(f"{listeners}{SETTINGS}store: {{directory: d}}\n")

    loaded = load(tmp_path / "f.yaml")

    assert loaded.config.admin is not None
    assert loaded.config.admin.quotas_token_file == str(tmp_path / "token")
    assert ["can be read by every user" in warning.message for warning in loaded.warnings] == [True]
