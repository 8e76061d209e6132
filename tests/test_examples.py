"""The example projects in other languages are short, and their clients wait when the proxy throttles them."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_quota_proxy.testing import ThrottlingProxy
from tests.support.pages import FENCE, REPOSITORY

EXAMPLES = REPOSITORY / "examples"
# Each language with the names of its sources.
LANGUAGES = {"go": "*.go", "java": "*.java", "node": "*.js"}
# What the build tools create.
BUILT = ("node_modules", "package-lock.json", "target")


@pytest.fixture(scope="module")
def proxy() -> Iterator[ThrottlingProxy]:
    with ThrottlingProxy() as running:
        yield running


def test_each_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == set(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_example_has_fewer_than_60_lines_of_code(language: str) -> None:
    sources = (EXAMPLES / language).rglob(LANGUAGES[language])
    own = [path for path in sources if not {*path.relative_to(EXAMPLES).parts} & {*BUILT}]
    lines = [line for path in own for line in path.read_text(encoding="utf-8").splitlines()]

    assert 0 < sum(bool(line.strip()) for line in lines) < 60
    assert max(map(len, lines)) <= 120


@pytest.mark.kafka
@pytest.mark.timeout(900)  # the first run fetches the client, and Go compiles its standard library
@pytest.mark.parametrize("language", LANGUAGES)
def test_client_in_another_language_is_throttled_three_times(
    proxy: ThrottlingProxy, tmp_path: Path, language: str
) -> None:
    project = tmp_path / language
    shutil.copytree(EXAMPLES / language, project, ignore=shutil.ignore_patterns(*BUILT))
    *_, (_, commands) = FENCE.findall((project / "README.md").read_text(encoding="utf-8"))

    ended = subprocess.run(
        ["bash", "-ec", commands],
        cwd=project,
        env=os.environ
        | {
            # Go, Node and npm are wheels of the extra `test`.
            "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
            "GOTOOLCHAIN": "local",
            "KAFKA_BOOTSTRAP_SERVERS": proxy.bootstrap_servers,
            "KAFKA_QUOTA_PROXY_ADMIN": proxy.admin,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout
    observed = [(one.api, one.throttle_time_ms, one.reason) for one in proxy.observed(f"{language}-app")]
    assert observed == [("Produce", 300, "testing")] * 3, ended.stdout
