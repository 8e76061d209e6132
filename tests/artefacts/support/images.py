"""Builds the image with buildah, and runs it with runc: as its own user, without capabilities, with a read-only root.

The base is a stand-in, so nothing comes from a registry of images. Containers share this machine's network.
``python -m tests.artefacts.support.images`` builds it ahead. What is built does not take time again.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.artefacts.support.distributions import REPOSITORY, wait_for
from tests.end_to_end.support.artifacts import cache_directory
from tests.end_to_end.support.processes import Process, run, scratch, scratch_directory

NAME: Final = "localhost/kafka-quota-proxy"
_STAGE: Final = "localhost/kafka-quota-proxy-build"
BASE: Final = "localhost/python:3.13-slim"
_STORAGE: Final = cache_directory() / "images"
_MOUNTS: Final[tuple[tuple[str, str, list[str]], ...]] = (
    ("/proc", "proc", []),
    ("/dev", "tmpfs", ["nosuid", "mode=755", "size=65536k"]),
)


def buildah(*words: str | Path, timeout_s: float = 60) -> str:
    """Run buildah on the storage of the tests, and return its output."""
    return run(["buildah", *_storage(), *words], timeout_s=timeout_s).strip()


def started_build(directory: Path) -> Process:
    """Start a build of the image. The first on a machine makes the stand-in for the base before."""
    base = Path(__file__).parents[1] / "base_image.sh"
    build = "--isolation chroot --network host --pull-never --layers --format docker"
    script = f"""
        set -e
        {base} "$@"
        buildah "$@" build {build} --target build --tag {_STAGE} {REPOSITORY}
        buildah "$@" build {build} --tag {NAME} {REPOSITORY}
        buildah "$@" rmi --prune --force
    """
    return Process(["bash", "-c", script, "build", *_storage()], log=directory / "log", cwd=directory)


class Layer(NamedTuple):
    made_by: str
    size_bytes: int  # not compressed


@dataclass(frozen=True, slots=True)
class Image:
    """What an image says about itself."""

    config: dict[str, Any]
    layers: tuple[Layer, ...]  # from the base up

    @classmethod
    def inspected(cls, name: str = NAME) -> Image:
        """Ask buildah about the image that was built last."""
        image = json.loads(buildah("inspect", "--type", "image", name))["Docker"]
        (known,) = _STORAGE.glob("*-layers/layers.json")
        layers = json.loads(known.read_text())  # those of containers have no digest
        sizes = {layer["diff-digest"]: layer["diff-size"] for layer in layers if "diff-digest" in layer}
        steps = [step["created_by"] for step in image["history"] if not step.get("empty_layer")]
        digests = image["rootfs"]["diff_ids"]
        return cls(image["config"], tuple(Layer(step, sizes[one]) for step, one in zip(steps, digests, strict=False)))

    @property
    def program(self) -> list[str]:
        """Return the command line that a container runs by default."""
        return [*self.config["Entrypoint"], *self.config["Cmd"]]


@dataclass(frozen=True, slots=True)
class Container:
    """A container that is not started yet. ``files`` is mounted at the working directory of the image."""

    name: str
    bundle: Path
    root: Path
    image: Image

    def command(self, file: Path) -> list[str]:
        """Return the command line that runs the container in the foreground, with the file's directory mounted."""
        file.parent.chmod(0o755)  # the user of the image reads it
        mounts: list[dict[str, Any]] = [
            {"destination": place, "type": kind, "source": kind, "options": options} for place, kind, options in _MOUNTS
        ]
        inside = self.image.config["WorkingDir"]
        mounts += [{"destination": inside, "type": "bind", "source": str(file.parent), "options": ["bind", "ro"]}]
        specification = {
            "ociVersion": "1.0.2",
            "root": {"path": str(self.root), "readonly": True},
            "process": self._process(self.image.program),
            "mounts": mounts,
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
        }
        (self.bundle / "config.json").write_text(json.dumps(specification))
        return ["runc", "run", "--bundle", str(self.bundle), self.name]

    def health(self) -> int:
        """Run the health check of the image in the running container, and return its exit status."""
        kind, *words = self.image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        (self.bundle / "health.json").write_text(json.dumps(self._process(words)))
        check = ["runc", "exec", "--process", str(self.bundle / "health.json"), self.name]
        return subprocess.run(check, check=False, capture_output=True, timeout=30).returncode

    def pid(self) -> int:
        """Return the id that the first process of the running container has on this machine."""
        return int(json.loads(run(["runc", "state", self.name]))["pid"])

    def _process(self, words: list[str]) -> dict[str, Any]:
        user = int(self.image.config["User"])
        return {
            "user": {"uid": user, "gid": user},
            "args": words,
            "env": self.image.config["Env"],
            "cwd": self.image.config["WorkingDir"],
            "noNewPrivileges": True,
            "capabilities": {},
        }


@contextmanager
def container(image: Image) -> Iterator[Container]:
    """Create a container of the image, and remove it at the end of the ``with`` block, also if it runs."""
    working = buildah("from", "--pull-never", NAME)
    name = f"kafka-quota-proxy-{uuid.uuid4().hex[:8]}"
    try:
        yield Container(name, scratch_directory("container"), Path(buildah("mount", working)), image)
    finally:
        with suppress(subprocess.SubprocessError):
            subprocess.run(["runc", "delete", "--force", name], check=False, capture_output=True, timeout=30)
        buildah("umount", working)
        buildah("rm", working)


def _storage() -> list[str]:
    return ["--root", str(_STORAGE), "--runroot", str(_STORAGE / "run")]


if __name__ == "__main__":
    with scratch("image") as directory:
        wait_for(started_build(directory), timeout_s=3_600)
