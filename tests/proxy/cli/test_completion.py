"""Tests the completion scripts in real shells: bash, zsh and fish."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.__main__ import main
from tests.support.shells import PROGRAM, Shell

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


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    return capsys.readouterr().out


def completed(source: Path, words: str) -> set[str]:
    """Return what bash offers for the last of the words."""
    line = [PROGRAM, *words.split(" ")]
    program = (
        f"source {source}; COMP_WORDS=({shlex.join(line)}); COMP_CWORD={len(line) - 1}; "
        f"$(complete -p {PROGRAM} | sed 's/.*-F //; s/ .*//'); printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    ended = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


def test_bash_offers_every_command_and_every_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "script"
    source.write_text(script("bash", capsys))
    commands = set(re.findall(r"^    ([a-z]+)(?: |$)", help_of("", capsys), re.MULTILINE))
    actions = set(re.findall(r"^    ([a-z]+)(?: |$)", help_of("quotas", capsys), re.MULTILINE))

    assert {"run", "rebalance", "completion"} <= commands
    assert completed(source, "") == commands
    assert completed(source, "quotas ") == actions
    for words in [*sorted(commands), *(f"quotas {action}" for action in sorted(actions))]:
        shown = help_of(words, capsys).partition("\nexample")[0]
        options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE))
        assert completed(source, f"{words} --") == options, words
