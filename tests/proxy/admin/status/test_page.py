"""Tests that the admin port serves the status page, and what its headers allow a browser to do."""

import asyncio
import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from kafka_quota_proxy.proxy.admin.status.page import page_files
from tests.proxy.admin.test_http_server import admin_of, ask, ready_server
from tests.support.wheels import built_wheel

FILES = {"/": "page.html", "/status.css": "page.css", "/status.js": "page.js"}
FOLDER = Path("proxy/admin/status")
KINDS = {"/": "text/html", "/status.css": "text/css", "/status.js": "text/javascript"}


async def test_the_admin_port_serves_the_page_and_its_files() -> None:
    async with admin_of(ready_server()) as admin:
        answers = {path: await asyncio.to_thread(ask, admin.port, path) for path in FILES}
        posted = await asyncio.to_thread(ask, admin.port, "/", method="POST")

    for path, answer in answers.items():
        assert answer.status == 200
        assert answer.headers["Content-Type"] == f"{KINDS[path]}; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.body == (Path(__file__).parents[4] / FOLDER / FILES[path]).read_bytes()
    assert (posted.status, posted.headers["Allow"]) == (405, "GET")


def test_a_browser_may_load_only_the_files_of_the_proxy() -> None:
    policy = dict(page_files()["/"].headers)["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    assert rules["default-src"] == "'none'"
    assert {rules[key] for key in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in policy
    assert "*" not in policy


def test_the_page_needs_nothing_that_the_policy_forbids() -> None:
    html = b"".join(page_files()["/"].body).decode()
    script = b"".join(page_files()["/status.js"].body).decode()

    assert set(re.findall(r'(?:src|href)="([^"]*)"', html)) <= {
        "data:,", "status.css", "status.js", "clients", "readyz", "quotas", "callqueue",
    }  # fmt: skip
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?![^>]*src)", html)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", script)


@pytest.mark.kafka
def test_the_wheel_contains_the_page(tmp_path: Path) -> None:
    with ZipFile(built_wheel(tmp_path)) as wheel:
        packed = {name: wheel.read(f"kafka_quota_proxy/{FOLDER}/{name}") for name in FILES.values()}

    assert packed == {name: (Path(__file__).parents[4] / FOLDER / name).read_bytes() for name in FILES.values()}
