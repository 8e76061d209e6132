"""Tests the completion scripts in real shells: bash, zsh and fish."""

from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.__main__ import main
from tests.support.shells import Shell

_TYPED = {
    "che\t": "check",
    "check --str\t": "check --strict",
    "check pro\t": "check proxy.yaml",
    "run --h\t": "run --help",
    "demo --shaping sam\t": "demo --shaping sampled",
    "quotas al\t--dry\t": "quotas alter --dry-run",
    "quotas import --token-file pro\t": "quotas import --token-file proxy.yaml",
    "completion z\t": "completion zsh",
}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["bash", *(pytest.param(name, marks=pytest.mark.kafka) for name in ("zsh", "fish"))])
def test_the_tab_key_completes_commands_options_choices_and_files(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "proxy.yaml").touch()

    with Shell(name, script(name, capsys), tmp_path) as shell:
        assert shell.run("--version") == "--version"  # the shell has started
        run = {keys: shell.run(keys) for keys in _TYPED}

    assert run == _TYPED
