"""Runs Helm, which Go builds once into the cache of the tests."""

import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tests.end_to_end.support.artifacts import cache_directory

VERSION: Final = "4.3.1"
# Go fetches and compiles Helm with all that it imports. On two busy cores that took a quarter of an hour.
BUILD_TIMEOUT_S: Final = 2_400
# Helm reports on stderr that it follows the chart's link to deploy/alerts.yaml.
_LINK_NOTE: Final = 'level=INFO msg="found symbolic link'


def helm(*arguments: str | Path, kubeconfig: Path = Path(os.devnull)) -> tuple[int, str, str]:
    """Run Helm, without a Kubernetes cluster if no file names one. Return the exit status, stdout and stderr."""
    done = subprocess.run(
        [_built(), *arguments],
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    errors = [line for line in done.stderr.splitlines() if not line.startswith(_LINK_NOTE)]
    return done.returncode, done.stdout, "\n".join(errors)


@cache
def _built() -> Path:
    program = cache_directory() / f"helm-{VERSION}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=".helm-", dir=program.parent))
    try:
        subprocess.run(
            [Path(sysconfig.get_path("scripts")) / "go", "install", f"helm.sh/helm/v4/cmd/helm@v{VERSION}"],
            cwd=directory,
            env=os.environ | {"GOBIN": str(directory), "GOTOOLCHAIN": "local"},
            timeout=BUILD_TIMEOUT_S,
            check=True,
        )
        (directory / "helm").rename(program)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return program
