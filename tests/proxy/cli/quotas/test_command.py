"""Tests ``kafka-quota-proxy quotas`` at the admin port of a proxy: output, changes and exit status."""

import asyncio
import json
import shlex
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import QuotaRule, Store
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.cli.quotas import command as quotas
from kafka_quota_proxy.proxy.cli.quotas.rules_file import as_yaml
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from kafka_quota_proxy.proxy.rules.sqlite import rule_database
from tests.support.quota_page import TOKEN, Page, page
from tests.support.stub_broker import on_uvloop

ALICE = "--user alice --default-client-id"


class Shell:
    """Runs ``kafka-quota-proxy quotas`` against the admin port of a proxy."""

    def __init__(self, served: Page, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.page = served
        self.url = f"http://127.0.0.1:{served.port}"
        self.path = path
        self._capsys = capsys
        self.errors = ""

    async def __call__(self, line: str, *, status: int = 0, token: bool = True) -> str:
        """Run a command line, check its exit status, and return its output."""
        given = shlex.split(line)
        words = ["quotas", *given, "--url", self.url]
        if token and given[0] in ("alter", "delete", "import"):
            words += ["--token-file", str(self.path / "token")]
        found = await asyncio.to_thread(main, words)
        out, self.errors = self._capsys.readouterr()
        assert found == status, (out, self.errors)
        return out


@asynccontextmanager
async def shell(path: Path, capsys: pytest.CaptureFixture[str], store: Store | None = None) -> AsyncIterator[Shell]:
    async with page(path, store=store) as served:
        yield Shell(served, path, capsys)


@on_uvloop
async def test_a_quota_is_set_shown_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with shell(tmp_path, capsys) as run:
        assert await run(f"alter {ALICE} --set producer_byte_rate=10MiB --set request_percentage=12.5") == (
            "+ user alice, client-id <default>: producer_byte_rate 10MiB\n"
            "+ user alice, client-id <default>: request_percentage 12.5\n"
            "1 entity changed\n"
        )
        assert await run(f"alter {ALICE} --set producer_byte_rate=20MiB --unset request_percentage") == (
            "~ user alice, client-id <default>: producer_byte_rate 10MiB -> 20MiB\n"
            "- user alice, client-id <default>: request_percentage 12.5\n"
            "1 entity changed\n"
        )
        assert await run(f"alter {ALICE} --set producer_byte_rate=20971520") == "nothing to change\n"
        assert await run("describe") == (
            "user filed: producer_byte_rate=7 connections=3 (p.yaml:7)\n"
            "ip <default>: connection_creation_rate=5 (p.yaml:9)\n"
            f"user alice, client-id <default>: producer_byte_rate=20MiB ({tmp_path}/d)\n"
        )
        (rule,) = json.loads(await run("describe --user alice --json"))["rules"]
        assert rule["entity"] == {"user": "alice", "client-id": None}
        assert await run(f"delete {ALICE} --dry-run") == (
            "- user alice, client-id <default>: producer_byte_rate 20MiB\ndry run: 1 entity would be changed\n"
        )
        assert "1 entity changed" in await run(f"delete {ALICE}")
        assert await run(f"delete {ALICE}") == "nothing to change\n"
        assert await run("describe --user alice") == ""


@on_uvloop
async def test_an_overridden_rule_is_shown_and_kept_by_imports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as run:
        manager, file = run.page.server.quota_manager, tmp_path / "q"
        filed = QuotaRule(user="alice", consumer_byte_rate=9.0, source="p.yaml:8")
        manager.follow_file(replace(run.page.server.config, quotas=(), ip_quotas=()))
        await run("alter --user alice --set producer_byte_rate=5")
        manager.follow_file(replace(run.page.server.config, quotas=(filed,), ip_quotas=()))
        await run("alter --user bob --set producer_byte_rate=6")
        listed = (
            "user alice: consumer_byte_rate=9 (p.yaml:8)\n"
            f"user alice: producer_byte_rate=5 ({tmp_path}/d); now: nothing, for p.yaml:8 sets quotas of the same\n"
        )

        assert await run("describe --user alice") == listed
        assert '"shadowed_by": "p.yaml:8"' in await run("describe --json")
        file.write_text(await run("export"))
        assert file.read_text() == 'quotas:\n  - {user: "bob", producer_byte_rate: 6}\n'
        file.write_text("quotas: []")
        assert await run(f"import {file} --replace") == "- user bob: producer_byte_rate 6\n1 entity changed\n"
        assert await run("describe") == listed
        await run("alter --user alice --set producer_byte_rate=6", status=1)
        assert "are set in p.yaml:8; change them there" in run.errors


@on_uvloop
async def test_terms_are_set_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with shell(tmp_path, capsys) as run:
        await run("alter --client-id etl --set producer_byte_rate=1MiB --set expires=2999-01-01T00:00:00Z")
        schedule = "schedule={days: [mon-fri], hours: 08:00-18:00, time_zone: Europe/Berlin}"
        await run(f"alter --client-id etl --set '{schedule}' --set enforcement=observe")
        assert await run("alter --client-id etl --unset expires") == (
            "- client-id etl: expires 2999-01-01T00:00:00Z\n1 entity changed\n"
        )
        now = (await run("describe --client-id etl")).partition("; now: ")[2]
        assert "its schedule (mon-fri 08:00-18:00 Europe/Berlin)" in now
        (rule,) = json.loads(await run("describe --client-id etl --json"))["rules"]

        assert "its schedule" in rule["now"]["why"]
        assert rule["terms"]["enforcement"] == "observe"
        assert rule["terms"]["schedule"]["time_zone"] == "Europe/Berlin"
        assert "expires" not in rule["terms"]
        assert rule["limits"] == {"producer_byte_rate": 1048576.0}
        await run("alter --client-id etl --set expires=2020-01-01T00:00:00Z")
        assert "; now: nothing, expired at 2020-01-01T00:00:00Z" in await run("describe --client-id etl")


@on_uvloop
async def test_an_export_imports_without_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "q"
    async with shell(tmp_path, capsys) as run:
        await run("alter --default-user --client-id 'a \"b\": #c' --set producer_byte_rate=1234567")
        await run("alter --ip 10.0.0.7 --set connection_creation_rate=5")
        await run("alter --user no --set consumer_byte_rate=1MB --set expires=2999-01-01T00:00:00Z")
        file.write_text(await run("export"))
        assert "filed" not in file.read_text()
        assert await run(f"import {file} --dry-run --replace") == "nothing to change\n"
        assert await run(f"import {file} --replace") == "nothing to change\n"
        assert json.loads(await run(f"import {file} --json")) == {"dry_run": False, "results": []}
        listeners = "listeners: [{name: a, bind: '127.0.0.1:1', upstream: '127.0.0.1:2'}]\n"
        config = load_bytes((listeners + await run("export")).encode(), file="f").config
        assert (len(config.quotas), len(config.ip_quotas)) == (2, 1)

        for kind in ("--default-user --client-id 'a \"b\": #c'", "--ip 10.0.0.7", "--user no"):
            await run(f"delete {kind}")
        assert "3 entities changed" in await run(f"import {file}")
        exported = await run("export")
        assert sorted(exported.splitlines()) == sorted(file.read_text().splitlines())

        await run("alter --user '<default>' --set producer_byte_rate=1MiB")
        assert await run("export", status=1) == exported
        assert run.errors.startswith('kafka-quota-proxy quotas: left out: user "<default>": ')
        # In a request, each of these characters takes six bytes. Long requests are split.
        long, limits = "\u6f22" * 10_000, StoredRule(limits={"producer_byte_rate": 5.0})
        file.write_text("\n".join(as_yaml({Entity(f"{n}{long}", f"{long}{n}"): limits for n in range(9)})))
        assert "9 entities changed" in await run(f"import {file}")


@on_uvloop
async def test_an_import_shows_differences_and_refuses_rules_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "q.yaml"
    async with shell(tmp_path, capsys) as run:
        await run("alter --user alice --set producer_byte_rate=5MiB --set consumer_byte_rate=1MiB")
        await run("alter --user old --set producer_byte_rate=1MiB")
        file.write_text(
            "quotas:\n- {user: alice, producer_byte_rate: 10MiB}\n- {user: new, producer_byte_rate: 1MiB}\n"
            "- {user: filed, producer_byte_rate: 8}\n"
        )
        would = await run(f"import {file} --dry-run", status=1)
        assert would == (
            "~ user alice: producer_byte_rate 5MiB -> 10MiB\n"
            "- user alice: consumer_byte_rate 1MiB\n"
            "+ user new: producer_byte_rate 1MiB\n"
            "~ user filed: producer_byte_rate 7 -> 8\n"
            "- user filed: connections 3\n"
            "dry run: 2 entities would be changed, 1 refused\n"
        )
        assert run.errors == "user filed: The quotas of user filed are set in p.yaml:7; change them there\n"
        assert len(json.loads(await run("describe --user new --json"))["rules"]) == 0

        answer = json.loads(await run(f"import {file} --dry-run --json", status=1))
        assert [one["error"] is None for one in answer["results"]] == [True, True, False]
        assert "2 entities changed, 1 refused" in await run(f"import {file}", status=1)
        assert await run("describe --user old") != ""
        assert "- user old: producer_byte_rate 1MiB\n" in await run(f"import {file} --replace", status=1)
        assert await run("describe --user old") == ""


@on_uvloop
async def test_a_faulty_file_is_reported_before_any_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "q.yaml"
    file.write_text("quotas:\n- {user: a, producer_byte_rate: lots}\n")
    async with shell(tmp_path, capsys) as run:
        await run(f"import {file}", status=2)
        assert run.errors.startswith(f"{file}:2: quotas[0].producer_byte_rate: 'lots' is not a byte rate")
        await run(f"import {file}.none", status=1)
        assert "No such file" in run.errors


@on_uvloop
async def test_an_import_waits_for_the_limit_on_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    file = tmp_path / "q.yaml"
    rules = "".join(f"- {{user: u{number}, producer_byte_rate: 1MiB}}\n" for number in range(6))
    file.write_text(f"quotas:\n{rules}")
    store = Store(directory=str(tmp_path / "d"), changes_per_second=0.25)
    async with shell(tmp_path, capsys, store) as run:
        limit = run.page.server.quota_manager.change_log
        assert limit is not None
        passed = iter([3_000, 0, 0, 0])

        def waited(seconds: float) -> None:
            waits.append(seconds)
            monkeypatch.setattr(limit, "begin", lambda _: next(passed))

        # Only the command's sleep is replaced. Other threads still sleep.
        monkeypatch.setattr(quotas, "time", SimpleNamespace(sleep=waited))
        monkeypatch.setattr(quotas, "_BATCH", 4)
        monkeypatch.setattr(limit, "begin", lambda _: 1_500)
        assert "6 entities changed" in await run(f"import {file}")

        assert waits == [2, 3]
        assert "waiting for 2 s" in run.errors
        monkeypatch.setattr(limit, "begin", lambda _: 1_500)
        await run("delete --user u1", status=1)
        assert "Too many quotas are changed (store.changes_per_second); try again in 1500 ms" in run.errors


@on_uvloop
async def test_an_unknown_outcome_is_not_reported_as_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    file = tmp_path / "q.yaml"
    file.write_text("quotas:\n- {user: alice, producer_byte_rate: 5}\n- {user: filed, producer_byte_rate: 8}\n")
    async with shell(tmp_path, capsys) as run:
        with monkeypatch.context() as patched:
            patched.setattr(rule_database, "_write", fails)
            output = await run(f"import {file}", status=1)
        assert output.endswith("\n0 entities changed, 1 refused, 1 may hold; run kafka-quota-proxy quotas describe\n")
        assert "user alice: may hold: " in run.errors
        assert "user filed: The quotas of user filed are set in p.yaml:7" in run.errors

        await run("alter --user alice --set producer_byte_rate=4")
        with monkeypatch.context() as patched:
            patched.setattr(rule_database, "_write", fails)
            answer = await run("alter --user alice --set producer_byte_rate=5 --json", status=1)
        (result,) = json.loads(answer)["results"]
        assert (result["error"]["name"], result["error"]["may_hold"]) == ("KAFKA_STORAGE_ERROR", True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alter --set producer_byte_rate=1", "no entity: give --user"),
        ("alter --user a", "nothing to change: give --set KEY=VALUE or --unset KEY"),
        ("alter --user a --set producer_byte_rate", "must be KEY=VALUE"),
        ("alter --user a --set producer_byte_rate=10MiBs", "--set producer_byte_rate: 'MiBs' is not a unit"),
        ("alter --user a --set request_rate=1", "'request_rate' is not a key of user a; the keys are"),
        ("alter --user a --set expires=soon", "--set expires: 'soon' is not an instant"),
        (
            "alter --user a --set 'schedule={days: [mon-fri], days: [sat-sun], time_zone: UTC}'",
            "--set schedule:1: days: is given twice",
        ),
        ("alter --user a --set producer_byte_rate=1 --unset producer_byte_rate", "producer_byte_rate is given twice"),
        ("delete --ip host.example", "--ip: 'host.example' is not an IP address; write one such as 10.0.0.7"),
        ("alter --user a --ip 10.0.0.7 --unset producer_byte_rate", "--ip: the quotas of an address have no user"),
    ],
)
def test_wrong_usage_is_reported_before_any_request(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quotas", *shlex.split(line), "--url", "http://127.0.0.1:1"]) == 2
    assert said in capsys.readouterr().err


def test_changes_need_a_token_and_a_proxy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, token = ["quotas", "delete", "--user", "a", "--url", "http://127.0.0.1:1"], tmp_path / "token"
    monkeypatch.delenv("KAFKA_QUOTA_PROXY_TOKEN_FILE", raising=False)
    assert main(delete) == 2
    assert "give --token-file FILE (or $KAFKA_QUOTA_PROXY_TOKEN_FILE)" in capsys.readouterr().err
    token.write_text(TOKEN[1:])
    assert main([*delete, "--token-file", str(token)]) == 2
    assert "a token has 16 to 1024" in capsys.readouterr().err
    token.write_text(TOKEN)
    monkeypatch.setenv("KAFKA_QUOTA_PROXY_TOKEN_FILE", str(token))
    assert main(delete) == 1
    assert "is it the address of admin.bind, and does the proxy run?" in capsys.readouterr().err
    for url in ("https://127.0.0.1:1", "127.0.0.1:9308", "http://[::1", "http://h:x"):
        assert main(["quotas", "describe", "--url", url]) == 1
        assert f"--url {url}: " in capsys.readouterr().err
