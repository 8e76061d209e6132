"""The commands of docs/how-to/set-quotas.md print what the page shows."""

import asyncio
import json
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import load
from tests.support.console import Console
from tests.support.pages import Block, block
from tests.support.quota_page import TOKEN, page
from tests.support.stub_broker import on_uvloop

PAGE = "how-to/set-quotas.md"


def play(console: Console, shown: Block) -> None:
    """Run each command of a block, and compare its output with the block."""
    assert shown.steps
    for line, output in shown.steps:
        assert console.run(line).rstrip("\n") == output.rstrip("\n"), line


def test_example_file_is_checked_and_explained_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quotas.yaml").write_text(block(PAGE, "yaml", holding="user: alice, client-id: <default>, producer").text)

    play(Console(monkeypatch), block(PAGE, "console", holding="explain quotas.yaml"))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with the configuration and the token."""
    monkeypatch.chdir(tmp_path)
    Path("proxy.yaml").write_text(block(PAGE, "yaml", holding="quotas_token_file").text)
    Path("quotas.token").write_text(f"{TOKEN}\n")
    return tmp_path


def test_example_commands_and_http_requests_answer_as_shown(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @on_uvloop
    async def plays() -> None:
        async with page(directory, config=load(Path("proxy.yaml")).config) as served:
            console = Console(monkeypatch, served.port)
            for holding in ("quotas alter", "curl"):
                await asyncio.to_thread(play, console, block(PAGE, "console", holding=holding))

    plays()

    shown = json.loads(block(PAGE, "json", holding='"result":"applied"').text)
    written = json.loads(Path("quotas-audit.jsonl").read_text().splitlines()[0])
    assert list(written) == list(shown)
    assert written == shown | {"time": written["time"]}
