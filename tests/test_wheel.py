"""The wheel works in an application with modules that have the names of this project's folders."""

import subprocess
from pathlib import Path

import pytest

from tests.support.wheels import bare_environment, built_wheel, install, outside_checkout

FOLDERS = ("config", "proxy", "protocol", "pipeline")
CONFIG = "listeners: [{name: clients, bind: '127.0.0.1:9092', upstream: '127.0.0.1:19092'}]\n"
PROGRAM = (
    f"import {', '.join(FOLDERS)}\n"
    "from kafka_quota_proxy.proxy.__main__ import main\n"
    f"assert {{one.OWNER for one in ({', '.join(FOLDERS)})}} == {{'the application'}}\n"
    "raise SystemExit(main(['check', 'file.yaml']))\n"
)


@pytest.mark.kafka
def test_wheel_works_in_a_directory_with_config_proxy_protocol_and_pipeline_modules(tmp_path: Path) -> None:
    python = bare_environment(tmp_path / "venv")
    install(built_wheel(tmp_path), python)
    (application := tmp_path / "application").mkdir()
    for name in FOLDERS:
        (application / f"{name}.py").write_text('OWNER = "the application"\n')
    (application / "file.yaml").write_text(CONFIG)

    # A console script does not search the working directory; -m does, and so does -c.
    for words in (
        [str(python.parent / "kafka-quota-proxy"), "check", "file.yaml"],
        [str(python), "-m", "kafka_quota_proxy.proxy", "check", "file.yaml"],
        [str(python), "-c", PROGRAM],
        [str(python.parent / "kafka-quota-pipeline"), "--help"],
        [str(python), "-m", "kafka_quota_proxy.pipeline", "--help"],
    ):
        ended = subprocess.run(
            words, cwd=application, env=outside_checkout(), capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, ""), words
        assert ended.stdout.startswith(("file.yaml: valid, 1 listener", "usage: kafka-quota-pipeline")), words
    installed = {path.name for path in (python.parent.parent / "lib").glob("python*/site-packages/*")}
    assert not installed & set(FOLDERS)
