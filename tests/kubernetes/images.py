"""Builds the images of a node's pods with buildah, as archives for containerd.

The Dockerfile's base comes from its registry, unless the storage of the tests has an image of this name already.
"""

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

from tests.end_to_end.support.artifacts import cache_directory
from tests.end_to_end.support.processes import HarnessError
from tests.kubernetes.programs import pause
from tests.support.pages import REPOSITORY

VERSION: Final = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
PROXY: Final = f"kafka-quota-proxy:{VERSION}"
PAUSE: Final = "localhost/pause:1"
_LIKE_DOCKER: Final = ["--format=docker", "--isolation=chroot", "--layers", "--network=host", "--pull=false", "--quiet"]
# The image is compiled, which takes minutes.
_BUILD_TIMEOUT_S: Final = 1_800


def archives(directory: Path) -> list[Path]:
    """Build the image of a pod's sandbox, and the product's with the Dockerfile. Write both into the directory."""
    (context := directory / "pause").mkdir()
    shutil.copy(pause(), context / "pause")
    (context / "Dockerfile").write_text('FROM scratch\nCOPY pause /pause\nUSER 65535\nENTRYPOINT ["/pause"]\n')
    return [_built(context, PAUSE, directory / "pause.tar"), _built(REPOSITORY, PROXY, directory / "proxy.tar")]


def _built(context: Path, name: str, archive: Path) -> Path:
    local = name if name.startswith("localhost/") else f"localhost/{name}"
    _buildah("build", *_LIKE_DOCKER, "--tag", local, str(context))
    _buildah("push", "--quiet", local, f"docker-archive:{archive}:{name}")
    return archive


def _buildah(*arguments: str) -> None:
    storage = cache_directory() / "images"
    done = subprocess.run(
        ["buildah", f"--root={storage}", f"--runroot={storage / 'run'}", *arguments],
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise HarnessError(f"buildah {' '.join(arguments)}:\n{done.stderr[-4_000:]}")
