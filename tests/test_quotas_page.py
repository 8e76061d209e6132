"""docs/quotas.md shows one quota that is set in several ways: each is played, and says what the page says."""

import asyncio
import json
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import load
from tests.support.console import Console
from tests.support.pages import Block, block
from tests.support.quota_page import TOKEN, page
from tests.support.stub_broker import on_uvloop

PAGE = "quotas.md"


def play(console: Console, shown: Block) -> None:
    """Type each line of a block, and see that what is written is what the block shows."""
    assert shown.steps
    for line, told in shown.steps:
        assert console.run(line).rstrip("\n") == told.rstrip("\n"), line


def test_what_is_set_in_the_file_is_checked_and_explained_as_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quotas.yaml").write_text(block(PAGE, "yaml", holding="user: alice, client-id: <default>, producer").text)

    play(Console(monkeypatch), block(PAGE, "console", holding="explain quotas.yaml"))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the file and the token of who uses the command line."""
    monkeypatch.chdir(tmp_path)
    Path("proxy.yaml").write_text(block(PAGE, "yaml", holding="quotas_token_file").text)
    Path("quotas.token").write_text(f"{TOKEN}\n")
    return tmp_path


def test_what_is_set_with_the_command_line_and_over_http_is_answered_and_written_down_as_is_shown(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
