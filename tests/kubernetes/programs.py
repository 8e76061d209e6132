"""Builds the programs of a Kubernetes cluster from Go modules, once per release, into the cache of the tests.

Kubernetes has no module that builds alone: its ``go.mod`` replaces the libraries by folders of its repository. The
proxy of Go's modules serves these libraries too, under a version of their own.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

from tests.end_to_end.support.artifacts import cache_directory

KUBERNETES: Final = "1.36.4"
# On two busy cores all of them took 13 minutes, and the linker 2 GB of memory.
BUILD_TIMEOUT_S: Final = 3_600

_LIBRARIES: Final = "v0" + KUBERNETES[1:]
# Without a version, the programs call themselves v0.0.0-master.
_VERSION: Final = " ".join(
    f"-X k8s.io/{variable}={value}"
    for variable, value in {
        "component-base/version.gitVersion": f"v{KUBERNETES}",
        "component-base/version.gitMajor": KUBERNETES.split(".")[0],
        "component-base/version.gitMinor": KUBERNETES.split(".")[1],
        "client-go/pkg/version.gitVersion": f"v{KUBERNETES}",
    }.items()
)
# The process that holds a pod's network. It waits for a signal, and reaps the children of a pod.
_PAUSE: Final = """package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for one := range signals {
		if one != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if child, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); child <= 0 || err != nil {
				break
			}
		}
	}
}
"""


def kubernetes(name: str) -> Path:
    """Return a program of Kubernetes, such as ``kubectl``, built if necessary."""
    program = _program(name)
    if not program.exists():
        sources = _folder(f"kubernetes-{KUBERNETES}-build")
        if not (sources / "go.mod").exists():
            (sources / "go.mod").write_text(_kubernetes_module(sources))
        _build(sources, program, f"k8s.io/kubernetes/cmd/{name}", _VERSION)
    return program


def has_control_plane() -> bool:
    """Return whether a cluster without a node starts without a build, in ten seconds."""
    names = ("kube-apiserver", "kube-controller-manager", "kubectl")
    return shutil.which("etcd") is not None and all(_program(name).exists() for name in names)


def pause() -> Path:
    """Return the program of a pod's sandbox, built if necessary."""
    program = cache_directory() / "pause-1"
    if not program.exists():
        sources = _folder("pause-1-build")
        (sources / "go.mod").write_text("module test/pause\n")
        (sources / "main.go").write_text(_PAUSE)
        _build(sources, program, ".")
    return program


def _program(name: str) -> Path:
    return cache_directory() / f"kubernetes-{KUBERNETES}" / name


def _kubernetes_module(sources: Path) -> str:
    """Return a ``go.mod`` that requires Kubernetes, and its libraries from the proxy of modules."""
    downloaded = _go(sources, "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}")
    (published,) = re.findall(r'"GoMod": "(.*)"', downloaded)
    text = Path(published).read_text(encoding="utf-8")
    (go,) = re.findall(r"^go (.*)$", text, re.MULTILINE)
    required = re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE)
    local = re.findall(r"^\t(k8s\.io/\S+) => \./staging", text, re.MULTILINE)
    lines = [f"\t{name} {_LIBRARIES if version == 'v0.0.0' else version}" for name, version in required]
    return "\n".join(
        [
            f"module test/kubernetes\n\ngo {go}\n\ngodebug default=go{'.'.join(go.split('.')[:2])}\n",
            f"require (\n\tk8s.io/kubernetes v{KUBERNETES}",
            *lines,
            ")\n\nreplace (",
            *(f"\t{name} => {name} {_LIBRARIES}" for name in local),
            ")\n",
        ]
    )


def _build(sources: Path, program: Path, package: str, flags: str = "") -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    _go(sources, "build", "-ldflags", f"-s -w {flags}", "-o", f"{program}.new", package)
    Path(f"{program}.new").rename(program)


def _go(sources: Path, *arguments: str) -> str:
    done = subprocess.run(
        [Path(sysconfig.get_path("scripts")) / "go", *arguments],
        cwd=sources,
        env=os.environ | {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
        timeout=BUILD_TIMEOUT_S,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def _folder(name: str) -> Path:
    (folder := cache_directory() / name).mkdir(parents=True, exist_ok=True)
    return folder
