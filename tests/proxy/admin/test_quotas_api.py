"""Tests ``/quotas`` of the admin port: lists and changes of rules, their authorization, and errors."""

import asyncio
import io
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kafka_quota_proxy.config.model import (
    Address,
    AdminClient,
    IpRule,
    ProxyConfig,
    QuotaRule,
    QuotasFrom,
    Store,
)
from kafka_quota_proxy.config.quota_record import Setting
from kafka_quota_proxy.proxy.admin.quotas_api import QuotasApi
from kafka_quota_proxy.proxy.admin.requests import RefusedError
from kafka_quota_proxy.proxy.rules.codec import MAX_BODY_BYTES, MAX_CHANGES
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.quota_page import FILED, LISTENER, TOKEN, P, Page, page
from tests.support.stub_broker import eventually, on_uvloop

SET_ALICE: Final = {"changes": [{"entity": {"user": "alice"}, "limits": {P: 1_000}}]}


@on_uvloop
async def test_rules_are_listed_with_their_source(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        done = await one.post(SET_ALICE)
        answer = await one.get()

        assert done.status == answer.status == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json == {
            "rules": [
                {
                    "entity": {"user": "filed"},
                    "limits": {P: 7.0, "connections": 3.0},
                    "source": "p.yaml:7",
                    "can_change": False,
                },
                {
                    "entity": {"ip": None},
                    "limits": {"connection_creation_rate": 5.0},
                    "source": "p.yaml:9",
                    "can_change": False,
                },
                {
                    "entity": {"user": "alice"},
                    "limits": {P: 1_000.0},
                    "source": str(tmp_path / "d"),
                    "can_change": True,
                },
            ]
        }
        assert [rule["entity"] for rule in (await one.get("?user=alice")).json["rules"]] == [{"user": "alice"}]
        assert [rule["entity"] for rule in (await one.get("?default=ip")).json["rules"]] == [{"ip": None}]
        assert (await one.get("?user=absent")).json == {"rules": []}
        for query in ("?users=alice", "?user=a&user=b", "?default=all", "?user=a&ip=b&client-id=c&x=d", "?x"):
            assert (await one.get(query)).status == 400


async def test_followed_rules_are_listed_as_they_hold() -> None:
    address = IpRule(ip="10.0.0.7", connection_creation_rate=5.0, source="p.yaml:9")
    topic = QuotasFrom(topic="t", client=AdminClient(bootstrap_servers=(Address(host="b", port=9092),)))
    server = Server(ProxyConfig(listeners=(LISTENER,), ip_quotas=(address,), quotas_from=topic))
    source = server.quota_manager.source
    assert isinstance(source, TopicSource)
    source.state.begin()
    source.state.take([TopicRecord(7, Setting(user="bob", key=P, value=5.0))], next_offset=8)
    server.quota_manager.rules.change([one.change for one in source.state.changes()], now_ms=0)
    quota_page = QuotasApi(asyncio.get_running_loop(), server, None)

    listed = json.loads(b"".join(quota_page.get({"QUERY_STRING": ""}).body))

    rate, bob = {"connection_creation_rate": 5.0}, {"user": "bob"}
    assert listed["rules"] == [
        {"entity": {"ip": "10.0.0.7"}, "limits": rate, "source": "p.yaml:9", "can_change": False},
        {"entity": bob, "limits": {P: 5.0}, "source": "kafka://b:9092/t", "can_change": False},
    ]


@on_uvloop
async def test_a_rule_with_terms_is_listed_with_its_current_state(tmp_path: Path) -> None:
    alice, expires = {"user": "alice"}, {"expires": "2999-01-01T00:00:00Z"}
    async with page(tmp_path) as one:
        await one.post({"changes": [{"entity": alice, "limits": {P: 1_000}, "terms": expires}]})
        (listed,) = (await one.get("?user=alice")).json["rules"]
        later = QuotasApi(asyncio.get_running_loop(), one.server, None, wall_ms=lambda: 32_472_144_000_000)
        (then,) = json.loads(b"".join(later.get({"QUERY_STRING": "user=alice"}).body))["rules"]

    assert listed["now"] == {"limits": {P: 1_000.0}, "why": "expires at 2999-01-01T00:00:00Z"}
    assert then["now"] == {"limits": None, "why": "expired at 2999-01-01T00:00:00Z"}
    assert (listed["limits"], listed["terms"]) == (then["limits"], then["terms"]) == ({P: 1_000.0}, expires)


@on_uvloop
async def test_a_change_is_in_force_and_listed_when_it_is_answered(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        done = await one.post(SET_ALICE)
        changed = await one.post({"changes": [{"entity": {"user": "alice"}, "limits": {P: 2_000}}]})
        (rule,) = [rule for rule in one.server.quota_manager.rules.quotas if rule.user == "alice"]
        gone = await one.post({"changes": [{"entity": {"user": "alice"}, "limits": None}]})

    alice, none = {"user": "alice"}, None
    assert done.json["results"] == [{"entity": alice, "old": none, "new": {"limits": {P: 1_000.0}}, "error": none}]
    assert changed.json["results"][0]["old"] == {"limits": {P: 1_000.0}}
    assert rule.limits.get("producer_byte_rate") == 2_000
    assert gone.json["results"] == [{"entity": alice, "old": {"limits": {P: 2_000.0}}, "new": none, "error": none}]


@on_uvloop
async def test_a_dry_run_shows_the_result_and_changes_nothing(tmp_path: Path) -> None:
    limits = {"changes": [SET_ALICE["changes"][0], {"entity": {"user": "filed"}, "limits": {P: 1}}], "dry_run": True}
    async with page(tmp_path) as one:
        answer = await one.post(limits)
        listed = (await one.get("?user=alice")).json

    alice, filed = answer.json["results"]
    assert alice["new"] == {"limits": {P: 1_000.0}}
    assert filed["error"] == {
        "code": 44,
        "name": "POLICY_VIOLATION",
        "message": "The quotas of user filed are set in p.yaml:7; change them there",
    }
    assert filed["new"] == filed["old"]
    assert listed == {"rules": []}


HIDDEN: Final = {
    "entity": {"user": "alice"},
    "limits": {P: 1_000.0},
    "can_change": False,
    "shadowed_by": "p.yaml:8",
    "now": {"limits": None, "why": "for p.yaml:8 sets quotas of the same"},
}


def filed_too(one: Page) -> None:
    """Load a configuration file with a rule for alice, which hides the stored rule."""
    alice = QuotaRule(user="alice", consumer_byte_rate=9.0, producer_byte_rate=8.0, source="p.yaml:8")
    one.server.quota_manager.follow_file(replace(one.server.config, quotas=(FILED, alice)))


@on_uvloop
async def test_a_rule_hidden_by_the_file_is_listed_and_cannot_be_changed(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        await one.post(SET_ALICE)
        filed_too(one)
        of_file, hidden = (await one.get("?user=alice")).json["rules"]
        assert of_file["source"] == "p.yaml:8"
        assert hidden == HIDDEN | {"source": str(tmp_path / "d")}

        removal = {"changes": [{"entity": {"user": "alice"}, "limits": None}]}
        for change in (SET_ALICE, removal):
            (refused,) = (await one.post(change)).json["results"]
            assert refused["error"]["name"] == "POLICY_VIOLATION"
        assert refused["error"]["message"] == "The quotas of user alice are set in p.yaml:8; change them there"


@on_uvloop
async def test_terms_come_with_limits_and_alone(tmp_path: Path) -> None:
    alice, expires = {"user": "alice"}, {"expires": "2999-01-01T00:00:00Z"}
    async with page(tmp_path) as one:
        await one.post({"changes": [{"entity": alice, "limits": {P: 1_000}, "terms": expires}]})
        kept = await one.post({"changes": [{"entity": alice, "limits": {P: 2_000}}]})
        same = await one.post({"changes": [{"entity": alice, "terms": {}}]})
        more = await one.post({"changes": [{"entity": alice, "terms": {"enforcement": "observe"}}]})
        less = await one.post({"changes": [{"entity": alice, "terms": {"expires": None}}]})
        none = await one.post({"changes": [{"entity": alice, "terms": None}]})
        refused = await one.post({"changes": [{"entity": {"user": "bob"}, "terms": expires}]})

    paced = {"limits": {P: 2_000.0}, "terms": expires}
    assert kept.json["results"][0]["new"] == same.json["results"][0]["new"] == paced
    assert more.json["results"][0]["new"]["terms"] == {"enforcement": "observe"} | expires
    assert less.json["results"][0]["new"]["terms"] == {"enforcement": "observe"}
    assert none.json["results"][0]["new"] == {"limits": {P: 2_000.0}}
    assert (
        refused.json["results"][0]["error"]["message"] == "user bob has no limit that terms could apply to; set a limit"
    )


@on_uvloop
async def test_a_change_without_a_token_is_refused_with_a_hint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with page(tmp_path) as one:
        for token in (None, "", TOKEN[:-1], f"{TOKEN}x", "é"):
            answer = await one.post(SET_ALICE, token=token)
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert b"send: Authorization: Bearer TOKEN" in answer.body
        assert caplog.messages.count("refused a change of quotas: 127.0.0.1 sent no token") == 1
        assert "a wrong token" not in caplog.text  # the line comes only after a minute
        large = await one.post(b"x" * 500_000, token="wrong")  # noqa: S106 - it is
        assert large.status == 401
        (tmp_path / "token").write_text("another-token-of-a-test\n")
        assert (await one.post(SET_ALICE)).status == 401
        (tmp_path / "token").write_text("short")
        answer = await one.post(SET_ALICE, token="short")  # noqa: S106 - no secret
        assert answer.status == 403
        assert str(tmp_path).encode() not in answer.body
        assert (await one.get("?user=alice")).json == {"rules": []}
    async with page(tmp_path, token=False) as none:
        answer = await none.post(SET_ALICE)
        assert answer.status == 403
        assert b"admin.quotas_token_file" in answer.body


@on_uvloop
async def test_sizes_and_counts_have_bounds(tmp_path: Path) -> None:
    change = {"entity": {"user": "a"}, "limits": {P: 1}}
    async with page(tmp_path) as one:
        assert (await one.post(b"[" * 1_000_000)).status == 400
        assert (await one.post(b" " * (MAX_BODY_BYTES + 1))).status == 413
        many = await one.post({"changes": [change] * (MAX_CHANGES + 1)})
        assert (many.status, many.body) == (400, b"changes: has 10001 elements; at most 10000 are allowed\n")
        for length in ("-1", "1e3", "", "٣", "9" * 30):
            assert (await asyncio.to_thread(_raw, one.port, length)) in (411, 413)


def _raw(port: int, length: str) -> int:
    head = f"POST /quotas HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
        return int(client.makefile("rb").readline().split()[1])


@on_uvloop
async def test_half_a_body_changes_nothing(tmp_path: Path) -> None:
    body = json.dumps(SET_ALICE).encode()
    head = (
        f"POST /quotas HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) + 1}\r\n\r\n"
    )

    def send(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(head.encode() + body)
            client.shutdown(socket.SHUT_WR)
            return client.makefile("rb").readline()

    async with page(tmp_path) as one:
        assert (await asyncio.to_thread(send, one.port)).split()[1] == b"400"
        assert (await one.get("?user=alice")).json == {"rules": []}


@on_uvloop
async def test_too_many_changes_get_a_retry_after(tmp_path: Path) -> None:
    store = Store(directory=str(tmp_path / "d"), changes_per_second=0.1)
    async with page(tmp_path, store=store) as one:
        # Only one change can be saved up. A request may overdraw that once.
        some = [{"entity": {"user": str(number)}, "limits": {P: 1}} for number in range(3)]
        first = await one.post({"changes": some})
        second = await one.post(SET_ALICE)
        third = await one.post(SET_ALICE | {"dry_run": True})
        change_log = one.server.quota_manager.change_log

        assert [first.status, second.status, third.status] == [200, 429, 429]
        assert 1 <= int(second.headers["Retry-After"]) <= 20
        assert second.json["results"][0]["error"]["name"] == "THROTTLING_QUOTA_EXCEEDED"
        assert (await one.get("?user=alice")).json == {"rules": []}
        assert change_log is not None
        assert change_log.counts == {"applied": 3, "throttled": 2}


@on_uvloop
async def test_a_full_quota_manager_answers_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with page(tmp_path) as one:
        monkeypatch.setattr(one.server.quota_manager, "submit", lambda _: False)
        full = await one.post(SET_ALICE)

        assert (full.status, full.headers["Retry-After"]) == (503, "1")


@on_uvloop
async def test_waiting_changes_leave_threads_for_scrapes(tmp_path: Path) -> None:
    async with page(tmp_path, serves=False) as one, asyncio.TaskGroup() as tasks:
        manager = one.server.quota_manager
        waiting = [tasks.create_task(one.post(SET_ALICE)) for _ in range(4)]
        await eventually(lambda: len(manager._queue.waiting) == 4)

        assert (await one.post(SET_ALICE)).status == 503
        assert (await asyncio.to_thread(one.ask, "GET", "/livez", b"", {})).status == 200
        running = asyncio.ensure_future(manager.run())
        assert {(await each).status for each in waiting} == {200}
        running.cancel()
        await asyncio.wait([running])


@on_uvloop
async def test_a_change_that_takes_too_long_answers_504_and_is_dropped(tmp_path: Path) -> None:
    body = json.dumps(SET_ALICE).encode()
    environ = {
        "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    async with page(tmp_path, serves=False) as one:
        late = QuotasApi(asyncio.get_running_loop(), one.server, str(tmp_path / "token"), deadline_s=0.01)

        with pytest.raises(RefusedError, match="look before you send it again") as refused:
            await asyncio.to_thread(late.post, environ)

        assert refused.value.status == "504 Gateway Timeout"
        await eventually(lambda: one.server.quota_manager._queue.waiting[0].is_dropped)
        assert one.server.quota_manager._queue.waiting[0].changes is None, "its memory is free, too"


@on_uvloop
async def test_a_change_during_a_stop_answers_that_it_may_be_made(tmp_path: Path) -> None:
    async with page(tmp_path, serves=False) as one:
        asked = asyncio.ensure_future(one.post(SET_ALICE))
        await eventually(lambda: one.server.quota_manager._queue.waiting)
        (changing,) = [task for task in asyncio.all_tasks() if "QuotasApi._submit" in str(task.get_coro())]
        changing.cancel()
        answer = await asked

        assert answer.status == 503
        assert (
            answer.body == b"the proxy is stopping, but the change may still be made: look before you send it again\n"
        )
