"""Tests that ``check`` and ``run`` report the same faults of paths and addresses."""

import fcntl
import os
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.rules.model import Entity
from tests.support.stores import keep, keep_strange

LISTENER = "listeners:\n  - {name: clients, bind: '127.0.0.1:0', upstream: '127.0.0.1:19092'}\n"
STORE = "principals: {admins: [admin]}\nstore: {directory: quotas.d}\n"
READ_ONLY = 'mount -t tmpfs -o ro none "$0" && exec "$@"'


def ended(command: str, file: Path, *, within: list[str | Path] | None = None) -> tuple[int, str]:
    """Run a command that ends by itself. Return its exit status and the last line of its standard error."""
    if command == "check" and not within:
        with redirect_stderr(StringIO()) as stderr, redirect_stdout(StringIO()):
            status = main([command, str(file)])
        return status, stderr.getvalue().splitlines()[-1]
    program = [*(within or []), sys.executable, "-m", "kafka_quota_proxy.proxy", command, file]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stderr.splitlines()[-1]


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return file


def read_only(directory: Path) -> list[str | Path]:
    """Make a read-only directory. Return the command that a program must run under to find the directory read-only."""
    directory.mkdir()
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        directory.chmod(0o500)  # has no effect for root
        return []
    return ["unshare", "-rm", "sh", "-c", READ_ONLY, directory]


def test_check_and_run_agree_on_a_read_only_store(tmp_path: Path) -> None:
    file = written(tmp_path, LISTENER + STORE)
    within = read_only(tmp_path / "quotas.d")

    checked, ran = ended("check", file, within=within), ended("run", file, within=within)

    assert ran[1] == checked[1]
    assert (checked[0], ran[0]) == (2, 1)
    assert ran[1].startswith(f"{file}:4: store.directory: {tmp_path}/quotas.d cannot be written: ")
    assert ran[1].endswith(
        "it is on a read-only file system; mount it writable, or use another file system"
        if within
        else f"Permission denied for user {os.geteuid()}; give it to the user that runs the proxy"
    )


@pytest.mark.parametrize("what", ["a file", "another version's", "an audit log in no directory"])
def test_check_and_run_agree_on_an_unusable_store(tmp_path: Path, what: str) -> None:
    text, key = STORE, "directory"
    if what == "a file":
        (tmp_path / "quotas.d").write_text("")
    elif what == "another version's":
        keep_strange(tmp_path / "quotas.d", Entity(user="alice"))
    else:
        text, key = STORE.replace("quotas.d", "quotas.d, audit_log: none/audit"), "audit_log"
    file = written(tmp_path, LISTENER + text)

    checked, ran = ended("check", file), ended("run", file)

    assert ran[1] == checked[1]
    assert (checked[0], ran[0]) == (2, 1)
    assert ran[1].startswith(f"{file}:4: store.{key}: {tmp_path}/")
    assert "Errno" not in ran[1]


def test_a_locked_store_is_reported_at_its_line(tmp_path: Path) -> None:
    file = written(tmp_path, LISTENER + STORE)
    keep(tmp_path / "quotas.d", Entity(user="alice"))
    with (tmp_path / "quotas.d" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        status, message = ended("run", file)

    assert status == 1
    assert message.startswith(f"{file}:4: store.directory: {tmp_path}/quotas.d cannot be used: another process")


@pytest.mark.parametrize("key", ["listeners[0].bind", "admin.metrics_bind"])
def test_a_used_port_is_reported_at_its_line(tmp_path: Path, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        binds = {one: taken if one == key else "127.0.0.1:0" for one in ("admin.bind", "admin.metrics_bind")}
        text = f"admin:\n  bind: {binds['admin.bind']}\n  metrics_bind: {binds['admin.metrics_bind']}\n{LISTENER}"
        file = written(tmp_path, text.replace("127.0.0.1:0'", f"{taken}'") if key.startswith("listeners") else text)

        status, message = ended("run", file)

    line = {"admin.bind": 2, "admin.metrics_bind": 3}.get(key, 5)
    reason = "Address already in use; stop the process that listens there, or use another port"
    assert (status, message) == (1, f"{file}:{line}: {key}: cannot listen on {taken}: {reason}")


def test_an_unwritable_usage_log_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, f"{LISTENER}usage_log: {{directory: none/usage}}\n")
    (tmp_path / "none").write_text("a file")

    status, message = ended("check", file)

    assert message == (
        f"{file}:3: usage_log.directory: warning: {tmp_path}/none/usage cannot be created: "
        f"{tmp_path}/none is not a directory; use another path"
    )
    assert status == 0


def test_writable_paths_are_no_fault(tmp_path: Path) -> None:
    file = written(
        tmp_path, f"{LISTENER}{STORE.replace('quotas.d', 'a/b, audit_log: audit')}usage_log: {{directory: c/d}}\n"
    )

    assert main(["check", str(file)]) == 0
    assert list(tmp_path.iterdir()) == [file], "something was made"
